"""Derivatives of decoders compared with automatic differentiation, and penalties on them with known values."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import unbraid as ub
from support.command_line import FAST_TRAINING, unbraid
from support.engine_laws import make_stack, take_steps
from support.training import quick_train
from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.methods import FSQ, PCL, UVITAE, VAE, Batch, BetaVAE, DecoderPenalties, DiffusionVAE, Method
from unbraid.methods.decoder_penalties import penalised_objective
from unbraid.methods.derivatives import (
    column_products,
    column_sizes,
    hessian_forms,
    interactions,
    jacobian_products,
    random_axes,
    random_signs,
)
from unbraid.nets.mlp import mlp
from unbraid.nets.registry import resolve_net
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise
from unbraid.runs.labels import run_labels
from unbraid.runs.spec import RunSpec
from unbraid.studies.study_files import find_study
from unbraid.training.stack import Stack

# PyTorch compiles a script when forward-mode differentiation is first used.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")

LATENTS, OUTPUTS = 3, 5
ALL: dict[str, float] = {"orthogonal_jacobian": 0.3, "sparse_jacobian": 0.02, "hessian_penalty": 0.5}


@pytest.fixture
def smooth() -> nn.Module:
    """A decoder with three latents and five outputs, in float64."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(LATENTS, 8), nn.Tanh(), nn.Linear(8, OUTPUTS)).double().requires_grad_(False)


def jacobians(decode: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
    """The Jacobian at each z, (b, outputs, latents), by forward-mode differentiation."""
    return torch.vmap(torch.func.jacfwd(lambda one: decode(one[None])[0]))(z)


def hessians(decode: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
    """The Hessians of all outputs at each z, (b, outputs, latents, latents)."""
    return torch.vmap(torch.func.hessian(lambda one: decode(one[None])[0]))(z)


def sample(b: int = 4) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(1)
    return torch.randn(b, LATENTS, generator=g).double(), torch.randn(2, b, LATENTS, generator=g).double()


def all_signs(b: int) -> Tensor:
    """All vectors of signs, (8, b, 3)."""
    return torch.tensor(list(itertools.product([-1.0, 1.0], repeat=LATENTS))).double()[:, None].expand(-1, b, -1)


def without_diagonal(matrices: Tensor) -> Tensor:
    return matrices * (1 - torch.eye(matrices.shape[-1]).to(matrices))


# Estimates compared with automatic differentiation


def test_products_equal_automatic_differentiation(smooth: nn.Module) -> None:
    z, v = sample()
    wanted = torch.einsum("bxj,kbj->kbx", jacobians(smooth, z), v)
    torch.testing.assert_close(jacobian_products(smooth, z, v, 1e-4), wanted, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(jacobian_products(smooth, z, v), wanted, rtol=1e-2, atol=1e-3)


def test_forms_equal_automatic_differentiation(smooth: nn.Module) -> None:
    z, v = sample()
    wanted = torch.einsum("kbi,bxij,kbj->kbx", v, hessians(smooth, z), v)
    torch.testing.assert_close(hessian_forms(smooth, z, v, 1e-3), wanted, rtol=1e-4, atol=1e-5)


def test_differences_in_float32_have_small_errors(smooth: nn.Module) -> None:
    """With the default sizes, rounding errors are small compared with the derivatives."""
    z, v = sample()
    for differences, tolerance in ((jacobian_products, 1e-4), (hessian_forms, 1e-3)):
        wanted = differences(smooth.double(), z, v)
        found = differences(smooth.float(), z.float(), v.float()).double()
        assert float((found - wanted).norm()) < tolerance * float(wanted.norm())


def test_all_columns_give_the_exact_penalties(smooth: nn.Module) -> None:
    z, _ = sample()
    columns = jacobian_products(smooth, z, torch.eye(LATENTS).double()[:, None].expand(-1, len(z), -1), 1e-4)
    exact = jacobians(smooth, z)
    products = without_diagonal(exact.mT @ exact).square().sum((1, 2))
    torch.testing.assert_close(column_products(columns, LATENTS), products, rtol=1e-5, atol=1e-8)
    torch.testing.assert_close(column_sizes(columns, LATENTS), exact.abs().sum((1, 2)), rtol=1e-5, atol=1e-8)


def test_estimates_from_two_columns_are_unbiased(smooth: nn.Module) -> None:
    """Their means over all ordered pairs of columns are the exact penalties."""
    z, _ = sample()
    columns = jacobian_products(smooth, z, torch.eye(LATENTS).double()[:, None].expand(-1, len(z), -1))
    pairs = [columns[[i, j]] for i, j in itertools.permutations(range(LATENTS), 2)]
    for estimate in (column_products, column_sizes):
        mean = torch.stack([estimate(pair, LATENTS) for pair in pairs]).mean(0)
        torch.testing.assert_close(mean, estimate(columns, LATENTS))


def test_variance_over_signs_is_the_sum_of_mixed_derivatives(smooth: nn.Module) -> None:
    """With all eight vectors of signs, each with probability 1/8, the variance is twice the sum of squares."""
    z, _ = sample()
    forms = hessian_forms(smooth, z, all_signs(len(z)), 1e-3)
    wanted = 2 * without_diagonal(hessians(smooth, z)).square().sum((1, 2, 3))
    torch.testing.assert_close(interactions(forms) * 7 / 8, wanted, rtol=1e-4, atol=1e-8)


def test_random_directions() -> None:
    noise = Noise(torch.tensor(3))
    signs, axes = random_signs(noise, 2, 500, 4), random_axes(noise, 2, 500, 4)
    assert set(signs.flatten().tolist()) == {-1.0, 1.0}
    assert abs(float(signs.mean())) < 0.06
    assert not (axes[0] * axes[1]).any()
    assert (axes.sum(2) == 1).all()
    torch.testing.assert_close(axes.mean((0, 1)), torch.full((4,), 0.25), rtol=0, atol=0.05)
    assert random_axes(noise, 1, 5, 1).shape == (1, 5, 1)


# Decoders with known penalties


def linear_net(weight: Tensor) -> VAENet:
    """A network with the decoder W z + 1, whose outputs are means."""
    decoder = nn.Linear(weight.shape[1], weight.shape[0])
    with torch.no_grad():
        decoder.weight.copy_(weight)
        decoder.bias.fill_(1.0)
    return VAENet(nn.Identity(), decoder, "gaussian")


def penalties_of(net: VAENet, latents: int = LATENTS, b: int = 50) -> dict[str, float]:
    z = torch.randn(b, latents, generator=torch.Generator().manual_seed(0))
    terms = DecoderPenalties(1.0, 1.0, 1.0).terms(net, z, Noise(torch.tensor(5)))
    return {name: float(value.detach()) for name, value in terms.items()}


def test_orthogonal_linear_decoder() -> None:
    """Orthogonal columns have no inner products, and a linear decoder has no second derivatives."""
    found = penalties_of(linear_net(torch.eye(OUTPUTS, LATENTS) * torch.tensor([1.0, 2.0, 3.0])))
    assert found["orthogonal_jacobian"] == pytest.approx(0, abs=1e-6)
    assert found["sparse_jacobian"] == pytest.approx(6, rel=0.1)
    assert found["hessian_penalty"] == pytest.approx(0, abs=1e-6)


def test_equal_columns() -> None:
    """Three columns of five ones have six ordered pairs with inner product 5."""
    found = penalties_of(linear_net(torch.ones(OUTPUTS, LATENTS)))
    assert found["orthogonal_jacobian"] == pytest.approx(6 * 25, rel=1e-3)
    assert found["sparse_jacobian"] == pytest.approx(15, rel=1e-3)
    assert found["hessian_penalty"] == pytest.approx(0, abs=1e-6)


class Product(nn.Module):
    """The decoder (z0 z1, z2^2), whose only mixed derivative is 1."""

    def forward(self, z: Tensor) -> Tensor:
        return torch.stack([z[:, 0] * z[:, 1], z[:, 2].square()], 1)


def test_hessian_penalty_of_a_product() -> None:
    """Two entries of the Hessian are 1, so the penalty is 4. The estimates of single examples are 0 or 8."""
    found = penalties_of(VAENet(nn.Identity(), Product(), "gaussian"), b=4000)
    assert found["hessian_penalty"] == pytest.approx(4, rel=0.1)


def test_a_single_latent_has_no_pairs() -> None:
    found = penalties_of(linear_net(torch.ones(OUTPUTS, 1)), latents=1)
    assert found["orthogonal_jacobian"] == 0
    assert found["sparse_jacobian"] == pytest.approx(5, rel=1e-4)


def test_weights_multiply_the_terms(toy: FactorData) -> None:
    net, batch = VAENet(*mlp((16,), 3), likelihood="gaussian"), Batch(toy.batch(torch.arange(6)), len(toy))
    noise = [Noise(torch.tensor(seed)) for seed in (0, 1)]
    plain = VAE().objective(net, batch, Noise(torch.tensor(0)), torch.tensor(0.0))[0]
    loss, terms = penalised_objective(VAE(), DecoderPenalties(**ALL), net, batch, noise, torch.tensor(0.0))
    torch.testing.assert_close(loss, plain + sum(weight * terms[name] for name, weight in ALL.items()))
    assert list(terms) == ["rec", "kl", *ALL]


# Stacks of runs


def stack_with(data: FactorData, methods: list[Method], vmapped: bool = False, **settings: Any) -> Stack:
    plain = make_stack(methods, data, range(len(methods)), [1e-3] * len(methods))
    net = plain.specs[0].net
    specs = [dataclasses.replace(spec, **settings) for spec in plain.specs]
    return Stack(specs, data, resolve_net(net)[1], vmapped=vmapped)


@pytest.mark.parametrize("method", [BetaVAE(), FSQ(), DiffusionVAE()], ids=str)
def test_vmap_equals_one_by_one(method: Method, toy: FactorData) -> None:
    """Adam divides each gradient by its size, so a few parameters, whose gradients are near 0, may differ more."""
    stacks = [stack_with(toy, [method] * 2, vmapped, **ALL) for vmapped in (False, True)]
    take_steps(4, *stacks)
    torch.testing.assert_close(stacks[0].last, stacks[1].last, rtol=1e-3, atol=1e-3)
    difference = (stacks[0].rows - stacks[1].rows).abs()
    assert (difference > 2e-4).float().mean() < 1e-3
    assert difference.max() < 4e-3
    assert set(ALL) <= set(stacks[0].terms)


def test_weights_of_zero_change_nothing(toy: FactorData) -> None:
    with_zero, plain = stack_with(toy, [BetaVAE()], **dict.fromkeys(ALL, 0.0)), make_stack([BetaVAE()], toy)
    take_steps(3, with_zero, plain)
    assert torch.equal(with_zero.rows, plain.rows)
    assert with_zero.terms == plain.terms


def test_small_weights_are_close_to_the_method_alone(toy: FactorData) -> None:
    """The random numbers of the method are the same with and without penalties."""
    with_penalties, plain = stack_with(toy, [BetaVAE()], **dict.fromkeys(ALL, 1e-12)), make_stack([BetaVAE()], toy)
    for stack in (with_penalties, plain):
        _, gradient = stack._gradients_one_by_one(torch.tensor(0))
        stack.grad = gradient.clone()
    torch.testing.assert_close(with_penalties.grad, plain.grad, rtol=1e-4, atol=1e-5)


def test_penalties_train_the_decoder_only(toy: FactorData) -> None:
    """They do not depend on the last bias either."""
    stacks = [make_stack([BetaVAE()], toy), stack_with(toy, [BetaVAE()], **ALL)]
    plain, found = (s.layout.unflatten(s._gradients_one_by_one(torch.tensor(0))[1][0].clone()) for s in stacks)
    *others, last = [name for name in plain if name.startswith("decoder.")]
    for name in plain:
        same = torch.allclose(plain[name], found[name], rtol=1e-4, atol=1e-5)
        assert same == (name not in others), name
    assert last.endswith("bias")


@pytest.mark.parametrize("name", ALL)
def test_training_lowers_each_penalty(name: str) -> None:
    """Compared with the same training without it, the penalty is smaller at the end."""
    weights = {"orthogonal_jacobian": 0.1, "sparse_jacobian": 0.1, "hessian_penalty": 0.1}
    found = []
    for weight in (1e-9, weights[name]):
        (run,) = quick_train(None, BetaVAE(beta=0.1), steps=100, batch=16, **{name: weight})
        found.append(run.log[-1][name])
    assert found[1] < 0.7 * found[0]


# Specs and commands


def test_specs_record_only_weights_above_zero() -> None:
    spec = RunSpec(BetaVAE(), "toy")
    assert not set(ALL) & set(spec.to_dict())
    assert spec.id == RunSpec(BetaVAE(), "toy", **dict.fromkeys(ALL, 0)).id
    changed = RunSpec(BetaVAE(), "toy", hessian_penalty=0.1)
    assert changed.to_dict()["hessian_penalty"] == 0.1
    assert (changed.id, changed.stack_key()) != (spec.id, spec.stack_key())
    assert RunSpec.from_dict(changed.to_dict()) == changed
    assert "hessian_penalty=0.1" in run_labels([spec, changed])[changed.id]


def test_the_decoder_is_computed_in_float32() -> None:
    """In bf16, only the convolutions of the encoder are reduced."""
    (run,) = ub.train("vae", "sprites", steps=2, batch=4, precision="bf16", hessian_penalty=1.0, quiet=True)
    reduced = {name.partition(".")[0]: layer.reduced for name, layer in run.net.named_modules() if "Conv" in str(layer)
               and hasattr(layer, "reduced")}  # fmt: skip
    assert reduced == {"encoder": True, "decoder": False}


def test_held_out_examples_have_the_terms() -> None:
    (run,) = ub.train("vae", "toy", steps=4, batch=4, validation=0.2, sparse_jacobian=1.0, quiet=True)
    assert run.log[-1]["validation.sparse_jacobian"] > 0


def test_a_method_without_a_decoder_is_rejected() -> None:
    with pytest.raises(UserError, match="PCL has none"):
        ub.train(PCL(), "toy", steps=1, sparse_jacobian=1.0, quiet=True)
    with pytest.raises(UserError, match="sparse_jacobian"):
        ub.train("vae", "toy", steps=1, sparse_jacobian=-1.0, quiet=True)


def test_a_decoder_that_warps_images_is_accepted() -> None:
    (run,) = ub.train(UVITAE(), "sprites", steps=1, batch=2, latents=4, net="vitae_mlp_half", **ALL, quiet=True)
    assert all(name in run.log[-1] for name in ALL)


def test_flag(tmp_path: Path) -> None:
    out = tmp_path / "runs"
    assert not unbraid("train", "vae", *FAST_TRAINING, "--hessian-penalty", "0,0.5", "--out", out)
    assert sorted(run.spec.hessian_penalty for run in ub.load_runs(out)) == [0, 0.5]


def test_entry_of_a_study(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text('data = "toy"\nsparse_jacobian = 0.5\n[[method]]\nname = "vae"\n')
    assert [run.spec.sparse_jacobian for run in find_study(str(path))()] == [0.5]
