"""Fused stacks, whose networks are computed in kernels, have the same gradients, weights and files as plain stacks.

Without a GPU, the kernels run in the interpreter of Triton, in float32. Uninitialised memory is filled with NaN to
detect elements that no kernel writes. Tiles are as large as a layer, because the interpreter is faster with few tiles.
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

from unbraid.methods import METHODS, PMP, BetaVAE, FactorVAE, Method, PoincareVAE
from unbraid.methods.method import Batch, Loss
from unbraid.nets.conv import burgess, fumero, kim, locatello
from unbraid.nets.mlp import critic
from unbraid.nets.vae import PairBuilder, VAENet
from unbraid.noise import Noise
from unbraid.runs.network import build_net
from unbraid.runs.spec import RunSpec
from unbraid.training.rows import Layout, Storage
from unbraid.training.stack import Stack

pytest.importorskip("triton", reason="Triton is not installed here")

from support.fused_stacks import (
    FUSED_ROWS,
    NETWORKS,
    TOLERANCE,
    SmallFactorVAE,
    assert_same_gradients,
    assert_same_steps,
    gradients_in_checkpoint_order,
    make_stack,
    one_layer_net,
    padding_elements,
    plain_and_fused,
    random_images,
    tiny_net,
)
from unbraid.training.fused.modules import FusedCritic, FusedEncoder, FusedLikelihoodDecoder
from unbraid.training.fused.networks import plan_decoder, plan_dense, plan_encoder
from unbraid.training.fused.packing import Packing, arrange_2x2, arrange_4x4, arrange_matrix, arrange_vector

pytestmark = pytest.mark.usefixtures("large_tiles", "poisoned")


# Packing and storage


@given(st.data())
def test_packing_gives_every_element_one_position(data: st.DataObject) -> None:
    """All elements have different positions, each is where its kernel reads it, and all slots are aligned."""
    size = st.integers(1, 9)
    packing, packed = Packing(), []
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
        packed.append((values, arrange, slot))
    assert packing.size % 64 == 0
    assert len(packing.positions.unique()) == len(packing.positions) == sum(values.numel() for values, *_ in packed)
    assert 0 <= int(packing.positions.min()) <= int(packing.positions.max()) < packing.size
    row = torch.zeros(1, packing.size)
    row[0, packing.positions] = torch.cat([values.flatten() for values, *_ in packed])
    for values, arrange, slot in packed:
        arranged = arrange(values)
        assert torch.equal(slot.view(row)[0], torch.where(arranged == -1, 0.0, arranged))


def test_weights_are_arranged_for_kernels() -> None:
    """4x4 weights are arranged as (dy, dx, py, px, C, O), 2x2 weights as (py, px, C, O), and images as (h, w, c)."""
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
def test_storage_order_converts_back_to_checkpoint_order(name: str) -> None:
    """Rows in storage order are converted back exactly, for whole stacks and for one row. Padding is zero."""
    builder, shape, method = NETWORKS[name]
    net = build_net(RunSpec(method, "noise", latents=3), shape, builder)
    files, rate = Layout.from_module(net), torch.tensor([1e-3, 2e-3])
    storages = [Storage.unfused(files, method, rate), Storage.fused(net, method, rate, shape, "bernoulli")]
    rows = torch.randn(2, files.size)
    for storage in storages:
        stored = storage.to_storage_order(list(rows))
        assert stored.shape == (2, storage.layout.size)
        assert torch.equal(storage.to_checkpoint_order(stored), rows)
        assert torch.equal(storage.to_checkpoint_order(stored[1]), rows[1])
        assert int((stored != 0).sum()) == int((rows != 0).sum())
    assert storages[0].copied == ()
    assert storages[1].copied == (*FUSED_ROWS, *(["critic.row"] if isinstance(method, FactorVAE) else []))
    positions = storages[1].positions
    assert positions is not None
    assert len(positions.unique()) == files.size


# Gradients and steps of the presets


def methods_with_different_hypers(name: str, n: int = 2) -> list[Method]:
    """Return n methods that differ in every `Hyper` field."""
    cls = METHODS[name]
    default = cls()
    return [cls(**{h: getattr(default, h) * (1 + 0.5 * i) for h in cls.hypers()}) for i in range(n)]


# Every method, and every combination of network, channels and likelihood. A batch of 5 fills more than one tile.
CASES = [
    ("ae", burgess, 1, 32, "bernoulli", 3),
    ("ae_ica", locatello, 1, 32, "bernoulli", 2),
    ("fsq", burgess, 1, 32, "bernoulli", 2),
    ("qlae", locatello, 1, 32, "bernoulli", 2),
    ("vae", locatello, 1, 32, "bernoulli", 5),
    ("beta_vae", locatello, 3, 32, "gaussian", 2),
    ("annealed_vae", burgess, 1, 32, "bernoulli", 2),
    ("joint_vae", burgess, 1, 32, "bernoulli", 2),
    ("factor_vae", burgess, 3, 32, "gaussian", 3),
    ("beta_tcvae", locatello, 3, 32, "bernoulli", 3),
    ("dip_vae_i", burgess, 1, 32, "gaussian", 2),
    ("dip_vae_ii", locatello, 1, 32, "gaussian", 2),
    ("info_vae", burgess, 1, 32, "bernoulli", 3),
    ("hfs", locatello, 1, 32, "bernoulli", 3),
    ("dfc_vae", burgess, 1, 32, "bernoulli", 2),
    # These two sort latents by the KL between the images of a pair. In these batches, one pair has two equal images.
    ("group_vae", locatello, 1, 32, "bernoulli", 8),
    ("ml_vae", burgess, 1, 32, "bernoulli", 8),
    ("control_vae", locatello, 1, 32, "bernoulli", 2),
    ("dynamic_vae", burgess, 1, 32, "bernoulli", 2),
    ("cascade_vae_c", locatello, 1, 32, "bernoulli", 2),
    ("s_vae", burgess, 1, 32, "bernoulli", 2),
    ("poincare_vae", burgess, 1, 32, "bernoulli", 2),
    ("lsbd_vae", locatello, 1, 32, "bernoulli", 2),
    ("semi_vae", locatello, 1, 32, "bernoulli", 2),
    ("ivae", burgess, 1, 32, "bernoulli", 2),
    ("triplet_vae", locatello, 1, 32, "bernoulli", 3),
    ("ada_tvae", burgess, 1, 32, "bernoulli", 3),
    ("vae", burgess, 3, 64, "bernoulli", 2),
    ("ada_gvae", locatello, 1, 32, "bernoulli", 4),
    ("ada_mlvae", locatello, 1, 32, "gaussian", 4),
    ("slow_vae", burgess, 1, 32, "bernoulli", 2),
    ("diffusion_vae", locatello, 1, 32, "bernoulli", 2),
    ("vae", fumero, 1, 32, "bernoulli", 2),
    ("vae", kim, 1, 32, "bernoulli", 2),
]
# PCL has no decoder (see test_pcl). PMP has terms that start at 0. The decoder of Tripod is computed in float32 (see
# the tests below). The networks of DEFT, DeVAE, the Groupified and the Commutative VAE and VITAE are nested in others
# (see test_fused_nested). SAE, PCA, ICA and ICE-BeeM have no kernels.
TESTED_ELSEWHERE = {
    "sae", "pca", "ica", "tripod", "devae", "deft", "commutative_vae", "groupified_vae", "pcl", "cl_ica", "ice_beem",
    "pmp", "u_vitae", "c_vitae",
}  # fmt: skip


def test_the_cases_cover_every_method() -> None:
    assert {case[0] for case in CASES} | TESTED_ELSEWHERE == set(METHODS)


def test_fused_and_plain_gradients_of_cl_ica_are_equal() -> None:
    """It has an encoder only. The loss does not depend on the last bias, whose gradient is only rounding error."""
    plain, fused = plain_and_fused(locatello, methods_with_different_hypers("cl_ica"), batch=4)
    assert fused.storage.copied == FUSED_ROWS[:1]
    (values, wanted), (ours, found) = gradients_in_checkpoint_order(plain), gradients_in_checkpoint_order(fused)
    torch.testing.assert_close(ours, values, rtol=TOLERANCE, atol=TOLERANCE)
    assert (wanted.norm(dim=1) > 0).all()
    assert ((found - wanted).norm(dim=1) <= TOLERANCE * wanted.norm(dim=1)).all()


def test_an_encoder_that_is_differentiated_twice_has_no_kernels() -> None:
    """ICE-BeeM trains the gradient of its encoder, so nothing is fused, and gradients are those of a plain stack."""
    plain, fused = plain_and_fused(locatello, methods_with_different_hypers("ice_beem"), batch=4)
    assert fused.storage.copied == ()
    assert_same_gradients(plain, fused)


@pytest.mark.parametrize(
    ("name", "settings"), [("tripod", {}), ("beta_vae", {"hessian_penalty": 1.0, "sparse_jacobian": 0.1})]
)
def test_decoders_whose_differences_matter_are_computed_in_float32(name: str, settings: dict[str, float]) -> None:
    """Gradients are those of a plain stack. Kernels of the decoder read the parameters and not their copy.

    The differences are divided by 0.01, which enlarges rounding errors by this factor. On a GPU, the copy has a lower
    precision. Here it is NaN.
    """
    plain, fused = plain_and_fused(locatello, methods_with_different_hypers(name), batch=4, **settings)
    assert fused.storage.copied == FUSED_ROWS
    assert_same_gradients(plain, fused, 100 * TOLERANCE)
    fused.copy = torch.full_like(fused.rows, math.nan)
    spans = fused.storage.layout.spans()
    read = fused._tensors(fused.device_step)[1]
    assert torch.equal(read["decoder.copy"], fused.rows[:, spans["decoder.row"]])
    assert bool(read["encoder.copy"].isnan().all())


def test_float32_networks_forbid_tf32(poisoned: None) -> None:
    """A run with tf32 and a decoder that is computed in float32 does not use TensorFloat-32 at all."""
    for name, allowed in (("tripod", False), ("beta_vae", True)):
        stack = make_stack(locatello, True, methods_with_different_hypers(name))
        with stack._contexts(()):
            assert torch.backends.cuda.matmul.allow_tf32 == allowed


def test_fused_and_plain_gradients_with_riemannian_posteriors_and_gyroplanes_are_equal() -> None:
    """Only the encoder has kernels, because the first layer of the decoder is not linear."""
    methods: list[Method] = [
        PoincareVAE(beta=beta, curvature=c, distribution="riemannian", first_layer="gyroplanes")
        for beta, c in ((1.0, 1.0), (1.5, 0.5))
    ]
    plain, fused = plain_and_fused(locatello, methods, random_images(1), batch=2)
    assert fused.storage.copied == FUSED_ROWS[:1]
    assert_same_gradients(plain, fused)


def test_fused_and_plain_gradients_of_pmp_are_equal() -> None:
    """All terms of the loss are nonzero, and gradients pass through an image that is decoded and encoded again."""
    methods: list[Method] = [PMP(subspaces=3, horizon=1.0), PMP(subspaces=3, horizon=1.0, sparsity=0.3)]
    plain, fused = plain_and_fused(locatello, methods, random_images(1), batch=4)
    assert set(FUSED_ROWS) <= set(fused.storage.copied)
    assert_same_gradients(plain, fused)


@pytest.mark.parametrize(("name", "builder", "channels", "side", "likelihood", "batch"), CASES)
def test_fused_and_plain_gradients_are_equal(
    name: str, builder: PairBuilder, channels: int, side: int, likelihood: str, batch: int
) -> None:
    """All gradients are equal, for every method, network, likelihood and number of channels."""
    plain, fused = plain_and_fused(
        builder, methods_with_different_hypers(name), random_images(channels, side), likelihood, batch
    )
    assert set(FUSED_ROWS) <= set(fused.storage.copied)
    assert_same_gradients(plain, fused)


def test_fused_and_plain_steps_are_equal() -> None:
    """Weights are equal after two steps of Adam with different constants for the critic. Padding stays zero."""
    methods: list[Method] = [SmallFactorVAE(gamma=5.0), SmallFactorVAE(gamma=20.0, critic_learning_rate=1e-3)]
    plain, fused = plain_and_fused(locatello, methods, random_images(3), batch=3)
    assert fused.storage.copied == (*FUSED_ROWS, "critic.row")
    assert padding_elements(fused, fused.rows).shape[1] > 0
    assert_same_steps(plain, fused)


@pytest.mark.parametrize("settings", [{"weight_decay": 5.0}, {"clip_norm": 0.5, "weight_decay": 5.0}], ids=str)
def test_weight_decay_and_clipping_of_fused_and_plain_stacks_are_equal(settings: dict[str, float]) -> None:
    methods: list[Method] = [SmallFactorVAE(gamma=5.0), SmallFactorVAE(gamma=20.0, critic_learning_rate=1e-3)]
    plain, fused = plain_and_fused(tiny_net, methods, batch=3, **settings)
    assert fused.storage.copied == (*FUSED_ROWS, "critic.row")
    assert_same_steps(plain, fused)


# Files


def test_states_of_fused_and_plain_stacks_are_equal() -> None:
    """States of a fused stack can be loaded into a plain stack and back, exactly, and training resumes from them."""
    fused = plain_and_fused(tiny_net, [BetaVAE(beta=2.0), BetaVAE(beta=3.0)])[1]
    fused.advance()
    states = fused.states()
    assert all(state[name].shape == (fused.layout.size,) for state in states for name in ("row", "moment1", "moment2"))
    assert all(float(state["moment2"].abs().sum()) > 0 for state in states)
    plain, again = (
        make_stack(tiny_net, False, [BetaVAE(beta=2.0)] * 2),
        make_stack(tiny_net, True, [BetaVAE(beta=2.0)] * 2),
    )
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
def test_initial_weights_are_those_of_the_network(name: str) -> None:
    """At step 0, a fused stack returns the weights with which the seed of each run initialises its network."""
    builder, shape, method = NETWORKS[name]
    s = make_stack(builder, True, [method] * 2, random_images(*shape[:2]))
    assert s.storage.copied
    for i, spec in enumerate(s.specs):
        wanted = build_net(spec, shape, builder).state_dict()
        found = s.weights(i)
        assert list(found) == list(wanted)
        for key, value in wanted.items():
            assert torch.equal(found[key], value), key
        build_net(spec, shape, builder).load_state_dict(found)


# Decoding, and gradients by the inputs


@dataclass(frozen=True)
class CycleLoss(Method):
    """A loss that decodes images, compares them with the data and encodes them again."""

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        z = net.encode(batch.x).sample(noise)
        x = net.decode(z)
        rec, back = (x - batch.x).square().sum(), net.encode(x).mean.square().sum()
        return rec + back, {"rec": rec, "back": back}


@pytest.mark.parametrize(
    ("builder", "channels", "likelihood"),
    [(locatello, 3, "bernoulli"), (burgess, 1, "gaussian"), (one_layer_net, 3, "gaussian")],
)
def test_gradients_through_decoded_images(builder: PairBuilder, channels: int, likelihood: str) -> None:
    """Gradients pass through decoded images and the input of the encoder."""
    plain, fused = plain_and_fused(builder, [CycleLoss()] * 2, random_images(channels), likelihood)
    assert fused.storage.copied == FUSED_ROWS
    assert_same_gradients(plain, fused)


@dataclass(frozen=True)
class SampledLoss(Method):
    """A loss that uses `vmap` itself, over several samples of every posterior."""

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        q = net.encode(batch.x)
        samples = torch.stack([q.sample(noise) for _ in range(3)])
        rec = torch.vmap(lambda z: net.nll(batch.x, z))(samples).logsumexp(0).mean()
        back = torch.vmap(lambda z: net.encode(net.decode(z)).mean.square().sum())(samples).mean()
        return rec + back, {"rec": rec, "back": back}


@dataclass(frozen=True)
class PartlyDetachedLoss(Method):
    """A loss that uses the encoder twice, once without a gradient, and decodes latents that need no gradient."""

    def objective(self, net: VAENet, batch: Batch, noise: Noise, step: Tensor) -> Loss:
        z = noise.normal(len(batch.x), 3)
        q = net.encode(batch.x)
        with torch.no_grad():
            still = net.encode(batch.x).mean
        rec = net.nll(batch.x, z).mean() * net.nll(batch.x, q.mean).mean().detach()
        return rec * 1e-3 + (q.logvar - still).square().sum(), {"rec": rec}


def test_vmap_inside_an_objective() -> None:
    """If an objective uses `vmap` over samples, they are computed as a larger batch."""
    plain, fused = plain_and_fused(locatello, [SampledLoss()] * 2, random_images(1))
    assert fused.storage.copied == FUSED_ROWS
    # The loss is a logsumexp of values near 700, so rounding changes its weights. Both stacks differ by 2e-5 to 5e-5
    # from float64, and by up to 6e-5 from each other.
    assert_same_gradients(plain, fused, 2 * TOLERANCE)


def test_networks_used_twice_and_inputs_without_gradients() -> None:
    """Gradients of several uses are added, and stop where the objective detaches them."""
    plain, fused = plain_and_fused(tiny_net, [PartlyDetachedLoss()] * 2)
    (values, wanted), (ours, found) = gradients_in_checkpoint_order(plain), gradients_in_checkpoint_order(fused)
    torch.testing.assert_close(ours, values, rtol=TOLERANCE, atol=0)
    assert float((found - wanted).norm()) <= TOLERANCE * float(wanted.norm())


# Runs of a stack


def test_a_fused_module_needs_vmap() -> None:
    """A call for a single run is an error."""
    encoder, decoder = tiny_net((1, 32, 32), 3)
    plans = plan_encoder(encoder, (1, 32, 32)), plan_decoder(decoder, (1, 32, 32)), plan_dense(critic(3, 8, 2))
    assert plans[0] is not None
    assert plans[1] is not None
    assert plans[2] is not None
    x, z = torch.zeros(2, 1, 32, 32), torch.zeros(2, 3)
    decode = FusedLikelihoodDecoder(plans[1], "gaussian")
    calls: list[Callable[[], Tensor]] = [
        lambda: FusedEncoder(plans[0])(x), lambda: decode(z), lambda: decode.nll(x, z), lambda: FusedCritic(plans[2])(z)
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(RuntimeError, match=r"under torch\.vmap only"):
            call()


def test_divergence_in_a_fused_stack_affects_one_run_only() -> None:
    """A run that becomes non-finite is not updated any more, and the other run continues exactly as without it."""
    methods: list[Method] = [SmallFactorVAE()] * 2
    finite = make_stack(tiny_net, True, methods)
    finite.advance()
    states = finite.states()
    finite.advance()
    assert not finite.divergences()
    for bad, parameter in ((0, "encoder.row"), (1, "critic.row")):
        with_nan = make_stack(tiny_net, True, methods)
        for i, state in enumerate(states):
            with_nan.load_state(i, state)
        with_nan.resume(1)
        at = with_nan.storage.layout.spans()[parameter].start
        assert with_nan.storage.positions is not None
        assert bool((with_nan.storage.positions == at).any())
        with_nan.rows[bad, at] = math.nan
        before = [rows[bad].clone() for rows in with_nan._row_tensors().values()]
        with_nan.advance()
        for (name, ours), row in zip(with_nan._row_tensors().items(), before, strict=True):
            assert torch.equal(ours[1 - bad], finite._row_tensors()[name][1 - bad])
            torch.testing.assert_close(ours[bad], row, rtol=0, atol=0, equal_nan=True)
        (divergence,) = with_nan.divergences()
        assert (divergence.member, divergence.step) == (bad, 1)
        assert divergence.term in with_nan.terms


def test_a_fused_stack_equals_its_runs_alone() -> None:
    """A run does not depend on the other runs of its stack."""
    methods: list[Method] = [BetaVAE(beta=1.0), BetaVAE(beta=4.0), BetaVAE(beta=9.0)]
    together = make_stack(tiny_net, True, methods)
    together.advance()
    specs = together.specs
    for i in (0, 2):
        alone = Stack(specs[i : i + 1], random_images(), tiny_net, vmapped=True, fused=True)
        alone.advance()
        torch.testing.assert_close(together.rows[i], alone.rows[0], rtol=0, atol=1e-6)
    assert not torch.isclose(together.rows[0], together.rows[2]).all()
