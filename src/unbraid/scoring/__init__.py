"""Scores of trained runs: metrics, rankings without labels, likelihood bounds, and comparisons of folders of runs."""
