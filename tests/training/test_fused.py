"""Stacks whose networks are fused into kernels train like plain ones: same gradients, same weights, same files.

Without a GPU kernels run in Triton's interpreter, in float32. Uninitialised memory holds NaN, so that an element no
kernel writes shows, and tiles are as large as a layer, which spares the interpreter most of its time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from unbraid.methods import METHODS, PMP, BetaVAE, FactorVAE, Method
from unbraid.methods.method import Batch, Loss
from unbraid.nets.conv import burgess, locatello
from unbraid.nets.mlp import critic
from unbraid.nets.vae import PairBuilder, VAENet
from unbraid.noise import Noise
from unbraid.runs.network import build_net
from unbraid.runs.spec import RunSpec
from unbraid.training.rows import Layout, Storage
from unbraid.training.stack import Stack

pytest.importorskip("triton", reason="Triton is not installed here")

from support.fused_stacks import (
    ALL,
    CLOSE,
    NETWORKS,
    SmallFactorVAE,
    both,
    gradients,
    images,
    padding,
    same_gradients,
    same_steps,
    single,
    stack,
    tiny,
)
from unbraid.training.fused.modules import FusedCritic, FusedDecoder, FusedEncoder
from unbraid.training.fused.networks import plan_decoder, plan_dense, plan_encoder
from unbraid.training.fused.packing import Packing, arrange_2x2, arrange_4x4, arrange_matrix, arrange_vector

pytestmark = pytest.mark.usefixtures("large_tiles", "poisoned")


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
                    ((a, b, 4, 4), arrange_4x4(b + 1)),
                    ((a, b, 2, 2), arrange_2x2),
                    ((a,), arrange_vector(a + 3)),
                    ((a, 4 * b), arrange_matrix(4 * b + 3, a + 5, before=(b, 2, 2))),
                    ((4 * b, a), arrange_matrix(a, 4 * b, after=(b, 2, 2))),
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
    packed = arrange_4x4(4)(w)
    for y in range(4):
        for x in range(4):
            assert torch.equal(packed[y // 2, x // 2, y % 2, x % 2, :3], w[:, :, y, x].T)
    assert bool((packed[..., 3, :] == -1).all())
    w = torch.randn(5, 3, 2, 2)
    assert torch.equal(arrange_2x2(w)[1, 0], w[:, :, 1, 0].T)
    w = torch.randn(2, 12)
    found = arrange_matrix(16, 8, before=(3, 2, 2))(w)
    assert torch.equal(found[:12, :2].view(2, 2, 3, 2), w.view(2, 3, 2, 2).permute(2, 3, 1, 0))


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
    ("ae", burgess, 1, 32, "bernoulli", 3),
    ("vae", locatello, 1, 32, "bernoulli", 5),
    ("beta_vae", locatello, 3, 32, "gaussian", 2),
    ("annealed_vae", burgess, 1, 32, "bernoulli", 2),
    ("factor_vae", burgess, 3, 32, "gaussian", 3),
    ("beta_tcvae", locatello, 3, 32, "bernoulli", 3),
    ("dip_vae_i", burgess, 1, 32, "gaussian", 2),
    ("dip_vae_ii", locatello, 1, 32, "gaussian", 2),
    ("vae", burgess, 3, 64, "bernoulli", 2),
    ("ada_gvae", locatello, 1, 32, "bernoulli", 4),
    ("ada_mlvae", locatello, 1, 32, "gaussian", 4),
    ("slow_vae", burgess, 1, 32, "bernoulli", 2),
    ("diffusion_vae", locatello, 1, 32, "bernoulli", 2),
]
# PCL has no decoder (test_pcl), PMP terms that start at 0 (the test below), VITAE networks without kernels.
ELSEWHERE = {"pcl", "pmp", "u_vitae", "c_vitae"}


def test_the_cover_has_every_method() -> None:
    assert {case[0] for case in COVER} | ELSEWHERE == set(METHODS)


def test_fused_gradients_of_pmp_equal_plain_ones() -> None:
    """With every term at work, through an image that is decoded and encoded again."""
    methods: list[Method] = [PMP(subspaces=3, horizon=1.0), PMP(subspaces=3, horizon=1.0, sparsity=0.3)]
    plain, fused = both(locatello, methods, images(1), batch=4)
    assert set(ALL) <= set(fused.storage.copied)
    same_gradients(plain, fused)


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
