"""Datasets that are rendered by this package and need no files."""
