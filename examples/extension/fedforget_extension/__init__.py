"""Example components for fedforget, one of each kind."""
