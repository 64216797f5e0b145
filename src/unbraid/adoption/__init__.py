"""Make runs from models that were trained outside unbraid."""
