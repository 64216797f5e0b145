"""Datasets that this package generates and that need no files."""
