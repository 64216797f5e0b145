"""Runs: their specifications, their folders, trained models in memory, and tables of results."""
