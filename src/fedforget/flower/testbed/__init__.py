"""Testbed: a Flower network on one machine."""
