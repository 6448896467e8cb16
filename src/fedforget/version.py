"""The version of this package, for whoever must not import all of it."""

__version__ = "0.3.0"
