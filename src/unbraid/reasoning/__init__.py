"""Abstract visual reasoning from frozen codes: puzzles, the network that solves them, and its learning curves."""
