"""Training many runs at once: `train` calls `schedule`, `schedule` calls `loop`, and `loop` advances a `stack`."""
