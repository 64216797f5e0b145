"""Stacked encoders compared with single encoders, in the interpreter of Triton."""

from __future__ import annotations

import itertools

import pytest
import torch

from support.guarded import DEVICE
from unbraid.nets.conv import burgess, locatello
from unbraid.nets.mlp import mlp
from unbraid.nets.vae import PairBuilder

pytest.importorskip("triton", reason="Triton is not installed here")

from support.fused_stacks import (
    TOLERANCE,
)
from unbraid.training.fused.encoder import StackEncoder

pytestmark = pytest.mark.usefixtures("large_tiles", "poisoned")


@pytest.mark.parametrize(("builder", "channels"), [(locatello, 3), (burgess, 1)])
def test_stacked_encoders_equal_single_encoders(builder: PairBuilder, channels: int) -> None:
    """All encoders encode the same examples."""
    shape = (channels, 32, 32)
    encoders = [builder(shape, 3)[0].to(DEVICE) for _ in range(2)]
    for parameter in itertools.chain(*(net.parameters() for net in encoders)):
        parameter.data += 0.05 * torch.randn_like(parameter)
    x = torch.rand(3, *shape, device=DEVICE)
    stacked = StackEncoder(encoders, shape, "tf32")(x)
    single = torch.stack([net(x) for net in encoders]).detach()
    assert stacked.shape == (2, 3, 6)
    assert float((stacked - single).norm()) <= TOLERANCE * float(single.norm())


def test_encoders_without_kernels_raise_an_error() -> None:
    with pytest.raises(ValueError, match="a network for which kernels exist"):
        StackEncoder([mlp((1, 32, 32), 3)[0]], (1, 32, 32), "fp32")
