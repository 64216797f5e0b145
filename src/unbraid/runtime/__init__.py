"""General utilities for files, locks, signals, progress, provenance, imports by name and numba compilation."""
