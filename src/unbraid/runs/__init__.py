"""Runs: what decides their numbers, the files they are kept in, and trained models in memory."""
