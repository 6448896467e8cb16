"""Device: everything that may see one user's data."""
