"""Experiments: an attacked federation, every way to recover from it, and a report that shows them side by side."""
