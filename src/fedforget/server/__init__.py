"""Server: everything that only ever sees updates."""
