"""Networks that are computed for a whole stack of runs in GPU kernels.

A stack is a set of runs that train together. All parameters of a fused network are one flat row per run, in which each
parameter is rearranged and padded for its kernel. The modules build on each other:

1. `packing` assigns a position in the row to each parameter.
2. `dense` and `networks` recognise networks for which kernels exist. They describe such a network by a `Plan`.
3. `functions` computes the networks and their gradients for all runs at once.
4. `modules` wraps these functions in modules that replace the encoder, the decoder or the critic of a network.
5. `encoder` encodes the same examples with many trained encoders.

In shapes, r is the number of runs, b the batch size, d the number of latents and p the length of a row.
"""
