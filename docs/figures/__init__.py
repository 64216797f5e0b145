"""Scripts that draw the pictures of the documentation. Run in docs/: python -m figures.NAME."""
