"""Datasets that are rendered here, without any file."""
