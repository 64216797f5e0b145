"""The same numbers on a GPU: stacks under vmap on CUDA against one run after another on the CPU."""

from __future__ import annotations

import pytest
import torch

import unbraid as ub
from unbraid.data.base import FactorData
from unbraid.engine.stack import Stack
from unbraid.methods import METHODS
from unbraid.nets.conv import locatello
from unbraid.spec import RunSpec

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", METHODS)
def test_cuda_stack_equals_cpu(name: str, sprites: FactorData) -> None:
    specs = [RunSpec(METHODS[name](), "sprites", seed, 10, 16, 1e-4, 4) for seed in (0, 1, 2)]
    cpu, gpu = Stack(specs, sprites, locatello), Stack(specs, sprites.to("cuda"), locatello)
    for _ in range(3):
        cpu.advance()
        gpu.advance()
    torch.testing.assert_close(gpu.last.cpu(), cpu.last, rtol=1e-3, atol=1e-2)


def test_divergence_on_cuda_stays_home(sprites: FactorData) -> None:
    specs = [RunSpec(METHODS["beta_vae"](), "sprites", seed, 10, 16, 1e-4, 4) for seed in (0, 1)]
    stack = Stack(specs, sprites.to("cuda"), locatello)
    stack.advance()
    stack.rows[0, 0] = float("nan")
    stack.advance()
    (found,) = stack.divergences()
    assert (found.member, found.step) == (0, 1)
    assert bool(stack.rows[1].isfinite().all())


def test_train_score_and_traverse_on_cuda(tmp_path: object) -> None:
    runs = ub.train(METHODS["vae"](), "sprites", steps=5, latents=4, device="cuda", seeds=[0, 1], quiet=True)
    assert runs[0].device.type == "cuda"
    assert {"mig.discrete_mig"} <= set(ub.score(runs, ["mig"], quiet=True)[0])
    png, gif = ub.traverse(runs[0], out=str(tmp_path))
    assert png.exists()
    assert gif.exists()
