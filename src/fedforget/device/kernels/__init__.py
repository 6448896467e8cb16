"""Compiled kernels: the local training of the built-in models, one client at a time inside the cache."""
