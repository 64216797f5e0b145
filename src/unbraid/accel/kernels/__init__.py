"""Triton kernels that compute a stack, that is, many runs with their own parameters, in one launch.

Axis 1 of the launch grid is the run. A stride-2 layer connects a large image (side 2h) with a small image (side h),
whichever of them is its input. Kernels use these names:

- n is the run, and b the sample in the batch.
- (i, j) is a pixel of the small image, and (y, x) a pixel of the large image.
- c is a channel of the large image, and o a channel of the small image.
- B is the batch size, and h the side of the small image.
- C and M are the numbers of channels of the large and the small image.
- g = h + 1 is the number of blocks per side of the large image if it is blocked, and q = h/2 + 1 is that of the small
  image.
- P is the stride between the parameters of two consecutive runs.
- PLAIN is True if the small image is plain, and False if it is blocked.
- `span` is the number of values of one small image.
- `live` and `ok` are masks of the elements of a tile that exist. `at` and `to` are offsets of loads and stores.
- BACK is True if the kernel computes a gradient. ACT points to the outputs of a ReLU, and the gradient is zero where
  they are zero.
- PART points to partial sums, one for each program.
- BM, BN, BO, BK, TM, TN and BLOCK are sizes of tiles. EVEN is True if the tiles cover the elements without a remainder.
- IP is how float32 numbers are multiplied (see `unbraid.accel.precision.product_precision`).
- SPLIT is the number of parts of a sum, RS the number of parts into which the rows of an image are divided, IT the
  number of tiles per program, and ST the number of stages of the software pipeline.

See `unbraid.accel.kernels.blocked` for plain and blocked images.
"""
