"""Triton kernels for a whole stack of runs: every launch serves all runs, one run a row of the grid."""
