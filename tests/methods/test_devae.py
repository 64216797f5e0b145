"""DeVAE: its loss as a sum of beta-VAEs, its rescalings, and what the last space does to the first."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from support.training import quick_train
from unbraid.data.dataset import FactorData
from unbraid.distributions import Gaussian
from unbraid.errors import UserError
from unbraid.methods import Batch, BetaVAE, DeVAE
from unbraid.methods.devae import Rescalings, SharedDecoder
from unbraid.nets.mlp import mlp
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise


class SpaceDecoder(nn.Module):
    """The decoder of one space."""

    def __init__(self, shared: SharedDecoder, space: int) -> None:
        super().__init__()
        self.shared, self.space = shared, space

    def forward(self, z: Tensor) -> Tensor:
        return self.shared.inner(torch.cat([z, self.shared.embedding[self.space].repeat(len(z), 1)], 1))  # type: ignore[no-any-return]


class SpaceEncoder(nn.Module):
    """The encoder of one space."""

    def __init__(self, net: VAENet, space: int) -> None:
        super().__init__()
        self.net, self.space = net, space

    def forward(self, x: Tensor) -> Tensor:
        q = self.net.rescalings(self.net.encode(x))[self.space]  # type: ignore[operator]
        return torch.cat([q.mean, q.logvar], 1)


def test_weights_rise_in_equal_ratios() -> None:
    assert DeVAE().betas() == [1.0, 40.0]
    assert DeVAE(beta=1.0, beta_last=100.0, spaces=3).betas() == pytest.approx([1.0, 10.0, 100.0])


@pytest.mark.parametrize("rescaled", [False, True])
def test_loss_is_a_sum_of_beta_vaes(rescaled: bool, toy: FactorData) -> None:
    """Each term is the loss of a beta-VAE with the encoder and the decoder of its space and the same noise."""
    torch.manual_seed(0)
    method = DeVAE(beta=0.5, beta_last=8.0, scale=0.7, spaces=3)
    net = method.build(mlp, (16,), 4, "gaussian").requires_grad_(False)
    if rescaled:
        for parameter in net.rescalings.parameters():  # type: ignore[union-attr]
            parameter.normal_()
    batch = Batch(toy.batch(torch.arange(6)), len(toy))
    noise, total = Noise(torch.tensor(0)), torch.zeros(())
    for space, beta in enumerate((0.5, 2.0, 8.0)):
        assert isinstance(net.decoder, SharedDecoder)
        one = VAENet(SpaceEncoder(net, space), SpaceDecoder(net.decoder, space), "gaussian")
        loss, terms = BetaVAE(beta=beta).objective(one, batch, noise, torch.tensor(0.0))
        total = total + 0.7**space * loss
    found, logged = method.objective(net, batch, Noise(torch.tensor(0)), torch.tensor(0.0))
    torch.testing.assert_close(found, total)
    torch.testing.assert_close(logged["kl_last"], terms["kl"])
    torch.testing.assert_close(logged["rec_last"], terms["rec"])


def test_spaces_are_rescaled_copies() -> None:
    q = Gaussian(torch.randn(5, 3), torch.randn(5, 3))
    rescalings = Rescalings(2, 3).requires_grad_(False)
    assert all(torch.equal(p.mean, q.mean) and torch.equal(p.logvar, q.logvar) for p in rescalings(q))
    rescalings.log_scale.copy_(torch.tensor([[0.0, 1.0, -1.0], [0.5, 0.5, 0.5]]))
    rescalings.logvar_shift.copy_(torch.tensor([[1.0, 0.0, 0.0], [0.0, -2.0, 0.0]]))
    last = rescalings(q)[-1]
    torch.testing.assert_close(last.mean, q.mean * torch.tensor([0.5, 1.5, -0.5]).exp())
    torch.testing.assert_close(last.logvar, q.logvar + torch.tensor([1.0, -2.0, 0.0]))


def test_codes_and_reconstructions_use_the_first_space(toy: FactorData) -> None:
    (run,) = quick_train(None, DeVAE(), steps=5)
    x, decoder = toy.images(slice(0, 4)), run.net.decoder
    assert isinstance(decoder, SharedDecoder)
    z = run.encode(x)
    torch.testing.assert_close(z, run.net.encode(x).mean)
    with torch.no_grad():
        every = decoder.decode_all(z.expand(2, -1, -1)).chunk(2)
    torch.testing.assert_close(run.decode(z), every[0])
    assert not torch.allclose(every[0], every[1])


def test_the_first_space_keeps_more_information_than_the_last() -> None:
    """A large weight in the last space shrinks its KL. The first space is then also less informative than without."""
    found = []
    for beta_last in (0.1, 5.0):
        method = DeVAE(beta=0.1, beta_last=beta_last)
        (run,) = quick_train(None, method, steps=200, learning_rate=3e-3, batch=32, latents=4)
        assert run.log
        found.append(run.log[-1])
    assert found[1]["kl_last"] < 0.7 * found[1]["kl"]
    assert found[1]["rec"] < found[1]["rec_last"]
    assert found[1]["kl_last"] < 0.7 * found[0]["kl_last"]


class OwnLikelihood(nn.Linear):
    """A decoder with a likelihood of its own."""

    def nll(self, x: Tensor, z: Tensor) -> Tensor:
        return self(z).square().sum(1)


def test_decoders_with_their_own_likelihood_raise() -> None:
    with pytest.raises(UserError, match="must not compute its own likelihood"):
        DeVAE().build(lambda _, n: (nn.Linear(16, 2 * n), OwnLikelihood(n, 16)), (16,), 3, "normal")
