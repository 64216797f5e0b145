"""Whole networks as single functions over one flat parameter row a run, for stacks of runs on a GPU."""
