"""Which networks and optimisers kernels take over, and that all others stay as they are and train."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from torch import Tensor, nn

from unbraid.accel.adam import Adam
from unbraid.accel.layers import Conv, ConvTranspose, Flatten
from unbraid.methods import VAE, Method
from unbraid.methods.method import Hyper
from unbraid.nets.conv import locatello
from unbraid.nets.mlp import mlp
from unbraid.nets.vae import Pair, PairBuilder
from unbraid.runs.spec import RunSpec
from unbraid.training.stack import Stack

pytest.importorskip("triton", reason="Triton is not installed here")

from support.fused_stacks import (
    ALL,
    SmallFactorVAE,
    both,
    deep,
    hidden,
    images,
    narrow,
    same_gradients,
    same_steps,
    shared,
    single,
    stack,
    tiny,
)
from unbraid.training.fused.dense import dense_layers
from unbraid.training.fused.networks import plan_decoder, plan_dense, plan_encoder

pytestmark = pytest.mark.usefixtures("large_tiles", "poisoned")

# Networks that stay as they are


def sixteen(shape: tuple[int, ...], latents: int) -> Pair:
    return locatello((1, 16, 16), latents)


def ordinary(shape: tuple[int, ...], latents: int) -> Pair:
    """A user's own layers of PyTorch."""
    encoder = [nn.Conv2d(1, 4, 4, 2, 1), nn.ReLU(), nn.Conv2d(4, 4, 4, 2, 1), nn.ReLU(), nn.Flatten()]
    decoder = [nn.Linear(latents, 256), nn.ReLU(), nn.Unflatten(1, (4, 8, 8)), nn.ConvTranspose2d(4, 4, 4, 2, 1)]
    return nn.Sequential(*encoder, nn.Linear(256, 2 * latents)), nn.Sequential(
        *decoder, nn.ReLU(), nn.ConvTranspose2d(4, 1, 4, 2, 1)
    )


def other_widths(shape: tuple[int, ...], latents: int) -> Pair:
    """The layers that have kernels, 16 and 48 wide."""
    encoder = [Conv(1, 16, 4), nn.ReLU(), Conv(16, 48, 4), nn.ReLU(), Flatten(), nn.Linear(48 * 64, 2 * latents)]
    decoder = [nn.Linear(latents, 48 * 64), nn.ReLU(), nn.Unflatten(1, (48, 8, 8)), ConvTranspose(48, 16, 4), nn.ReLU()]
    return nn.Sequential(*encoder), nn.Sequential(*decoder, ConvTranspose(16, 1, 4))


def tanh(shape: tuple[int, ...], latents: int) -> Pair:
    """Other activations."""
    encoder, decoder = tiny(shape, latents)
    return nn.Sequential(*list(encoder)[:1], nn.Tanh(), *list(encoder)[2:]), nn.Sequential(*decoder, nn.Tanh())


def upsampled(shape: tuple[int, ...], latents: int) -> Pair:
    """A decoder with 2x2 layers, for which there is no kernel, behind an encoder that has them."""
    decoder = [nn.Linear(latents, hidden(32)), nn.ReLU(), nn.Unflatten(1, (32, 8, 8)), ConvTranspose(32, 32, 2)]
    return tiny(shape, latents)[0], nn.Sequential(*decoder, nn.ReLU(), ConvTranspose(32, 1, 4))


@pytest.mark.parametrize(
    ("builder", "side", "copied"),
    [
        (sixteen, 16, ()),
        (mlp, 32, ()),
        (ordinary, 32, ()),
        (other_widths, 32, ()),
        (tanh, 32, ()),
        (upsampled, 32, ("encoder.row",)),
    ],
    ids=["sixteen", "mlp", "ordinary", "other widths", "tanh", "upsampled"],
)
def test_other_networks_stay_as_they_are_and_train(builder: PairBuilder, side: int, copied: tuple[str, ...]) -> None:
    """What has no kernels is left alone, wholly or in part, and trains as in a plain stack."""
    plain, fused = both(builder, [VAE()] * 2, images(1, side))
    assert fused.storage.copied == copied
    same_gradients(plain, fused)
    same_steps(plain, fused)


def test_a_critic_is_fused_beside_plain_networks() -> None:
    """Children are replaced one by one."""
    plain, fused = both(mlp, [SmallFactorVAE()] * 2, images())
    assert fused.storage.copied == ("critic.row",)
    same_gradients(plain, fused)
    same_steps(plain, fused)


class Shifted(nn.ReLU):
    """A user's own activation on PyTorch's."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) - 1


class Scaled(nn.Linear):
    """A user's own layer on PyTorch's: its forward pass is another."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def dense(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), *layers, nn.Linear(8, 2))


TWICE = nn.Linear(8, 8)


@pytest.mark.parametrize(
    "net",
    [
        dense(nn.Dropout(0.1)),
        dense(nn.ReLU(), nn.Dropout(0.1)),
        dense(nn.BatchNorm1d(8)),
        dense(nn.Tanh()),
        dense(nn.ReLU(), nn.ReLU()),
        dense(nn.Linear(8, 8, bias=False)),
        dense(Scaled(8, 8)),
        dense(Shifted()),
        dense(nn.LeakyReLU(-0.1)),
        dense(nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))),
        dense(nn.utils.spectral_norm(nn.Linear(8, 8))),
        dense(TWICE, TWICE),
        nn.Sequential(nn.ReLU(), nn.Linear(4, 2)),
        nn.Linear(4, 2),
    ],
    ids=lambda net: " ".join(type(layer).__name__ for layer in net._modules.values()) or "bare",
)
def test_dense_layers_that_are_not_recognised(net: nn.Module) -> None:
    """Anything but linear layers with biases and at most a (leaky) ReLU after each stays as it is."""
    assert plan_dense(net) is None


def test_dense_layers_that_are() -> None:
    """Slopes are read off: 0 for a ReLU, 1 for nothing."""
    found = dense_layers(list(dense(nn.ReLU(), nn.Linear(8, 8), nn.LeakyReLU(0.3))))
    assert found is not None
    assert [(layer.in_features, layer.out_features, slope) for layer, slope in found] == [
        (4, 8, 0.0),
        (8, 8, 0.3),
        (8, 2, 1.0),
    ]


@pytest.mark.parametrize("shape", [(1, 16, 16), (2, 32, 32), (1, 32, 64), (1, 48, 48), (16,)], ids=str)
def test_images_that_are_not_recognised(shape: tuple[int, ...]) -> None:
    """Kernels exist for one or three channels and sides 32 to 256."""
    encoder, decoder = tiny((shape[0] if len(shape) == 3 else 1, 32, 32), 3)
    assert plan_encoder(encoder, shape) is None
    assert plan_decoder(decoder, shape) is None


class Residual(nn.Sequential):
    """A user's own container: its forward pass is another."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).flip(1)


def test_networks_with_other_parts_are_not_recognised() -> None:
    """Dropout, a sigmoid at the end, a missing bias, an own container: not these networks."""
    encoder, decoder = (list(part) for part in tiny((1, 32, 32), 3))
    shape = (1, 32, 32)
    assert plan_encoder(nn.Sequential(*encoder), shape) is not None
    assert plan_decoder(nn.Sequential(*decoder), shape) is not None
    for layers in ([*encoder, nn.Dropout(0.1)], [nn.Dropout2d(0.1), *encoder], encoder[:5], encoder[:4]):
        assert plan_encoder(nn.Sequential(*layers), shape) is None
    for layers in ([*decoder, nn.Sigmoid()], [*decoder[:1], *decoder[2:]], decoder[2:], [nn.Dropout(0.1), *decoder]):
        assert plan_decoder(nn.Sequential(*layers), shape) is None
    assert plan_encoder(Residual(*encoder), shape) is None
    assert plan_decoder(Residual(*decoder), shape) is None
    assert plan_encoder(nn.Identity(), shape) is None
    assert plan_decoder(nn.Identity(), shape) is None


# Optimisers


@dataclass(frozen=True)
class TwoPaces(VAE):
    """Adam with other constants in the encoder's first layer, so that the encoder is no single stretch."""

    def adam(self, parameter: str, learning_rate: Hyper) -> Adam:
        return Adam(learning_rate, 0.5, 0.9) if parameter.startswith("encoder.0.") else Adam(learning_rate)


@dataclass(frozen=True)
class OwnRates(VAE):
    """A rate of the method's own making for every parameter: biases learn three times as fast."""

    def adam(self, parameter: str, learning_rate: Hyper) -> Adam:
        return Adam(learning_rate * (3.0 if parameter.endswith("bias") else 1.0))


@dataclass(frozen=True)
class NoEpsilon(VAE):
    """Adam without epsilon in the decoder."""

    def adam(self, parameter: str, learning_rate: Hyper) -> Adam:
        return Adam(learning_rate, epsilon=0.0 if parameter.startswith("decoder.") else 1e-8)


@pytest.mark.parametrize(
    ("method", "copied"),
    [(TwoPaces(), ("decoder.row",)), (OwnRates(), ())],
    ids=["two paces", "own rates"],
)
def test_modules_of_several_optimisers_stay_as_they_are(method: Method, copied: tuple[str, ...]) -> None:
    """A module is fused only if one set of constants serves all of it; either way each parameter gets its own."""
    plain, fused = both(tiny, [method] * 2, images())
    assert fused.storage.copied == copied
    same_steps(plain, fused)


def test_a_module_without_epsilon_stays_as_it_is() -> None:
    """Padding could not bear it: its moments are zero."""
    assert stack(tiny, True, [NoEpsilon()]).storage.copied == ("encoder.row",)


def test_full_precision_is_never_fused() -> None:
    """Kernels multiply in less: a float32 stack keeps its networks, and only its Adam is a kernel."""
    specs = [RunSpec(VAE(), "noise", seed, 9, 2, 1e-3, 3, "own:net") for seed in (0, 1)]
    plain, kernels = (Stack(specs, images(), tiny, vmapped=True, fused=fused) for fused in (False, True))
    assert kernels.storage.copied == ()
    same_steps(plain, kernels)


def test_rates_of_a_methods_own_making_are_kept_apart() -> None:
    """Adam's first step is the rate long: parameters move by theirs, in plain and fused stacks."""
    for fused in (False, True):
        s = stack(tiny, fused, [OwnRates()], rate=1e-3)
        before = s.layout.unflatten(s.storage.restore(s.rows)[0])
        s.advance()
        for name, value in s.layout.unflatten(s.storage.restore(s.rows)[0]).items():
            pace = float((value - before[name]).abs().max())
            assert pace == pytest.approx(3e-3 if name.endswith("bias") else 1e-3, rel=1e-2), (fused, name)


# Networks of these layers


def test_networks_with_one_activation_module_for_all() -> None:
    """Fused or not, they compute what they say."""
    same_gradients(*both(shared, [VAE()] * 2))


@pytest.mark.parametrize("builder", [single, narrow, deep], ids=["single", "narrow", "deep"])
def test_own_networks_of_these_layers_are_fused(builder: PairBuilder) -> None:
    """Any number of layers, 32 or 64 wide, not the presets alone."""
    plain, fused = both(builder, [VAE()] * 2, images(3))
    assert fused.storage.copied == ALL
    same_gradients(plain, fused)
