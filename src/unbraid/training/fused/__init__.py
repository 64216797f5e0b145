"""Networks computed for a whole stack of runs in GPU kernels, from one flat parameter row per run."""
