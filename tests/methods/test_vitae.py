"""U-VITAE and C-VITAE compared with hand calculations and special cases, and their codes and traversals."""

from __future__ import annotations

import math
from typing import cast

import pytest
import torch
from torch import Tensor, nn

import unbraid as ub
from support.engine_laws import (
    assert_every_parameter_learns,
    assert_stack_equals_single_runs,
    assert_vmap_equals_one_by_one,
    make_stack,
    vary_hyperparameters,
)
from unbraid.data.dataset import FactorData
from unbraid.distributions import LIKELIHOODS, Gaussian
from unbraid.errors import UserError
from unbraid.methods import CVITAE, UVITAE, Method
from unbraid.methods.method import Batch
from unbraid.nets.mlp import mlp
from unbraid.nets.registry import NETS
from unbraid.nets.vitae import VitaeNet
from unbraid.noise import Noise
from unbraid.runs.network import build_net
from unbraid.runs.spec import RunSpec

VARIANTS = [
    UVITAE(transform="affine"),
    CVITAE(transform="affine_decomposed"),
    CVITAE(transform="cpab", nx=1, ny=2, flow_steps=4),
    UVITAE(samples=3),
    CVITAE(samples=2, perspective=1),
    CVITAE(bound="none", perspective_hidden1=5, perspective_hidden2=7),
]
each_variant = pytest.mark.parametrize("method", VARIANTS, ids=str)


def build_vitae(method: Method, data: FactorData, likelihood: str = "bernoulli") -> VitaeNet:
    spec = RunSpec(method, data.name, latents=4, net="mlp", likelihood=likelihood)
    return cast(VitaeNet, build_net(spec, data.shape, mlp))


def make_perspective_identity(net: VitaeNet) -> VitaeNet:
    """Set the weights such that every perspective is the identity, and return the network."""
    last = [layer for layer in net.decoder.perspective.modules() if isinstance(layer, nn.Linear)][-1]
    with torch.no_grad():
        last.weight.zero_()
        last.bias.zero_()
    return net


def make_noise(stream: int = 1) -> Noise:
    return Noise.from_seed(torch.tensor(3), torch.tensor(0), stream)


def compute_loss(
    method: Method, net: VitaeNet, x: Tensor, step: float = 0.0, steps: int = 0
) -> tuple[float, dict[str, float]]:
    loss, terms = method.objective(net, Batch(x, 48, None, steps), make_noise(), torch.tensor(step))
    return float(loss.detach()), {name: float(value.detach()) for name, value in terms.items()}


@each_variant
def test_stack_equals_single_runs(method: Method, glyphs: FactorData) -> None:
    assert_stack_equals_single_runs(vary_hyperparameters(method), glyphs)


@each_variant
def test_vmap_equals_one_by_one(method: Method, glyphs: FactorData) -> None:
    assert_vmap_equals_one_by_one(vary_hyperparameters(method), glyphs)


@each_variant
def test_every_parameter_learns(method: Method, glyphs: FactorData) -> None:
    assert_every_parameter_learns(method, glyphs)


@pytest.mark.parametrize("likelihood", ["bernoulli", "gaussian", "normal"])
@pytest.mark.parametrize("method", [UVITAE(), CVITAE()], ids=str)
def test_with_identity_perspective_it_is_a_vae(method: Method, likelihood: str, glyphs: FactorData) -> None:
    """Only the appearance is decoded, and the KL is that of all latents."""
    net, x = make_perspective_identity(build_vitae(method, glyphs, likelihood)), glyphs.batch(torch.arange(8))
    loss, terms = compute_loss(method, net, x)
    draws = make_noise()
    q_p = Gaussian(*net.encoder.perspective(x).chunk(2, 1))
    q_p.sample(draws)
    q_a = Gaussian(*net.encoder.appearance(x).chunk(2, 1))
    z = q_a.sample(draws)
    mean = LIKELIHOODS[likelihood].mean(net.decoder.appearance(z))
    rec = LIKELIHOODS[likelihood].nll(x, LIKELIHOODS[likelihood].output(mean)).mean()
    kl = (q_a.kl().sum(1) + q_p.kl().sum(1)).mean()
    assert terms["rec"] == pytest.approx(float(rec.detach()), rel=1e-5)
    assert terms["kl"] == pytest.approx(float(kl.detach()), rel=1e-5)
    assert terms["kl"] == pytest.approx(terms["kl_appearance"] + terms["kl_perspective"])
    assert loss == pytest.approx(terms["rec"] + terms["kl"], rel=1e-6)


def test_c_vitae_encodes_the_appearance_after_undoing_the_perspective(glyphs: FactorData) -> None:
    """C-VITAE encodes the image after the inverse transformation. U-VITAE encodes the image itself."""
    x = glyphs.batch(torch.arange(6))
    conditional, free = build_vitae(CVITAE(), glyphs), build_vitae(UVITAE(), glyphs)
    free.load_state_dict(conditional.state_dict())
    with torch.no_grad():
        for net in (conditional, free):
            net.decoder.perspective[-1].bias.copy_(torch.tensor([0.1, 0.2, -0.1, 0.0, 0.1, 0.2]))
        z = conditional.encode_perspective(x).mean
        gamma = conditional.decoder.perspective(z)
        undone = conditional.decoder.transformer.backward(x, gamma)
        appearance = conditional.encode(x).mean[:, :2]
        torch.testing.assert_close(appearance, conditional.encoder.appearance(undone).chunk(2, 1)[0])
        torch.testing.assert_close(free.encode(x).mean, free.encoder(x).chunk(2, 1)[0])
        assert not torch.allclose(appearance, free.encode(x).mean[:, :2], atol=1e-3)
        torch.testing.assert_close(conditional.encode(x).mean[:, 2:], free.encode(x).mean[:, 2:])


def test_decoded_images_are_warped_appearances(glyphs: FactorData) -> None:
    net = build_vitae(CVITAE(), glyphs)
    with torch.no_grad():
        net.decoder.perspective[-1].bias[2] = 0.4
        z = torch.randn(5, 4)
        upright, gamma = net.decoder.decode_appearance(z[:, :2]), net.decoder.perspective(z[:, 2:])
        warped = net.decoder.transformer.forward(upright, gamma)
        torch.testing.assert_close(net.decode(z), warped.clamp(1e-5, 1 - 1e-5), rtol=1e-4, atol=1e-6)
        x = glyphs.batch(torch.arange(5))
        p = warped.clamp(1e-5, 1 - 1e-5).double()
        by_hand = -(x * p.log() + (1 - x) * (1 - p).log()).flatten(1).sum(1)
        torch.testing.assert_close(net.nll(x, z).double(), by_hand, rtol=1e-4, atol=1e-3)
        assert not torch.allclose(warped, upright, atol=1e-2)


@pytest.mark.parametrize(
    ("warmup", "step", "weight"),
    [(0.5, 0, 0.0), (0.5, 25, 0.5), (0.5, 50, 1.0), (0.5, 99, 1.0), (0.0, 0, 1.0), (1.0, 75, 0.75)],
)
def test_warmup(warmup: float, step: int, weight: float, glyphs: FactorData) -> None:
    """The factor on the KL term rises linearly during the warmup. The training has 100 steps."""
    method = UVITAE(warmup=warmup)
    loss, terms = compute_loss(method, build_vitae(method, glyphs), glyphs.batch(torch.arange(4)), step, 100)
    assert terms["weight"] == pytest.approx(weight)
    assert loss == pytest.approx(terms["rec"] + weight * terms["kl"], rel=1e-5)


def test_batches_contain_the_total_number_of_steps(glyphs: FactorData) -> None:
    s = make_stack([UVITAE()], glyphs)
    for _ in range(26):
        s.advance()
    assert dict(zip(s.terms, s.last[0].tolist(), strict=True))["weight"] == pytest.approx(25 / 50)


def test_importance_weighted_bound_by_hand(glyphs: FactorData) -> None:
    """The samples of one example are consecutive rows, and each bound uses the samples of one example."""
    method, x = CVITAE(samples=4, warmup=0.0), glyphs.batch(torch.arange(3))
    net = build_vitae(method, glyphs)
    loss, _ = compute_loss(method, net, x)
    z, ratio, _ = method.infer(net, x.repeat_interleave(4, 0), make_noise())
    w = (-net.nll(x.repeat_interleave(4, 0), z) - ratio).detach()
    by_hand = [math.log(sum(math.exp(v - float(w.max())) for v in w[4 * i : 4 * i + 4].tolist()) / 4) for i in range(3)]
    assert loss == pytest.approx(-(sum(by_hand) / 3 + float(w.max())), rel=1e-5)
    assert loss <= float(-w.mean()) + 1e-4


def test_log_ratio_averages_to_the_kl() -> None:
    q = Gaussian(torch.full((1, 2), 0.7), torch.full((1, 2), -1.0))
    every = Gaussian(q.mean.expand(200_000, 2), q.logvar.expand(200_000, 2))
    z = every.sample(make_noise())
    assert float(every.log_ratio(z).mean()) == pytest.approx(float(q.kl().mean()), abs=5e-3)


def test_invalid_settings_raise(toy: FactorData, glyphs: FactorData) -> None:
    with pytest.raises(UserError, match=r"needs images. Got toy with examples of shape \(16,\)"):
        ub.train(CVITAE(), toy, steps=1, quiet=True)
    with pytest.raises(ValueError, match=r"more latents than the 2 for the perspective\. Got 2"):
        ub.train(CVITAE(), glyphs, steps=1, latents=2, net="mlp", quiet=True)
    with pytest.raises(ValueError, match="must be one of affine"):
        CVITAE(transform="perspective")  # type: ignore[arg-type]


class OwnLikelihood(nn.Linear):
    """A decoder that computes its own likelihood."""

    def nll(self, x: Tensor, z: Tensor) -> Tensor:
        return (self(z) - x.flatten(1)).square().sum(1)


@pytest.mark.parametrize("method", [UVITAE(), CVITAE()])
def test_decoders_with_a_likelihood_of_their_own_raise(method: UVITAE) -> None:
    """The likelihood of such a decoder is that of its own images, not of the warped ones."""
    with pytest.raises(UserError, match=r"decoder of VITAE are warped.*Got OwnLikelihood instead"):
        method.build(lambda _, n: (nn.Linear(16, 2 * n), OwnLikelihood(n, 16)), (1, 4, 4), 4, "bernoulli")


def test_labels_of_a_traversal_name_both_parts(glyphs: FactorData) -> None:
    method = CVITAE(perspective=1)
    net = build_vitae(method, glyphs).requires_grad_(False)
    q = net.encode(glyphs.batch(torch.arange(20)))
    one = Gaussian(q.mean[:1], q.logvar[:1])
    z, start, labels = method.traversal(net, one, q, torch.linspace(-2, 2, 5))
    columns = [label.column for label in labels]
    assert [label.name for label in labels] == [f"appearance {i}" for i in columns[:3]] + [f"perspective {columns[3]}"]
    assert columns == (z != start).any(1).long().argmax(1).tolist()
    for part in (labels[:3], labels[3:]):
        nats = [label.nats or 0 for label in part]
        assert nats == sorted(nats, reverse=True)


def test_columns_of_codes_have_the_names_of_the_rows_of_traversals() -> None:
    names = ["appearance 0", "appearance 1", "perspective 2", "perspective 3"]
    assert UVITAE(perspective=2).column_names(4) == CVITAE(perspective=2).column_names(4) == names


def test_networks_of_the_paper() -> None:
    """The widths of every layer are those of tables 1, 3 and 4 of the supplement."""

    def widths(part: nn.Module) -> list[int]:
        return [m.out_features for m in part.modules() if isinstance(m, nn.Linear)]

    for name, encoder_widths, decoder_widths in (
        ("vitae_mlp", [128, 64, 4], [64, 64, 784]),
        ("vitae_bodies", [256, 128, 4], [128, 256, 784]),
    ):
        encoder, decoder = NETS[name]((1, 28, 28), 4)
        assert widths(encoder) == encoder_widths * 2
        assert widths(decoder) == decoder_widths
        halved, small = NETS[f"{name}_half"]((1, 28, 28), 2)
        assert widths(halved) == [n // 2 for n in encoder_widths] * 2
        assert widths(small) == [n // 2 for n in decoder_widths[:-1]] + decoder_widths[-1:]
    encoder, decoder = NETS["vitae_conv"]((3, 128, 128), 2)
    kernels = [(m.out_channels, m.kernel_size[0], m.stride[0]) for m in encoder.mean if isinstance(m, nn.Conv2d)]  # type: ignore[union-attr]
    back = [
        (m.out_channels, m.kernel_size[0], m.stride[0]) for m in decoder.modules() if isinstance(m, nn.ConvTranspose2d)
    ]
    assert kernels == [(10, 5, 2), (20, 5, 2), (40, 3, 2)]
    assert back == [(40, 3, 2), (20, 3, 2), (10, 5, 2), (3, 5, 2)]
    assert decoder(encoder(torch.rand(2, 3, 128, 128))[:, :2]).shape == (2, 3, 128, 128)
    with pytest.raises(ValueError, match="multiples of 16"):
        NETS["vitae_conv"]((3, 100, 128), 2)


def test_decoder_of_the_perspective_can_have_the_widths_of_table_3(sprites: FactorData) -> None:
    """Half of the units of table 3 are 64 and 128. By default, they are half of those of table 1."""
    for method, expected in (
        (UVITAE(transform="cpab", nx=2, ny=4), [32, 32, 30]),
        (UVITAE(transform="cpab", nx=2, ny=4, perspective_hidden1=64, perspective_hidden2=128), [64, 128, 30]),
    ):
        decoder = build_vitae(method, sprites).decoder.perspective
        assert [m.out_features for m in decoder.modules() if isinstance(m, nn.Linear)] == expected


def test_unbounded_diffeomorphic_maps_are_equation_3(sprites: FactorData) -> None:
    """Without bounds the map is the matrix exponential of the parameters themselves. The default is bounded."""
    gamma = 2 * torch.randn(7, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    generator = torch.cat([gamma.unflatten(1, (2, 3)), torch.zeros(7, 1, 3)], 1)
    found = UVITAE(bound="none").transformer()
    expected = torch.linalg.matrix_exp(generator)[:, :2]
    torch.testing.assert_close(found.matrix(gamma), expected)  # type: ignore[attr-defined]
    inverse = torch.linalg.matrix_exp(-generator)[:, :2]
    torch.testing.assert_close(found.inverse_matrix(gamma), inverse)  # type: ignore[attr-defined]
    assert not torch.allclose(UVITAE().transformer().matrix(gamma), expected)  # type: ignore[attr-defined]


def test_new_fields_of_vitae_keep_ids() -> None:
    """The ids were computed before the fields existed."""
    assert RunSpec(UVITAE(), "sprites").id == "1a9470dad7af"
    assert RunSpec(CVITAE(), "sprites").id == "2b82069dcd03"
    assert RunSpec(UVITAE(bound="none"), "sprites").id != "1a9470dad7af"


def test_normal_likelihood_by_hand() -> None:
    x, mean = torch.tensor([[0.2, 0.9]]), torch.tensor([[0.0, 1.0]])
    by_hand = sum(0.5 * (d * d / 0.1 + math.log(2 * math.pi * 0.1)) for d in (0.2, -0.1))
    assert float(LIKELIHOODS["normal"].nll(x, mean)) == pytest.approx(by_hand, rel=1e-6)
