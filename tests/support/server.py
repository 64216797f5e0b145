"""Requests to the server of `explore`, and what it must answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import unbraid as ub

LATENTS = np.array([0.5, -1.25, 2.0], "<f4")


def decode_path(run: str, token: str = "a%20token") -> str:
    """Return the path of a request that decodes with a run."""
    return f"/decode?run={run}&token={token}"


def decoded_example(run: ub.Run, z: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return the example that a run decodes from one vector of latents."""
    return np.asarray(run.decode(torch.from_numpy(np.asarray(z, np.float32))[None])[0])
