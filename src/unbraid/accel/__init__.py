"""Fast versions of general operations, such as convolutions, Adam and random numbers.

This package imports no code of methods, datasets or training. Many operations compute a whole *stack* at once. A stack
is a set of runs that train together. The tensors of a stack have a first axis of runs, whose length is r. A *row* holds
the parameters of one run as one flat vector of length p.
"""

from unbraid.accel import devices as devices  # processes made by `fork` must know of it (see the end of that module)
