"""The Commutative VAE: penalties by hand and by loops, its terms, and traversals along single generators."""

from __future__ import annotations

from typing import cast

import pytest
import torch
from torch import Tensor, nn

from support.training import quick_train
from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.methods import Batch, CommutativeVAE
from unbraid.methods.lie_group import GroupDecoder, GroupEncoder, commutator_penalty, hessian_penalty
from unbraid.nets.mlp import mlp
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise
from unbraid.spaces.matrix_exponential import matrix_exponential


def random_generators(d: int = 3, m: int = 4) -> Tensor:
    return torch.randn(d, m, m, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def commuting_generators(d: int = 3, m: int = 4) -> Tensor:
    """Different diagonal matrices in one random basis."""
    basis = random_generators(1, m)[0]
    return basis @ torch.diag_embed(random_generators(d, m)[:, 0]) @ torch.linalg.inv(basis)


def penalties_by_loops(generators: Tensor) -> tuple[float, float]:
    d, m, _ = generators.shape
    a = generators.tolist()
    product = [[[[sum(a[i][r][k] * a[j][k][c] for k in range(m)) for c in range(m)] for r in range(m)]
                for j in range(d)] for i in range(d)]  # fmt: skip
    hessian = commutator = 0.0
    for i in range(d):
        for j in range(d):
            if i != j:
                for r in range(m):
                    for c in range(m):
                        hessian += product[i][j][r][c] ** 2 / d**2
                        commutator += (product[i][j][r][c] - product[j][i][r][c]) ** 2 / d**2
    return hessian, commutator


def test_penalties_equal_their_loops() -> None:
    found = float(hessian_penalty(random_generators())), float(commutator_penalty(random_generators()))
    assert found == pytest.approx(penalties_by_loops(random_generators()), rel=1e-12)


def test_commutator_of_rotations_by_hand() -> None:
    """The commutator for rotations about x and y is the generator of rotations about z, which has two entries of 1.

    The products of the two generators have a single entry of 1.
    """
    x, y = torch.zeros(3, 3), torch.zeros(3, 3)
    x[1, 2], x[2, 1], y[0, 2], y[2, 0] = -1, 1, 1, -1
    generators = torch.stack([x, y])
    assert float(commutator_penalty(generators)) == pytest.approx(2 * 2 / 4)
    assert float(hessian_penalty(generators)) == pytest.approx(2 * 1 / 4)


def test_commuting_generators_have_no_commutator_but_products() -> None:
    generators = commuting_generators()
    assert float(commutator_penalty(generators)) == pytest.approx(0, abs=1e-18)
    assert float(hessian_penalty(generators)) > 0.01


def test_generators_of_separate_blocks_have_no_penalty() -> None:
    generators = torch.zeros(2, 4, 4)
    generators[0, :2, :2], generators[1, 2:, 2:] = random_generators(1, 2)[0], random_generators(2, 2)[1]
    assert float(hessian_penalty(generators)) == float(commutator_penalty(generators)) == 0


def test_penalties_of_one_generator_are_zero() -> None:
    assert float(hessian_penalty(random_generators(1))) == float(commutator_penalty(random_generators(1))) == 0


def decoder_with(generators: Tensor) -> GroupDecoder:
    """A decoder that returns its matrices."""
    decoder = GroupDecoder(nn.Identity(), generators.shape[1], len(generators), 1.0).double()
    with torch.no_grad():
        decoder.generators.copy_(generators)
    return decoder


def test_matrices_of_commuting_generators_are_products_in_any_order() -> None:
    """For other generators, they are not."""
    t = torch.tensor([[0.5, -1.0, 0.7]], dtype=torch.float64)
    for generators, equal in ((commuting_generators(), True), (random_generators(), False)):
        factors = matrix_exponential(t[0, :, None, None] * generators)
        ordered, reverse = torch.linalg.multi_dot([*factors]), torch.linalg.multi_dot([*factors.flip(0)])
        whole = decoder_with(generators).matrices(t).view(4, 4)
        assert torch.allclose(whole, ordered, rtol=1e-9) is equal
        assert torch.allclose(ordered, reverse, rtol=1e-9) is equal


def test_mixed_second_derivatives_are_zero_without_products() -> None:
    """Proposition 2 of the paper. With products, they are not zero, also if the generators commute."""
    blocks = torch.zeros(2, 4, 4, dtype=torch.float64)
    blocks[0, :2, :2], blocks[1, 2:, 2:] = random_generators(1, 2)[0], random_generators(2, 2)[1]
    t = torch.tensor([0.3, -0.6], dtype=torch.float64)
    for generators, zero in ((blocks, True), (commuting_generators(2), False)):
        decoder = decoder_with(generators)
        mixed = torch.func.jacrev(torch.func.jacrev(lambda t, decode=decoder: decode(t[None])[0]))(t)[:, 0, 1]
        assert torch.allclose(mixed, torch.zeros_like(mixed), atol=1e-12) is zero


def network(method: CommutativeVAE) -> VAENet:
    torch.manual_seed(0)
    return method.build(mlp, (16,), 3, "gaussian")


def test_terms_by_hand(toy: FactorData) -> None:
    """The decoder gets the encoder's matrix if `forward` is 1, and the matrix of the latents if it is 0."""
    batch = Batch(toy.batch(torch.arange(6)), len(toy))
    for forward in (0.0, 1.0):
        method = CommutativeVAE(hessian=3.0, commutator=5.0, group=7.0, beta=2.0, forward=forward, initial_scale=0.3)
        net = network(method)
        encoder, decoder = cast(GroupEncoder, net.encoder), cast(GroupDecoder, net.decoder)
        loss, terms = method.objective(net, batch, Noise(torch.tensor(0)), torch.tensor(0.0))
        q, encoded = net.encode(batch.x), encoder.inner(batch.x)
        t = q.sample(Noise(torch.tensor(0)))
        group = torch.linalg.matrix_exp(torch.einsum("bi,ijk->bjk", t, decoder.generators)).flatten(1)
        decoded = decoder.inner(encoded if forward else group)
        wanted = {
            "rec": (decoded - batch.x).square().sum() / 12,
            "kl": 0.5 * (q.mean**2 + q.logvar.exp() - q.logvar - 1).sum() / 6,
            "group": (encoded - group).square().sum() / 6,
            "hessian": torch.tensor(penalties_by_loops(decoder.generators)[0]),
            "commutator": torch.tensor(penalties_by_loops(decoder.generators)[1]),
        }
        torch.testing.assert_close(terms, wanted, rtol=1e-4, atol=1e-5)
        weights = {"rec": 1, "kl": 2, "group": 7, "hessian": 3, "commutator": 5}
        torch.testing.assert_close(loss, torch.stack([w * wanted[name] for name, w in weights.items()]).sum())


def test_share_of_steps_with_the_matrix_of_the_encoder(toy: FactorData) -> None:
    method = CommutativeVAE(forward=0.2)
    net, batch = network(method), Batch(toy.batch(torch.arange(4)), len(toy))
    encoder, decoder = cast(GroupEncoder, net.encoder), cast(GroupDecoder, net.decoder)
    direct = net.likelihood.nll(batch.x, decoder.inner(encoder.inner(batch.x))).mean()
    seeds = torch.arange(1000)
    rec = torch.func.vmap(lambda key: method.objective(net, batch, Noise(key), torch.tensor(0.0))[1]["rec"])(seeds)
    assert float((rec == direct).double().mean()) == pytest.approx(0.2, abs=0.04)  # 3 standard errors


def test_traversals_and_controls_move_one_coordinate(toy: FactorData) -> None:
    """A row of a traversal multiplies the matrix of the example by the exponential of one of commuting generators."""
    (run,) = quick_train(None, CommutativeVAE(), steps=2)
    method, decoder = run.spec.method, cast(GroupDecoder, run.net.decoder)
    with torch.no_grad():
        decoder.generators.copy_(0.3 * torch.diag_embed(random_generators(3, 10)[:, 0]))
    q, positions = run.posterior(toy.batch(torch.tensor([5]))), torch.tensor([-1.0, 0.5])
    found, population = method.traversal(run.net, q, q, positions), run.posterior(toy.batch(torch.arange(8)))
    torch.testing.assert_close(found.start, q.mean)
    for row, label in enumerate(found.labels):
        latent = cast(int, label.column)
        for position, z in zip(positions, found.z[row], strict=True):
            step = torch.linalg.matrix_exp((position - q.mean[0, latent]) * decoder.generators[latent])
            moved = decoder.matrices(q.mean).view(10, 10) @ step
            decoded = run.net.likelihood.mean(decoder.inner(moved.reshape(1, 100)))
            torch.testing.assert_close(run.decode(z[None]), decoded, rtol=1e-3, atol=1e-4)
    controls = method.controls(run.net, q, population)
    assert controls.columns == [0, 1, 2]
    torch.testing.assert_close(controls.to_latents(found.z[0], 0), found.z[0])


def test_training_lowers_the_products_of_generators() -> None:
    logs = []
    for weight in (0.0, 40.0):
        (run,) = quick_train(None, CommutativeVAE(hessian=weight, initial_scale=0.1), steps=200, batch=16)
        logs.append(run.log[-1])
    assert logs[1]["hessian"] < 0.5 * logs[0]["hessian"]


def test_settings_of_the_paper() -> None:
    method = CommutativeVAE()
    assert (method.hessian, method.commutator, method.group, method.forward) == (40.0, 0.0, 0.1, 0.2)
    assert (method.beta, method.matrix_size, method.initial_scale) == (1.0, 10, 1e-3)
    assert CommutativeVAE.swept_field() == "hessian"


@pytest.mark.parametrize("size", [1, 4, 5])
def test_shapes_of_the_networks(size: int) -> None:
    """The encoder of a run has an even number of outputs. If m * m is odd, one of them is not used."""
    net = CommutativeVAE(matrix_size=size).build(mlp, (16,), 3, "gaussian")
    assert cast(GroupEncoder, net.encoder).matrices(torch.zeros(2, 16)).shape == (2, size**2)
    assert cast(GroupDecoder, net.decoder).generators.shape == (3, size, size)
    assert net.encode(torch.zeros(2, 16)).mean.shape == (2, 3)
    assert net.decode(torch.zeros(2, 3)).shape == (2, 16)


class OwnLikelihood(nn.Linear):
    """A decoder that computes its own likelihood."""

    def nll(self, x: Tensor, z: Tensor) -> Tensor:
        return (self(z) - x).square().sum(1)


def test_decoders_that_cannot_be_trained() -> None:
    with pytest.raises(UserError, match=r"takes matrices instead of latents.*Got OwnLikelihood instead"):
        CommutativeVAE().build(lambda shape, d: (nn.Linear(16, 2 * d), OwnLikelihood(d, 16)), (16,), 3, "gaussian")


def test_a_probability_is_at_most_one() -> None:
    with pytest.raises(UserError, match=r"'forward' parameter of CommutativeVAE must be between 0 and 1. Got 5"):
        CommutativeVAE(forward=5)
