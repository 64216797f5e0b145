"""Triton kernels that compute a whole stack of runs in one launch, with one run per row of the launch grid.

Names in the kernels: n is the run, b the sample, (i, j) a pixel of the small image, (y, x) a pixel of the large image,
c a channel of the large image and o a channel of the small one. B is the batch size, h the side of the small image, C
and M are the channels of the large and the small image, and P is the distance between the parameters of two runs.
"""
