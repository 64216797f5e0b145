"""The campaign of faults. `make test-faults` runs it, and docs/design/promises.md explains it.

- `campaign` divides the time among the parts and prints the failures.
- `parts` says what a part must provide, and makes a failing case as simple as possible.
- `bad_input`, `kills`, `pairs`, `disk` and `requests` are the parts.
- `processes` runs commands in forked processes, and `judging` judges how they ended.
- `exemptions` lists everything that does not count as a fault, with reasons.
- `commands`, `values` and `damage` have the command lines, values and damages of bad input.
- `jobs` has the long commands that are disturbed, and their undisturbed results.
"""
