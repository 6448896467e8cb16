"""Runtime: compiled code, worker threads, files, SQLite, keyed randomness, components. Nothing about federations."""
