"""Flower: adapters that run the server and the devices on a Flower network."""
