"""Training many runs at once.

`unbraid train` passes through these modules from top to bottom, and the trained runs return the same way:

1. `cli/train.py` parses the command into specs.
2. `train` checks the specs, locks the output folder and loads the runs that are already trained.
3. `schedule` decides which runs form a stack and which stacks train at the same time.
4. `loop` takes the steps and writes logs, checkpoints and finished runs.
5. `stack` computes one step of many runs.

Each module imports only from those below it. `active` holds the records that `schedule` passes to `loop`. `memory`
measures how many runs fit into the memory of a GPU. `rows` describes how a stack stores parameters, and `fused`
contains networks that compute a whole stack in GPU kernels.
"""
