"""Simulation: server and devices in one process."""
