"""The campaign of faults: generated bad input for every command. `make test-faults` runs it.

- `commands` lists the commands, a small valid command line for each, and their flags.
- `values` has the values of flags, and `damage` has the ways to damage a file.
- `cases` generates one case from a seed and a number.
- `execution` runs a case in a forked process and judges how the command ended.
- `campaign` runs cases until a budget is spent and prints the failures.
"""
