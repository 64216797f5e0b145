"""Quantised autoencoders: codes lie on their grids, and gradients pass through the quantisation unchanged."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from support.engine_laws import make_stack
from support.training import quick_train
from unbraid.data.dataset import FactorData
from unbraid.methods import FSQ, QLAE, Batch
from unbraid.methods.quantised import QuantisedAE, nearest_values, straight_through
from unbraid.nets.mlp import mlp
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise

METHODS: dict[str, QuantisedAE] = {"fsq": FSQ(levels=5), "qlae": QLAE(count=4)}


def nearest_by_loops(z: Tensor, values: Tensor) -> list[list[float]]:
    return [
        [min(row.tolist(), key=lambda v, x=float(x): abs(v - x)) for x, row in zip(example, values, strict=True)]  # type: ignore[misc]
        for example in z
    ]


def test_nearest_values_equal_their_loops() -> None:
    g = torch.Generator().manual_seed(0)
    z, values = torch.randn(9, 3, generator=g), torch.randn(3, 6, generator=g)
    found = nearest_values(z, values)
    assert found.tolist() == nearest_by_loops(z, values)
    torch.testing.assert_close(nearest_values(z.view(3, 3, 3), values), found.view(3, 3, 3))


def test_gradient_passes_through_unchanged() -> None:
    z = torch.randn(4, 3, requires_grad=True)
    values = torch.linspace(-1, 1, 5).repeat(3, 1)
    quantised = straight_through(z, nearest_values(z, values))
    torch.testing.assert_close(quantised, nearest_values(z, values))
    weight = torch.randn(4, 3)
    (gradient,) = torch.autograd.grad((weight * quantised).sum(), z)
    assert torch.equal(gradient, weight)


@pytest.mark.parametrize("name", METHODS)
def test_codes_traversals_and_reconstructions_lie_on_the_grid(name: str, toy: FactorData) -> None:
    """Every code is one of a few values of its latent, also after training and in traversals."""
    (run,) = quick_train(None, METHODS[name], steps=30)
    x = toy.images(slice(0, 200))
    codes, before = run.encode(x), run.encode(x, "continuous")
    values = METHODS[name].values(run.net, before)
    torch.testing.assert_close(codes, nearest_values(before, values))
    assert not torch.equal(codes, before)
    q = run.posterior(x)
    z, start, _ = METHODS[name].traversal(run.net, run.net.encode(x[:1]), q, torch.linspace(-2, 2, 7))
    torch.testing.assert_close(z, nearest_values(z, values))
    torch.testing.assert_close(start, codes[:1])


@pytest.mark.parametrize("levels", [2, 5, 12])
def test_grid_of_fsq_is_equally_spaced(levels: int) -> None:
    values = FSQ(levels=levels).values(VAENet(*mlp((4,), 3)), torch.zeros(1, 3))
    assert values.shape == (3, levels)
    torch.testing.assert_close(values.diff(dim=1), torch.full((3, levels - 1), 2 / (levels - 1)))
    assert (float(values.min()), float(values.max())) == (-1, 1)


def test_terms_of_qlae_by_hand(toy: FactorData) -> None:
    """With weights of 1 and 16 values per example, the loss has 16 times each mean squared distance."""
    method = QLAE(count=3, quantisation=1.0, commitment=1.0)
    net = method.build(mlp, (16,), 3, "gaussian")
    batch = Batch(toy.batch(torch.arange(5)), len(toy))
    loss, terms = method.objective(net, batch, Noise(torch.tensor(0)), torch.tensor(0.0))
    z = net.encode(batch.x).mean.detach()
    distance = (z - torch.tensor(nearest_by_loops(z, torch.linspace(-0.5, 0.5, 3).repeat(3, 1)))).square().mean()
    torch.testing.assert_close(terms["quantisation"], distance)
    torch.testing.assert_close(loss, terms["rec"] + 2 * 16 * distance)


def test_each_term_of_qlae_trains_its_own_parameters(toy: FactorData) -> None:
    """Only the quantisation term has a gradient for the values, and it has none for the encoder."""
    gradients = []
    for weight in (0.0, 1.0):
        stack = make_stack([QLAE(quantisation=weight)], toy)
        gradients.append(stack.layout.unflatten(stack._gradients_one_by_one(torch.tensor(0))[1][0].clone()))
    assert not gradients[0]["codebook.values"].any()
    assert gradients[1]["codebook.values"].any()
    for name in gradients[0]:
        if not name.startswith("codebook."):
            torch.testing.assert_close(gradients[0][name], gradients[1][name], rtol=0, atol=0)


def test_weight_decay_does_not_move_the_values(toy: FactorData) -> None:
    (run,) = quick_train(None, QLAE(count=4, quantisation=0.0), weight_decay=5.0)
    values = torch.linspace(-0.5, 0.5, 4).repeat(3, 1)
    assert torch.equal(run.net.state_dict()["codebook.values"], values)


def test_penalty_of_fsq_by_hand(toy: FactorData) -> None:
    """Means of -5, 1 and 4 exceed 2 by 3, 0 and 2."""
    method = FSQ(saturation=0.5)
    net = method.build(mlp, (16,), 3, "gaussian").requires_grad_(False)
    last = list(net.encoder.modules())[-1]
    assert isinstance(last, torch.nn.Linear)
    last.weight.zero_()
    last.bias.copy_(torch.tensor([-5.0, 1.0, 4.0, 0.0, 0.0, 0.0]))
    batch = Batch(toy.batch(torch.arange(5)), len(toy))
    loss, terms = method.objective(net, batch, Noise(torch.tensor(0)), torch.tensor(0.0))
    assert float(terms["excess"]) == pytest.approx((9 + 4) / 3)
    assert float(loss) == pytest.approx(float(terms["rec"]) + 0.5 * 16 * 13 / 3, rel=1e-5)


@pytest.mark.slow
def test_fsq_does_not_saturate_on_images_with_a_dark_background(sprites: FactorData) -> None:
    (run,) = quick_train(None, FSQ(), data="sprites", steps=200, batch=64, latents=6)
    assert (run.encode(sprites.images(slice(0, None, 7))).std(0) > 0.05).all()
