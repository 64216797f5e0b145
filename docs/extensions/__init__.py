"""Sphinx extensions of this documentation."""
