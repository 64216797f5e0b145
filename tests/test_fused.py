"""Stacks whose networks are fused into kernels train like plain ones: same gradients, same weights, same files.

Without a GPU kernels run in Triton's interpreter, in float32. Uninitialised memory holds NaN, so that an element no
kernel writes shows, and tiles are as large as a layer, which spares the interpreter most of its time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from guarded import DEVICE, guarded, hurried
from unbraid.data.tables import ByteImages
from unbraid.engine.layers import Conv, ConvTranspose, Flatten
from unbraid.engine.rows import Layout, Storage
from unbraid.engine.stack import Stack
from unbraid.methods import METHODS, VAE, BetaVAE, FactorVAE, Method
from unbraid.methods.base import Adam, Batch, Hyper, Loss
from unbraid.nets.build import build_net
from unbraid.nets.conv import burgess, glorot, locatello
from unbraid.nets.mlp import critic, mlp
from unbraid.nets.vae import Pair, PairBuilder, VAENet
from unbraid.noise import Noise
from unbraid.spec import RunSpec

pytest.importorskip("triton", reason="Triton is not installed here")

from unbraid.engine.fused.dense import dense_layers
from unbraid.engine.fused.encoder import StackEncoder
from unbraid.engine.fused.modules import FusedCritic, FusedDecoder, FusedEncoder
from unbraid.engine.fused.networks import plan_decoder, plan_dense, plan_encoder
from unbraid.engine.fused.packing import Packing, matrix, taps2, taps4, vector
from unbraid.engine.kernels import tuned

# Both ways in float32, in different orders, through some ten layers: 1e-6 of a gradient's norm, 1e-5 where terms
# cancel. A wrong element in a million is 1e-3. On a GPU the fused way multiplies in TensorFloat-32, of 10 bits.
CLOSE = 5e-5 if DEVICE == "cpu" else 3e-2
# Adam's first steps are rate times g / |g|: an element whose gradient is rounding alone takes either sign. Such
# elements are few, and the step as a whole is near.
STEPS = 1e-3 if DEVICE == "cpu" else 0.3

ALL = ("encoder.row", "decoder.row")


def coarse(name: str, c: int, o: int, launch: dict[str, Any]) -> dict[str, Any]:
    """The launch with one tile for all channels."""
    size = {"BLOCK": 1 << 16, "SPLIT": 1, "BO": o, "BN": 4 * c}
    if name == "weight":
        size |= {"TM": 4 * c, "TN": 4 * o, "BK": 512}
    return {key: size.get(key, value) for key, value in launch.items()}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if DEVICE == "cpu":
        names = [name for name, launch in tuned.OTHERWISE.items() if {"BO", "BN", "TM"} & set(launch)]
        keys = itertools.product(names, (32, 64), (32, 64))
        table = {key: coarse(*key, tuned.launch(*key, torch.float32)) for key in keys}
        rest = {name: coarse(name, 32, 32, launch) for name, launch in tuned.OTHERWISE.items() if "BLOCK" in launch}
        monkeypatch.setattr(tuned, "WHOLE", table)
        monkeypatch.setattr(tuned, "OTHERWISE", tuned.OTHERWISE | rest)
    with hurried(), guarded():
        yield


def images(channels: int = 1, side: int = 32) -> ByteImages:
    generator = torch.Generator().manual_seed(side)
    table = torch.randint(0, 256, (20, channels, side, side), generator=generator, dtype=torch.uint8)
    return ByteImages("noise", ("a", "b"), (4, 5), (channels, side, side), table).to(DEVICE)


def stack(
    builder: PairBuilder,
    fused: bool,
    methods: list[Method],
    data: ByteImages | None = None,
    likelihood: str = "bernoulli",
    batch: int = 2,
    rate: float = 1e-3,
) -> Stack:
    """Runs of different seeds, rates and methods."""
    precision = "tf32" if fused else "fp32"
    specs = [
        RunSpec(method, "noise", seed, 9, batch, rate * (seed + 1), 3, "own:net", likelihood, precision)
        for seed, method in enumerate(methods)
    ]
    return Stack(specs, data or images(), builder, vmapped=True, fused=fused)


def both(builder: PairBuilder, methods: list[Method], *arguments: Any, **options: Any) -> tuple[Stack, Stack]:
    """A plain and a fused stack of the same runs, all parameters moved off their initial values, biases too."""
    plain, fused = (stack(builder, kind, methods, *arguments, **options) for kind in (False, True))
    extra = 0.05 * torch.randn(plain.rows.shape)
    plain.rows += plain.storage.store(list(extra)).to(DEVICE)
    fused.rows += fused.storage.store(list(extra)).to(DEVICE)
    return plain, fused


def gradients(s: Stack, step: int = 2) -> tuple[Tensor, Tensor]:
    """The values and the gradients as files have them; what lies between parameters must be zero."""
    values, found = s._gradients(torch.tensor(step, device=DEVICE))
    rows = torch.cat([grad.flatten(1) for grad in found.values()], 1)
    assert not padding(s, rows).any()
    return values.cpu(), s.storage.restore(rows)


def padding(s: Stack, rows: Tensor) -> Tensor:
    """The elements of rows that are no parameter's."""
    if s.storage.where is None:
        return rows[:, :0]
    free = torch.ones(rows.shape[1], dtype=torch.bool)
    free[s.storage.where] = False
    assert int(free.sum()) == rows.shape[1] - s.layout.size
    return rows.cpu()[:, free]


def same_gradients(plain: Stack, fused: Stack) -> None:
    """Losses, terms and the gradient of every parameter of every run agree; runs differ."""
    (values, wanted), (ours, found) = gradients(plain), gradients(fused)
    assert plain.terms == fused.terms
    torch.testing.assert_close(ours, values, rtol=CLOSE, atol=CLOSE * float(values.abs().max()))
    for i in range(len(plain)):
        parts = fused.layout.unflatten(found[i])
        for name, part in plain.layout.unflatten(wanted[i]).items():
            norm = float(part.norm())
            assert norm > 0, name
            assert float((parts[name] - part).norm()) <= CLOSE * norm, (i, name)
    if len(plain) > 1:
        assert not torch.isclose(found[0], found[1], rtol=0.01, atol=0).all()


def same_steps(plain: Stack, fused: Stack, steps: int = 2) -> None:
    """After some steps the weights have moved alike, and padding is still zero in rows and moments."""
    start = plain.storage.restore(plain.rows)
    torch.testing.assert_close(fused.storage.restore(fused.rows), start, rtol=0, atol=0)
    for _ in range(steps):
        plain.advance()
        fused.advance()
    wanted = plain.storage.restore(plain.rows) - start
    found = fused.storage.restore(fused.rows) - start
    for i in range(len(plain)):
        parts = fused.layout.unflatten(found[i])
        for name, part in plain.layout.unflatten(wanted[i]).items():
            assert float((parts[name] - part).norm()) <= STEPS * float(part.norm()), (i, name)
    for rows in (fused.rows, fused.moment1, fused.moment2):
        assert not padding(fused, rows).any()
    torch.testing.assert_close(fused.last, plain.last, rtol=1e-4 if DEVICE == "cpu" else 0.05, atol=1e-4)
    assert not fused.divergences()


# Packing and storage


@given(st.data())
def test_packing_places_every_element_once(data: st.DataObject) -> None:
    """Whatever is packed: no two elements share a place, each is where its kernel reads it, and slots are aligned."""
    size = st.integers(1, 9)
    packing, kept = Packing(), []
    for _ in range(data.draw(st.integers(1, 4))):
        a, b = data.draw(size), data.draw(size)
        shape, arrange = data.draw(
            st.sampled_from(
                [
                    ((a, b, 4, 4), taps4(b + 1)),
                    ((a, b, 2, 2), taps2),
                    ((a,), vector(a + 3)),
                    ((a, 4 * b), matrix(4 * b + 3, a + 5, before=(b, 2, 2))),
                    ((4 * b, a), matrix(a, 4 * b, after=(b, 2, 2))),
                ]
            )
        )
        values = torch.randn(shape)
        slot = packing.add(values.shape, arrange)
        assert slot.start % 8 == 0
        kept.append((values, arrange, slot))
    assert packing.size % 64 == 0
    assert len(packing.where.unique()) == len(packing.where) == sum(values.numel() for values, *_ in kept)
    assert 0 <= int(packing.where.min()) <= int(packing.where.max()) < packing.size
    row = torch.zeros(1, packing.size)
    row[0, packing.where] = torch.cat([values.flatten() for values, *_ in kept])
    for values, arrange, slot in kept:
        placed = arrange(values)
        assert torch.equal(slot.of(row)[0], torch.where(placed == -1, 0.0, placed))


def test_taps_are_where_kernels_read_them() -> None:
    """Tap (2 dy + py, 2 dx + px) of a 4x4 weight, tap (py, px) of a 2x2 one, and images with channels last."""
    w = torch.randn(5, 3, 4, 4)
    packed = taps4(4)(w)
    for y in range(4):
        for x in range(4):
            assert torch.equal(packed[y // 2, x // 2, y % 2, x % 2, :3], w[:, :, y, x].T)
    assert bool((packed[..., 3, :] == -1).all())
    w = torch.randn(5, 3, 2, 2)
    assert torch.equal(taps2(w)[1, 0], w[:, :, 1, 0].T)
    w = torch.randn(2, 12)
    found = matrix(16, 8, before=(3, 2, 2))(w)
    assert torch.equal(found[:12, :2].view(2, 2, 3, 2), w.view(2, 3, 2, 2).permute(2, 3, 1, 0))


@dataclass(frozen=True)
class SmallFactorVAE(FactorVAE):
    """FactorVAE with a critic whose widths no tile divides."""

    def extend(self, net: VAENet, latents: int) -> VAENet:
        net.critic = critic(latents, 20, 2)
        return net


NETWORKS = {
    "locatello": (locatello, (1, 32, 32), VAE()),
    "locatello 64": (locatello, (3, 64, 64), VAE()),
    "burgess": (burgess, (3, 32, 32), VAE()),
    "with a critic": (burgess, (1, 32, 32), SmallFactorVAE()),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_storage_keeps_rows(name: str) -> None:
    """Stored rows come back bit by bit, from whole stacks and from one row; padding is zero."""
    builder, shape, method = NETWORKS[name]
    net = build_net(RunSpec(method, "noise", latents=3), shape, builder)
    files, rate = Layout.of(net), torch.tensor([1e-3, 2e-3])
    storages = [Storage.plain(files, method, rate), Storage.fused(net, method, rate, shape, "bernoulli")]
    rows = torch.randn(2, files.size)
    for storage in storages:
        stored = storage.store(list(rows))
        assert stored.shape == (2, storage.layout.size)
        assert torch.equal(storage.restore(stored), rows)
        assert torch.equal(storage.restore(stored[1]), rows[1])
        assert int((stored != 0).sum()) == int((rows != 0).sum())
    assert storages[0].copied == ()
    assert storages[1].copied == (*ALL, *(["critic.row"] if isinstance(method, FactorVAE) else []))
    where = storages[1].where
    assert where is not None
    assert len(where.unique()) == files.size


# Gradients and steps of the presets


def varied(name: str, n: int = 2) -> list[Method]:
    """Runs that differ in every hyperparameter."""
    cls = METHODS[name]
    default = cls()
    return [cls(**{h: getattr(default, h) * (1 + 0.5 * i) for h in cls.hypers()}) for i in range(n)]


# Every method, and every (network, channels, likelihood); a batch of 5 fills more than one tile.
COVER = [
    ("vae", locatello, 1, 32, "bernoulli", 5),
    ("beta_vae", locatello, 3, 32, "gaussian", 2),
    ("annealed_vae", burgess, 1, 32, "bernoulli", 2),
    ("factor_vae", burgess, 3, 32, "gaussian", 3),
    ("beta_tcvae", locatello, 3, 32, "bernoulli", 3),
    ("dip_vae_i", burgess, 1, 32, "gaussian", 2),
    ("dip_vae_ii", locatello, 1, 32, "gaussian", 2),
    ("vae", burgess, 3, 64, "bernoulli", 2),
]


def test_the_cover_has_every_method() -> None:
    assert {case[0] for case in COVER} == set(METHODS)


@pytest.mark.parametrize(("name", "builder", "channels", "side", "likelihood", "batch"), COVER)
def test_fused_gradients_equal_plain_ones(
    name: str, builder: PairBuilder, channels: int, side: int, likelihood: str, batch: int
) -> None:
    """Of every parameter of every run, for every method, network, likelihood and number of channels."""
    plain, fused = both(builder, varied(name), images(channels, side), likelihood, batch)
    assert set(ALL) <= set(fused.storage.copied)
    same_gradients(plain, fused)


def test_fused_steps_equal_plain_ones() -> None:
    """Two steps of Adam, the critic with constants of its own; padding stays zero."""
    methods: list[Method] = [SmallFactorVAE(gamma=5.0), SmallFactorVAE(gamma=20.0, critic_learning_rate=1e-3)]
    plain, fused = both(locatello, methods, images(3), batch=3)
    assert fused.storage.copied == (*ALL, "critic.row")
    assert padding(fused, fused.rows).shape[1] > 0
    same_steps(plain, fused)


def hidden(width: int) -> int:
    return width * 8 * 8


def tiny(shape: tuple[int, ...], latents: int) -> Pair:
    """Two layers each way and no hidden units, for tests that need a fused pair and not a particular one."""
    c = shape[0]
    encoder = [Conv(c, 32, 4), nn.ReLU(), Conv(32, 32, 4), nn.ReLU(), Flatten(), nn.Linear(hidden(32), 2 * latents)]
    decoder = [nn.Linear(latents, hidden(32)), nn.ReLU(), nn.Unflatten(1, (32, 8, 8)), ConvTranspose(32, 32, 4)]
    return glorot(nn.Sequential(*encoder)), glorot(
        nn.Sequential(*decoder, nn.ReLU(), ConvTranspose(32, c, 4))
    )  # fmt: skip


def single(shape: tuple[int, ...], latents: int) -> Pair:
    """One layer each way, which is the first and the last."""
    c = shape[0]
    encoder = nn.Sequential(Conv(c, 32, 4), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 16**2, 2 * latents))
    decoder = [nn.Linear(latents, 32 * 16**2), nn.ReLU(), nn.Unflatten(1, (32, 16, 16)), ConvTranspose(32, c, 4)]
    return encoder, nn.Sequential(*decoder)


def narrow(shape: tuple[int, ...], latents: int) -> Pair:
    """2x2 layers of 32 channels, leaky units and a ReLU at the end of the encoder."""
    c = shape[0]
    layers = [Conv(c, 64, 4), nn.ReLU(), Conv(64, 32, 2), nn.ReLU(), Conv(32, 32, 2), nn.ReLU(), nn.Flatten()]
    encoder = nn.Sequential(*layers, nn.Linear(512, 9), nn.LeakyReLU(0.1), nn.Linear(9, 2 * latents), nn.ReLU())
    return encoder, tiny(shape, latents)[1]


def deep(shape: tuple[int, ...], latents: int) -> Pair:
    """Down to a single pixel."""
    c, encoder, decoder = shape[0], [], []
    for i in range(5):
        encoder += [Conv(32 if i else c, 32, 4), nn.ReLU()]
        decoder += [ConvTranspose(32, 32 if i < 4 else c, 4), nn.ReLU()]
    head = [nn.Linear(latents, 32), nn.ReLU(), nn.Unflatten(1, (32, 1, 1))]
    return nn.Sequential(*encoder, nn.Flatten(), nn.Linear(32, 2 * latents)), nn.Sequential(*head, *decoder[:-1])


def shared(shape: tuple[int, ...], latents: int) -> Pair:
    """One module for all activations, which have no state."""
    c, relu = shape[0], nn.ReLU()
    encoder = [Conv(c, 32, 4), relu, nn.Flatten(), nn.Linear(32 * 16**2, 8), relu, nn.Linear(8, 2 * latents)]
    decoder = [nn.Linear(latents, 8), relu, nn.Linear(8, hidden(32)), relu, nn.Unflatten(1, (32, 8, 8))]
    return nn.Sequential(*encoder), nn.Sequential(*decoder, ConvTranspose(32, 32, 4), relu, ConvTranspose(32, c, 4))


def test_networks_with_one_activation_module_for_all() -> None:
    """Fused or not, they compute what they say."""
    same_gradients(*both(shared, [VAE()] * 2))


@pytest.mark.parametrize("builder", [single, narrow, deep], ids=["single", "narrow", "deep"])
def test_own_networks_of_these_layers_are_fused(builder: PairBuilder) -> None:
    """Any number of layers, 32 or 64 wide, not the presets alone."""
    plain, fused = both(builder, [VAE()] * 2, images(3))
    assert fused.storage.copied == ALL
    same_gradients(plain, fused)


# Files


def test_states_are_the_same_in_fused_and_plain_stacks() -> None:
    """States of a fused stack load into a plain one and back, value for value, and training goes on from them."""
    fused = both(tiny, [BetaVAE(beta=2.0), BetaVAE(beta=3.0)])[1]
    fused.advance()
    states = fused.states()
    assert all(state[name].shape == (fused.layout.size,) for state in states for name in ("row", "moment1", "moment2"))
    assert all(float(state["moment2"].abs().sum()) > 0 for state in states)
    plain, again = stack(tiny, False, [BetaVAE(beta=2.0)] * 2), stack(tiny, True, [BetaVAE(beta=2.0)] * 2)
    for source, target in ((fused, plain), (plain, again)):
        for i, state in enumerate(source.states()):
            target.load_state(i, state)
        for one, other in zip(target.states(), states, strict=True):
            assert one.keys() == other.keys()
            for name, value in other.items():
                torch.testing.assert_close(one[name], value, rtol=0, atol=0)
    again.hypers = fused.hypers
    again.resume(1)
    for s in (fused, again):
        s.advance()
    assert torch.equal(fused.rows, again.rows)
    assert torch.equal(fused.moment2, again.moment2)


@pytest.mark.parametrize("name", ["locatello", "with a critic"])
def test_weights_are_those_of_the_network(name: str) -> None:
    """A fused stack at step 0 gives each run the weights its seed gives its network, by name, ready to load."""
    builder, shape, method = NETWORKS[name]
    s = stack(builder, True, [method] * 2, images(*shape[:2]))
    assert s.storage.copied
    for i, spec in enumerate(s.specs):
        wanted = build_net(spec, shape, builder).state_dict()
        found = s.weights(i)
        assert list(found) == list(wanted)
        for key, value in wanted.items():
            assert torch.equal(found[key], value), key
        build_net(spec, shape, builder).load_state_dict(found)


# Decoding, and gradients by inputs


@dataclass(frozen=True)
class Cycle(Method):
    """A loss that decodes to images, compares them and encodes them again."""

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        z = net.encode(batch.x).sample(noise)
        x = net.decode(z)
        rec, back = (x - batch.x).square().sum(), net.encode(x).mean.square().sum()
        return rec + back, {"rec": rec, "back": back}


@pytest.mark.parametrize(
    ("builder", "channels", "likelihood"),
    [(locatello, 3, "bernoulli"), (burgess, 1, "gaussian"), (single, 3, "gaussian")],
)
def test_decoding_and_encoding_again(builder: PairBuilder, channels: int, likelihood: str) -> None:
    """Gradients through decoded images and by the encoder's input."""
    plain, fused = both(builder, [Cycle()] * 2, images(channels), likelihood)
    assert fused.storage.copied == ALL
    same_gradients(plain, fused)


@dataclass(frozen=True)
class Sampled(Method):
    """A loss with a map of its own, over several samples of every posterior."""

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        q = net.encode(batch.x)
        samples = torch.stack([q.sample(noise) for _ in range(3)])
        rec = torch.vmap(lambda z: net.nll(batch.x, z))(samples).logsumexp(0).mean()
        back = torch.vmap(lambda z: net.encode(net.decode(z)).mean.square().sum())(samples).mean()
        return rec + back, {"rec": rec, "back": back}


@dataclass(frozen=True)
class Frozen(Method):
    """A loss in which a network is used twice, once without a gradient, beside inputs that have none."""

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        z = noise.normal(len(batch.x), 3)
        q = net.encode(batch.x)
        with torch.no_grad():
            still = net.encode(batch.x).mean
        rec = net.nll(batch.x, z).mean() * net.nll(batch.x, q.mean).mean().detach()
        return rec * 1e-3 + (q.logvar - still).square().sum(), {"rec": rec}


def test_a_map_inside_an_objective() -> None:
    """Samples mapped by the objective itself are a larger batch."""
    plain, fused = both(locatello, [Sampled()] * 2, images(1))
    assert fused.storage.copied == ALL
    same_gradients(plain, fused)


def test_networks_used_twice_and_inputs_without_gradients() -> None:
    """Gradients add up, and stop where an objective stops them."""
    plain, fused = both(tiny, [Frozen()] * 2)
    (values, wanted), (ours, found) = gradients(plain), gradients(fused)
    torch.testing.assert_close(ours, values, rtol=CLOSE, atol=0)
    assert float((found - wanted).norm()) <= CLOSE * float(wanted.norm())


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


# Members


def test_a_fused_module_runs_in_a_stack_only() -> None:
    """Called for one run it says so."""
    encoder, decoder = tiny((1, 32, 32), 3)
    plans = plan_encoder(encoder, (1, 32, 32)), plan_decoder(decoder, (1, 32, 32)), plan_dense(critic(3, 8, 2))
    assert plans[0] is not None
    assert plans[1] is not None
    assert plans[2] is not None
    x, z = torch.zeros(2, 1, 32, 32), torch.zeros(2, 3)
    decode = FusedDecoder(plans[1], "gaussian")
    calls: list[Callable[[], Tensor]] = [
        lambda: FusedEncoder(plans[0])(x), lambda: decode(z), lambda: decode.nll(x, z), lambda: FusedCritic(plans[2])(z)
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(RuntimeError, match=r"under torch\.vmap only"):
            call()


def test_divergence_in_a_fused_stack_stays_home() -> None:
    """A run that is no longer finite is set aside as it was; its neighbours go on bit by bit as without it."""
    methods: list[Method] = [SmallFactorVAE()] * 2
    well = stack(tiny, True, methods)
    well.advance()
    states = well.states()
    well.advance()
    assert not well.divergences()
    for ill, place in ((0, "encoder.row"), (1, "critic.row")):
        sick = stack(tiny, True, methods)
        for i, state in enumerate(states):
            sick.load_state(i, state)
        sick.resume(1)
        at = sick.storage.layout.spans()[place].start
        assert sick.storage.where is not None
        assert bool((sick.storage.where == at).any())
        sick.rows[ill, at] = math.nan
        kept = [rows[ill].clone() for rows in sick._rows().values()]
        sick.advance()
        for (name, ours), row in zip(sick._rows().items(), kept, strict=True):
            assert torch.equal(ours[1 - ill], well._rows()[name][1 - ill])
            torch.testing.assert_close(ours[ill], row, rtol=0, atol=0, equal_nan=True)
        (found,) = sick.divergences()
        assert (found.member, found.step) == (ill, 1)
        assert found.term in sick.terms


def test_a_fused_stack_equals_its_runs_alone() -> None:
    """A run does not know its neighbours."""
    methods: list[Method] = [BetaVAE(beta=1.0), BetaVAE(beta=4.0), BetaVAE(beta=9.0)]
    together = stack(tiny, True, methods)
    together.advance()
    specs = together.specs
    for i in (0, 2):
        alone = Stack(specs[i : i + 1], images(), tiny, vmapped=True, fused=True)
        alone.advance()
        torch.testing.assert_close(together.rows[i], alone.rows[0], rtol=0, atol=1e-6)
    assert not torch.isclose(together.rows[0], together.rows[2]).all()


# Encoding with many encoders


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
    assert float((found - wanted).norm()) <= CLOSE * float(wanted.norm())


def test_a_stack_of_encoders_without_kernels_is_refused() -> None:
    with pytest.raises(ValueError, match="no kernels for this encoder"):
        StackEncoder([mlp((1, 32, 32), 3)[0]], (1, 32, 32), "fp32")
