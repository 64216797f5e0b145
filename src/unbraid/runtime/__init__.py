"""Services for all other packages: files, locks, signals, progress, provenance, imports by name, and numba."""
