"""Flower: the network on which real devices are reached."""
