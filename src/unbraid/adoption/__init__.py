"""Adoption of models that were trained outside unbraid as runs."""
