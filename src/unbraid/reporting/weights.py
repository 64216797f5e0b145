"""The weights of decoders on a page: one byte string with all tensors in half precision."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from unbraid.errors import UserError

MAX_FLOAT16 = 65504.0  # largest finite number in half precision
MAX_SMALL_WEIGHTS = 2**14  # maximum number of elements of a small tensor
EXPLORE_HINT = "`unbraid explore` runs any decoder."


@dataclass
class WeightWriter:
    """Collects the weights of a decoder.

    A tensor is stored in one or two parts. The first part contains the values, rounded to half precision. The second
    part contains the rounding errors. Small tensors have two parts. Large tensors have two parts only while `exact` is
    True.
    """

    tensors: list[np.ndarray[Any, Any]] = field(default_factory=list)
    size: int = 0
    exact: bool = False
    written: dict[tuple[int, int], tuple[Tensor, int]] = field(default_factory=dict)

    def add(self, tensor: Tensor | None, parts: int, name: str) -> int | None:
        """Add a tensor and return its offset in elements, or None if the tensor is None.

        A tensor that was added before with the same number of parts is not stored again.
        """
        if tensor is None:
            return None
        if (id(tensor), parts) in self.written:
            return self.written[id(tensor), parts][1]
        values, start = tensor.detach().cpu().double().flatten(), self.size
        largest = float(values.abs().amax()) if len(values) else 0.0
        if not largest <= MAX_FLOAT16:
            raise UserError(
                f"Weights on a page must be finite and at most {MAX_FLOAT16:g}, the limit of half precision. Got "
                f"{largest:g} in the {name} of this decoder. {EXPLORE_HINT}"
            )
        rest = values.numpy()
        for _ in range(parts):
            rounded = rest.astype("<f2")
            self.tensors.append(rounded)
            self.size += len(rounded)
            rest = rest - rounded
        self.written[id(tensor), parts] = tensor, start
        return start

    def layer(self, name: str, weight: Tensor, bias: Tensor | None = None) -> dict[str, Any]:
        """Add the weight and the bias of a layer, and return the settings with which a node refers to them."""
        parts = 2 if self.exact or weight.numel() <= MAX_SMALL_WEIGHTS else 1
        return {
            "weight": self.add(weight, parts, f"weight of a {name}"),
            "bias": self.add(bias, parts, f"bias of a {name}"),
            "parts": parts,
        }

    def content(self) -> bytes:
        """Return the bytes of all tensors, one after the other."""
        return b"".join(tensor.tobytes() for tensor in self.tensors)
