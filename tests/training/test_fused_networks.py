"""Tests of which networks and optimisers are computed in kernels. All others are not replaced and train as well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

import pytest
import torch
from torch import Tensor, nn
from torch.func import grad, jvp

from unbraid.accel.adam import Adam
from unbraid.accel.layers import Conv, ConvTranspose, Flatten
from unbraid.errors import UserError
from unbraid.methods import VAE, Method
from unbraid.methods.ice_beem import make_differentiable_twice
from unbraid.methods.method import Batch, Hyper, Loss
from unbraid.nets.conv import locatello
from unbraid.nets.mlp import mlp
from unbraid.nets.vae import Pair, PairBuilder, VAENet
from unbraid.noise import Noise
from unbraid.runs.spec import RunSpec
from unbraid.training.stack import Stack

pytest.importorskip("triton", reason="Triton is not installed here")

from support.fused_stacks import (
    FUSED_ROWS,
    SmallFactorVAE,
    assert_same_gradients,
    assert_same_steps,
    deep_net,
    hidden_units,
    make_stack,
    narrow_net,
    one_layer_net,
    plain_and_fused,
    random_images,
    shared_activation_net,
    tiny_net,
)
from unbraid.training.fused.dense import dense_layers
from unbraid.training.fused.networks import plan_decoder, plan_dense, plan_encoder

pytestmark = pytest.mark.usefixtures("large_tiles", "poisoned")

# Networks without kernels


def net_of_side_16(shape: tuple[int, ...], latents: int) -> Pair:
    """Build a network for images of side 16, for which no kernels exist."""
    return locatello((1, 16, 16), latents)


def pytorch_net(shape: tuple[int, ...], latents: int) -> Pair:
    """Build a network of ordinary PyTorch layers."""
    encoder = [nn.Conv2d(1, 4, 4, 2, 1), nn.ReLU(), nn.Conv2d(4, 4, 4, 2, 1), nn.ReLU(), nn.Flatten()]
    decoder = [nn.Linear(latents, 256), nn.ReLU(), nn.Unflatten(1, (4, 8, 8)), nn.ConvTranspose2d(4, 4, 4, 2, 1)]
    return nn.Sequential(*encoder, nn.Linear(256, 2 * latents)), nn.Sequential(
        *decoder, nn.ReLU(), nn.ConvTranspose2d(4, 1, 4, 2, 1)
    )


def net_of_other_widths(shape: tuple[int, ...], latents: int) -> Pair:
    """Build a network of layers for which kernels exist, but with 16 and 48 channels, for which none exist."""
    encoder = [Conv(1, 16, 4), nn.ReLU(), Conv(16, 48, 4), nn.ReLU(), Flatten(), nn.Linear(48 * 64, 2 * latents)]
    decoder = [nn.Linear(latents, 48 * 64), nn.ReLU(), nn.Unflatten(1, (48, 8, 8)), ConvTranspose(48, 16, 4), nn.ReLU()]
    return nn.Sequential(*encoder), nn.Sequential(*decoder, ConvTranspose(16, 1, 4))


def tanh_net(shape: tuple[int, ...], latents: int) -> Pair:
    """Build a network with activations other than ReLU."""
    encoder, decoder = tiny_net(shape, latents)
    return nn.Sequential(*list(encoder)[:1], nn.Tanh(), *list(encoder)[2:]), nn.Sequential(*decoder, nn.Tanh())


def hooked_net(shape: tuple[int, ...], latents: int) -> Pair:
    """Build a network whose encoder and decoder have hooks of different kinds, which change outputs."""
    encoder, decoder = cast(tuple[nn.Sequential, nn.Sequential], tiny_net(shape, latents))
    encoder[1].register_forward_hook(lambda module, inputs, output: output + 1)
    decoder.register_forward_pre_hook(lambda module, inputs: (2 * inputs[0],))
    return encoder, decoder


class Mirror(Flatten):
    """Mirrors images before it flattens them."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flip(-1))


def mirrored_net(shape: tuple[int, ...], latents: int) -> Pair:
    """Build an encoder with a subclass of `Flatten`, and a decoder for which kernels exist."""
    encoder, decoder = tiny_net(shape, latents)
    return nn.Sequential(*[Mirror() if isinstance(m, nn.Flatten) else m for m in encoder.children()]), decoder


def net_with_2x2_decoder(shape: tuple[int, ...], latents: int) -> Pair:
    """Build a decoder with a 2x2 layer, for which no kernels exist, and an encoder for which kernels exist."""
    decoder = [nn.Linear(latents, hidden_units(32)), nn.ReLU(), nn.Unflatten(1, (32, 8, 8)), ConvTranspose(32, 32, 2)]
    return tiny_net(shape, latents)[0], nn.Sequential(*decoder, nn.ReLU(), ConvTranspose(32, 1, 4))


@pytest.mark.parametrize(
    ("builder", "side", "copied"),
    [
        (net_of_side_16, 16, ()),
        (mlp, 32, ()),
        (pytorch_net, 32, ()),
        (net_of_other_widths, 32, ()),
        (tanh_net, 32, ()),
        (hooked_net, 32, ()),
        (mirrored_net, 32, ("decoder.row",)),
        (net_with_2x2_decoder, 32, ("encoder.row",)),
    ],
    ids=["side 16", "mlp", "pytorch layers", "other widths", "tanh", "hooks", "subclass of Flatten", "2x2 decoder"],
)
def test_networks_without_kernels_train_unchanged(builder: PairBuilder, side: int, copied: tuple[str, ...]) -> None:
    """Parts for which no kernels exist are not replaced, and train as in a plain stack."""
    plain, fused = plain_and_fused(builder, [VAE()] * 2, random_images(1, side))
    assert fused.storage.copied == copied
    assert_same_gradients(plain, fused)
    assert_same_steps(plain, fused)


@dataclass(frozen=True)
class Differentiating(VAE):
    """A VAE with a penalty on a derivative of the means with respect to x, along a vector of ones or as a gradient."""

    directional: bool = False

    def extend(self, net: VAENet, latents: int) -> VAENet:
        make_differentiable_twice(net.encoder, smooth=False)
        return net

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        loss, terms = super().objective(net, batch, noise, step)

        def summed_means(x: Tensor) -> Tensor:
            return net.encode(x).mean.square().sum()

        if self.directional:
            found = jvp(summed_means, (batch.x,), (torch.ones_like(batch.x),))[1]
        else:
            found = grad(summed_means)(batch.x)
        return loss + found.square().mean(), terms


@dataclass(frozen=True)
class DifferentiatingWithoutKernels(Differentiating):
    """The same method, whose encoder is computed with ordinary operations."""

    networks_without_kernels: ClassVar[tuple[str, ...]] = ("encoder",)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # from torch.func.jvp
@pytest.mark.parametrize("directional", [False, True])
def test_an_objective_with_derivatives_needs_networks_without_kernels(directional: bool) -> None:
    stack = make_stack(one_layer_net, True, [Differentiating(directional=directional)] * 2)
    with pytest.raises(UserError, match="networks_without_kernels"):
        stack.advance()
    plain, fused = plain_and_fused(one_layer_net, [DifferentiatingWithoutKernels(directional=directional)] * 2)
    assert fused.storage.copied == ("decoder.row",)
    assert_same_gradients(plain, fused)


def test_a_critic_is_fused_while_other_networks_are_not() -> None:
    """The children of a network are replaced independently."""
    plain, fused = plain_and_fused(mlp, [SmallFactorVAE()] * 2, random_images())
    assert fused.storage.copied == ("critic.row",)
    assert_same_gradients(plain, fused)
    assert_same_steps(plain, fused)


class ShiftedReLU(nn.ReLU):
    """A subclass of ReLU with a different forward pass."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) - 1


class ScaledLinear(nn.Linear):
    """A subclass of Linear with a different forward pass."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def dense_net(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), *layers, nn.Linear(8, 2))


REUSED_LAYER = nn.Linear(8, 8)


@pytest.mark.parametrize(
    "net",
    [
        dense_net(nn.Dropout(0.1)),
        dense_net(nn.ReLU(), nn.Dropout(0.1)),
        dense_net(nn.BatchNorm1d(8)),
        dense_net(nn.Tanh()),
        dense_net(nn.ReLU(), nn.ReLU()),
        dense_net(nn.Linear(8, 8, bias=False)),
        dense_net(ScaledLinear(8, 8)),
        dense_net(ShiftedReLU()),
        dense_net(nn.LeakyReLU(-0.1)),
        dense_net(nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))),
        dense_net(nn.utils.spectral_norm(nn.Linear(8, 8))),
        dense_net(REUSED_LAYER, REUSED_LAYER),
        nn.Sequential(nn.ReLU(), nn.Linear(4, 2)),
        nn.Linear(4, 2),
    ],
    ids=lambda net: " ".join(type(layer).__name__ for layer in net._modules.values()) or "bare",
)
def test_dense_layers_that_are_not_recognised(net: nn.Module) -> None:
    """Only linear layers with biases and at most one (leaky) ReLU after each are recognised."""
    assert plan_dense(net) is None


def test_dense_layers_that_are_recognised() -> None:
    """The slope is 0 for a ReLU and 1 for no activation."""
    layers_found = dense_layers(list(dense_net(nn.ReLU(), nn.Linear(8, 8), nn.LeakyReLU(0.3))))
    assert layers_found is not None
    assert [(layer.in_features, layer.out_features, slope) for layer, slope in layers_found] == [
        (4, 8, 0.0),
        (8, 8, 0.3),
        (8, 2, 1.0),
    ]


@pytest.mark.parametrize("shape", [(1, 16, 16), (2, 32, 32), (1, 32, 64), (1, 48, 48), (16,)], ids=str)
def test_images_that_are_not_recognised(shape: tuple[int, ...]) -> None:
    """Kernels exist only for one or three channels and for sides from 32 to 256."""
    encoder, decoder = tiny_net((shape[0] if len(shape) == 3 else 1, 32, 32), 3)
    assert plan_encoder(encoder, shape) is None
    assert plan_decoder(decoder, shape) is None


class FlippedSequential(nn.Sequential):
    """A subclass of Sequential with a different forward pass."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).flip(1)


def test_networks_with_other_modules_are_not_recognised() -> None:
    """Networks with dropout, a sigmoid at the end, missing layers or another container are not recognised."""
    encoder, decoder = (list(part) for part in tiny_net((1, 32, 32), 3))
    shape = (1, 32, 32)
    assert plan_encoder(nn.Sequential(*encoder), shape) is not None
    assert plan_decoder(nn.Sequential(*decoder), shape) is not None
    for layers in ([*encoder, nn.Dropout(0.1)], [nn.Dropout2d(0.1), *encoder], encoder[:5], encoder[:4]):
        assert plan_encoder(nn.Sequential(*layers), shape) is None
    for layers in ([*decoder, nn.Sigmoid()], [*decoder[:1], *decoder[2:]], decoder[2:], [nn.Dropout(0.1), *decoder]):
        assert plan_decoder(nn.Sequential(*layers), shape) is None
    assert plan_encoder(FlippedSequential(*encoder), shape) is None
    assert plan_decoder(FlippedSequential(*decoder), shape) is None
    assert plan_encoder(nn.Identity(), shape) is None
    assert plan_decoder(nn.Identity(), shape) is None


# Optimisers


@dataclass(frozen=True)
class DifferentFirstLayer(VAE):
    """A VAE with different constants of Adam for the first layer of the encoder."""

    def adam(self, parameter: str, learning_rate: Hyper) -> Adam:
        return Adam(learning_rate, 0.5, 0.9) if parameter.startswith("encoder.0.") else Adam(learning_rate)


@dataclass(frozen=True)
class FasterBiases(VAE):
    """A VAE whose biases have three times the learning rate."""

    def adam(self, parameter: str, learning_rate: Hyper) -> Adam:
        return Adam(learning_rate * (3.0 if parameter.endswith("bias") else 1.0))


@dataclass(frozen=True)
class NoEpsilon(VAE):
    """A VAE whose decoder uses Adam with an epsilon of 0."""

    def adam(self, parameter: str, learning_rate: Hyper) -> Adam:
        return Adam(learning_rate, epsilon=0.0 if parameter.startswith("decoder.") else 1e-8)


@pytest.mark.parametrize(
    ("method", "copied"),
    [(DifferentFirstLayer(), ("decoder.row",)), (FasterBiases(), ())],
    ids=["other first layer", "faster biases"],
)
def test_modules_with_several_optimisers_are_not_fused(method: Method, copied: tuple[str, ...]) -> None:
    """A module is fused only if all its parameters have the same constants of Adam. Others train as without kernels."""
    plain, fused = plain_and_fused(tiny_net, [method] * 2, random_images())
    assert fused.storage.copied == copied
    assert_same_steps(plain, fused)


def test_a_module_without_epsilon_is_not_fused() -> None:
    """The padding would be divided by zero, because its moments are zero."""
    assert make_stack(tiny_net, True, [NoEpsilon()]).storage.copied == ("encoder.row",)


def test_networks_in_full_precision_are_fused() -> None:
    """On a CPU, where kernels are interpreted, products of float32 numbers are exact up to rounding."""
    specs = [RunSpec(VAE(), "noise", seed, 9, 2, 1e-3, 3, "own:net") for seed in (0, 1)]
    plain, kernels = (Stack(specs, random_images(), tiny_net, vmapped=True, fused=fused) for fused in (False, True))
    assert kernels.storage.copied == ("encoder.row", "decoder.row")
    assert_same_steps(plain, kernels)


def test_parameters_with_different_learning_rates() -> None:
    """The first step of Adam changes parameters by the learning rate, in plain and fused stacks."""
    for fused in (False, True):
        s = make_stack(tiny_net, fused, [FasterBiases()], rate=1e-3)
        before = s.layout.unflatten(s.storage.to_checkpoint_order(s.rows)[0])
        s.advance()
        for name, value in s.layout.unflatten(s.storage.to_checkpoint_order(s.rows)[0]).items():
            change = float((value - before[name]).abs().max())
            assert change == pytest.approx(3e-3 if name.endswith("bias") else 1e-3, rel=1e-2), (fused, name)


# Other networks with kernels


def test_networks_that_share_one_activation_module() -> None:
    """Gradients are equal if all activations of a network are the same module."""
    assert_same_gradients(*plain_and_fused(shared_activation_net, [VAE()] * 2))


@pytest.mark.parametrize("builder", [one_layer_net, narrow_net, deep_net], ids=["single", "narrow", "deep"])
def test_custom_networks_of_the_same_layers_are_fused(builder: PairBuilder) -> None:
    """Kernels exist for any number of layers with 32 or 64 channels."""
    plain, fused = plain_and_fused(builder, [VAE()] * 2, random_images(3))
    assert fused.storage.copied == FUSED_ROWS
    assert_same_gradients(plain, fused)
