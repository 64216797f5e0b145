"""Kernels for networks that are nested in an encoder or a decoder, compared with ordinary operations.

Without a GPU, the kernels run in the interpreter of Triton (see test_fused).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._pytree import tree_flatten

from unbraid.accel.adam import Adam
from unbraid.accel.wrapper import NetworkWrapper
from unbraid.methods import (
    CVITAE,
    DEFT,
    UVITAE,
    VAE,
    BetaVAE,
    CommutativeVAE,
    DeVAE,
    DiffusionVAE,
    GroupifiedVAE,
    Method,
)
from unbraid.methods.method import Hyper
from unbraid.nets.conv import locatello
from unbraid.nets.vae import Pair
from unbraid.nets.vitae import MeanAndVariance
from unbraid.runs.network import build_net
from unbraid.runs.spec import RunSpec
from unbraid.training.rows import Layout, Storage
from unbraid.training.stack import Stack

pytest.importorskip("triton", reason="Triton is not installed here")

from support.fused_stacks import (
    FUSED_ROWS,
    assert_same_gradients,
    assert_same_steps,
    make_stack,
    padding_elements,
    plain_and_fused,
    random_images,
    tiny_net,
)
from support.guarded import DEVICE
from unbraid.training.fused.modules import Fused, FusedDecoder, FusedLikelihoodDecoder
from unbraid.training.fused.streams import postponed_joins

pytestmark = pytest.mark.usefixtures("large_tiles", "poisoned")

GROUPS = ("encoder.encoders.0.row", "encoder.encoders.1.row")
VITAE = ("encoder.appearance.row", "encoder.perspective.row", "decoder.appearance.row")


@dataclass(frozen=True)
class Case:
    """Two methods for a stack of two runs, and the names of the rows that kernels compute."""

    methods: list[Method]
    copied: tuple[str, ...]


CASES = {
    # At step 2, the earlier group has a factor on its gradient.
    "deft": Case(
        [DEFT(beta=8.0, gamma=gamma, iteration_threshold=1.0) for gamma in (0.1, 0.5)], (*GROUPS, "decoder.row")
    ),
    # It also encodes decoded images, and gradients pass through both networks.
    "groupified_vae": Case(
        [GroupifiedVAE(beta=beta, start=0, min_kl=0.0) for beta in (1.0, 1.5)], ("encoder.row", "decoder.inner.row")
    ),
    "devae": Case([DeVAE(beta=1.0), DeVAE(beta=2.0)], ("encoder.row", "decoder.inner.row")),
    "commutative_vae": Case(
        [CommutativeVAE(hessian=hessian, commutator=1.0) for hessian in (40.0, 80.0)],
        ("encoder.inner.row", "decoder.inner.row"),
    ),
    "u_vitae": Case([UVITAE(warmup=0.5), UVITAE(warmup=1.0)], VITAE),
    "c_vitae": Case([CVITAE(warmup=0.5), CVITAE(warmup=1.0)], VITAE),
    "projective diffusion_vae": Case(
        [DiffusionVAE(space="projective"), DiffusionVAE(space="projective")], ("encoder.row", "decoder.inner.row")
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_fused_and_plain_gradients_are_equal(name: str) -> None:
    torch.manual_seed(1)  # with some seeds, an input of a ReLU is as close to 0 as its rounding error
    case = CASES[name]
    plain, fused = plain_and_fused(locatello, case.methods, random_images(1), batch=2)
    assert fused.storage.copied == case.copied
    assert_same_gradients(plain, fused)


@pytest.mark.parametrize(("name", "uses"), [("deft", 1), ("groupified_vae", 2), ("c_vitae", 1)])
def test_uses_of_equal_networks_are_counted_separately(name: str, uses: int) -> None:
    """The join after a backward pass is postponed only if a network is used once. Some networks have equal layers."""
    fused = make_stack(tiny_net, True, CASES[name].methods)
    tensors, structure = tree_flatten(fused._tensors(torch.tensor(2, device=DEVICE)))
    with postponed_joins(fused.data.device) as postponed:
        fused._gradients(structure, *tensors)
    plans = [
        cast(Fused, fused.modules[0].net.get_submodule(row.removesuffix(".row"))).plan for row in CASES[name].copied
    ]
    assert dict(postponed.uses) == dict.fromkeys(plans, uses)
    assert len(set(plans)) == len(plans)


@pytest.mark.parametrize("name", ["deft", "commutative_vae", "u_vitae"])
def test_fused_and_plain_steps_are_equal(name: str) -> None:
    """Weights are equal after two steps of Adam, and padding stays zero."""
    plain, fused = plain_and_fused(tiny_net, CASES[name].methods, random_images(1), batch=2)
    assert padding_elements(fused, fused.rows).shape[1] > 0
    assert_same_steps(plain, fused)


@pytest.mark.parametrize("name", CASES)
def test_states_and_weights_have_the_ordinary_layout(name: str) -> None:
    """The initial weights are those of the network, and states can be loaded into a plain stack and back, exactly."""
    case = CASES[name]
    fused, plain, again = (make_stack(tiny_net, kind, case.methods) for kind in (True, False, True))
    assert fused.storage.copied == case.copied
    for i, spec in enumerate(fused.specs):
        net, found = build_net(spec, (1, 32, 32), tiny_net), fused.weights(i)
        assert list(found) == list(net.state_dict())
        for key, value in net.state_dict().items():
            torch.testing.assert_close(found[key], value, rtol=0, atol=0)
        net.load_state_dict(found)
    fused.advance()
    states = fused.states()
    for source, target in ((fused, plain), (plain, again)):
        for i, state in enumerate(source.states()):
            target.load_state(i, state)
        for one, other in zip(target.states(), states, strict=True):
            for key, value in other.items():
                torch.testing.assert_close(one[key], value, rtol=0, atol=0)
    again.resume(1)
    for stack in (fused, again):
        stack.advance()
    assert torch.equal(fused.rows, again.rows)
    assert torch.equal(fused.moment2, again.moment2)


def test_a_likelihood_without_kernels() -> None:
    """The decoder itself is computed by ordinary operations, but a nested one is not asked for the likelihood."""
    methods: list[Method] = [DeVAE(beta=1.0), DeVAE(beta=2.0)]
    plain, fused = plain_and_fused(tiny_net, methods, random_images(1), "normal")
    assert fused.storage.copied == ("encoder.row", "decoder.inner.row")
    assert_same_gradients(plain, fused)
    assert make_stack(tiny_net, True, [VAE()], likelihood="normal").storage.copied == ("encoder.row",)


def test_only_the_decoder_itself_computes_likelihoods() -> None:
    nested, direct = (make_stack(tiny_net, True, [method]).modules[0].net.decoder for method in (DeVAE(), VAE()))
    assert isinstance(direct, FusedLikelihoodDecoder)
    assert nested is not None
    assert type(nested.inner) is FusedDecoder
    assert not hasattr(nested.inner, "nll")


# Networks that are not replaced


def kept_and_replaced(wrap: Callable[[nn.Module, nn.Module], Pair], methods: list[Method]) -> tuple[Stack, Stack]:
    """A plain and a fused stack whose networks are those of `tiny_net`, in wrappers."""
    return plain_and_fused(lambda shape, latents: wrap(*tiny_net(shape, latents)), methods, random_images(1))


class Indexing(nn.Module):
    """A wrapper of a user that reads the layers of its network."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.inner.children():
            x = layer(x)
        return x


class Calling(NetworkWrapper):
    """A wrapper of a user that promises to only call its networks, which are in a list and in another wrapper."""

    def __init__(self, *networks: nn.Module) -> None:
        super().__init__()
        self.networks = nn.ModuleList([nn.ModuleList(networks)])

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([network(x) for each in self.networks for network in each.children()]).mean(0)


BETAS: list[Method] = [BetaVAE(beta=1.0), BetaVAE(beta=2.0)]


def test_a_wrapper_of_a_user_is_left_alone() -> None:
    plain, fused = kept_and_replaced(lambda encoder, decoder: (Indexing(encoder), Indexing(decoder)), BETAS)
    assert fused.storage.copied == ()
    assert_same_gradients(plain, fused)


def test_a_wrapper_of_a_user_inside_one_that_only_calls_is_left_alone() -> None:
    """The sequence inside `Indexing` is not entered, although `Calling` is."""
    plain, fused = kept_and_replaced(
        lambda encoder, decoder: (Calling(Indexing(encoder)), Calling(Calling(decoder))), BETAS
    )
    assert fused.storage.copied == ("decoder.networks.0.0.networks.0.0.row",)
    assert_same_gradients(plain, fused)


class Concatenating(NetworkWrapper):
    """A wrapper of a user that gives its network the image, its complement and the image again as three channels."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.inner(torch.cat([x, 1 - x, x], 1))
        return found


class Enlarging(NetworkWrapper):
    """A wrapper of a user that gives its network images of twice the side."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.inner(functional.interpolate(x, scale_factor=2))
        return found


class Cropping(NetworkWrapper):
    """A wrapper of a user that returns the first channel and a corner of the images of its network."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, z: Tensor) -> Tensor:
        found: Tensor = self.inner(z)
        return found[:, :1, :32, :32]


@pytest.mark.parametrize("encoder", [Concatenating, Enlarging])
def test_encoders_of_other_images_are_left_alone(encoder: type[NetworkWrapper]) -> None:
    """Kernels are chosen by the shape of an example, which such a network does not have as its input."""
    shape = (3, 32, 32) if encoder is Concatenating else (1, 64, 64)

    def build(data: tuple[int, ...], latents: int) -> Pair:
        return encoder(locatello(shape, latents)[0]), tiny_net(data, latents)[1]

    plain, fused = plain_and_fused(build, BETAS, random_images(1))
    assert fused.storage.copied == ("decoder.row",)
    assert_same_gradients(plain, fused)


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 64, 64)])
def test_decoders_of_other_images_are_left_alone(shape: tuple[int, ...]) -> None:
    def build(data: tuple[int, ...], latents: int) -> Pair:
        return tiny_net(data, latents)[0], Cropping(locatello(shape, latents)[1])

    plain, fused = plain_and_fused(build, BETAS, random_images(1))
    assert fused.storage.copied == ("encoder.row",)
    assert_same_gradients(plain, fused)


def test_modules_with_two_places_are_left_alone() -> None:
    """This concerns whole networks, single layers and single parameters."""

    def wrap(encoder: nn.Module, decoder: nn.Module) -> Pair:
        others = [tiny_net((1, 32, 32), 3)[1] for _ in range(3)]
        others[1][-1].bias = others[0][-1].bias
        return Calling(encoder, encoder), Calling(decoder, *others)

    plain, fused = kept_and_replaced(wrap, BETAS)
    assert fused.storage.copied == ("decoder.networks.0.0.row", "decoder.networks.0.3.row")
    assert_same_gradients(plain, fused)


def test_tied_networks_are_left_alone() -> None:
    """The encoder is inside the decoder too, which decodes to the mean of the encoded data."""

    class Tied(NetworkWrapper):
        def __init__(self, encoder: nn.Module, decoder: nn.Module) -> None:
            super().__init__()
            self.decoder, self.encoder = decoder, encoder

        def forward(self, z: Tensor) -> Tensor:
            x: Tensor = self.decoder(z)
            return x + self.encoder(x).mean()

    plain, fused = kept_and_replaced(lambda encoder, decoder: (encoder, Tied(encoder, decoder)), BETAS)
    assert fused.storage.copied == ("decoder.decoder.row",)
    assert_same_gradients(plain, fused)


@dataclass(frozen=True)
class TwoRates(DeVAE):
    """DeVAE with other constants of Adam for the vectors of its spaces, or for one layer of its decoder."""

    different: str = "decoder.embedding"
    epsilon: float = 1e-8

    def adam(self, parameter: str, learning_rate: Hyper) -> Adam:
        found = super().adam(parameter, learning_rate)
        return Adam(0.5 * learning_rate, epsilon=self.epsilon) if parameter == self.different else found


def test_constants_of_adam_must_be_equal_inside_a_network() -> None:
    """Parameters of the wrapper may have others, which are used for these parameters only."""
    plain, fused = plain_and_fused(tiny_net, [TwoRates(), TwoRates()], random_images(1))
    assert fused.storage.copied == ("encoder.row", "decoder.inner.row")
    assert_same_steps(plain, fused)
    rates = {name: rate.tolist() for name, rate in fused.rates.items()}
    assert rates["decoder.embedding"] == [0.5 * rate for rate in rates["decoder.inner.row"]]
    layer = TwoRates(different="decoder.inner.0.weight")
    assert make_stack(tiny_net, True, [layer]).storage.copied == ("encoder.row",)


@pytest.mark.parametrize("plain", ["encoder", "decoder"])
def test_networks_without_kernels_are_left_alone(plain: str) -> None:
    """Nothing inside an encoder or decoder in `plain` is replaced."""
    method, shape = UVITAE(), (1, 32, 32)
    net = build_net(RunSpec(method, "noise", latents=3), shape, locatello)
    layout = Layout.from_module(net)
    storage = Storage.fused(net, method, torch.tensor([1e-3]), shape, "bernoulli", [plain])
    assert storage.copied == tuple(name for name in VITAE if not name.startswith(plain))
    rows = torch.randn(1, layout.size)
    assert torch.equal(storage.to_checkpoint_order(storage.to_storage_order(list(rows))), rows)


def test_two_networks_for_means_and_variances() -> None:
    """A wrapper of a network builder is entered as well."""

    def wrap(encoder: nn.Module, decoder: nn.Module) -> Pair:
        return MeanAndVariance(lambda: nn.Sequential(*tiny_net((1, 32, 32), 3)[0].children(), nn.Linear(6, 3))), decoder

    plain, fused = kept_and_replaced(wrap, BETAS)
    assert fused.storage.copied == ("encoder.mean.row", "encoder.variance.row", *FUSED_ROWS[1:])
    assert_same_gradients(plain, fused)
