"""Many trained encoders at once against each alone, in Triton's interpreter."""

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
def test_a_stack_of_encoders_equals_each(builder: PairBuilder, channels: int) -> None:
    """The same examples through every encoder at once."""
    shape = (channels, 32, 32)
    encoders = [builder(shape, 3)[0].to(DEVICE) for _ in range(2)]
    for parameter in itertools.chain(*(net.parameters() for net in encoders)):
        parameter.data += 0.05 * torch.randn_like(parameter)
    x = torch.rand(3, *shape, device=DEVICE)
    found = StackEncoder(encoders, shape, "tf32")(x)
    wanted = torch.stack([net(x) for net in encoders]).detach()
    assert found.shape == (2, 3, 6)
    assert float((found - wanted).norm()) <= TOLERANCE * float(wanted.norm())


def test_a_stack_of_encoders_without_kernels_is_refused() -> None:
    with pytest.raises(ValueError, match="a network for which kernels exist"):
        StackEncoder([mlp((1, 32, 32), 3)[0]], (1, 32, 32), "fp32")
