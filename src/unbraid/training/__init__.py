"""Training many runs at once.

Terms:

- A *run* is the training of one network, described by a spec (method, dataset, seed, learning rate and so on).
- A *stack* is a set of runs whose networks have the same shape. One computation performs a training step of all of
  them.
- A *member* is the index of a run in its stack.
- A *row* holds all parameters of one run as one flat vector. The parameters of a stack are a matrix (runs, parameters).
- A *group* is a set of stacks that train at the same time.

`unbraid train` calls these modules in the following order:

1. `cli/train.py` parses the command into specs.
2. `train` checks the specs, locks the output folder and loads the runs that are already trained.
3. `schedule` decides which runs form a stack and which stacks train at the same time.
4. `loop` takes the training steps and writes logs, checkpoints and finished runs.
5. `stack` takes one step of a stack, with the gradients of `stack_gradients`.
6. `stack_state` stores the parameters of a stack and the state of its training.

A module in this list imports no earlier module of the list. Of the other modules, `active` contains the records that
`schedule` passes to `loop`, `memory` measures how many runs fit into the memory of a GPU, `objective` computes the loss
of one run, `rows` describes how a row stores parameters, `threads` computes runs on several CPU threads, and `fused`
contains networks that compute a whole stack in GPU kernels.
"""
