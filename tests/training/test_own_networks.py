"""Networks of the user's own that use features of PyTorch beyond plain layers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import unbraid as ub
from unbraid.accel.layers import Conv
from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.methods import VAE
from unbraid.nets.checking import check_device
from unbraid.nets.registry import NETS, resolve_net
from unbraid.nets.vae import VAENet
from unbraid.runs.network import build_net
from unbraid.runs.run import Run
from unbraid.runs.spec import RunSpec
from unbraid.training.stack import Stack

Pair = tuple[nn.Module, nn.Module]


def train(build: Any, **settings: Any) -> list[Run]:
    options = {"data": "toy", "steps": 20, "latents": 3, "learning_rate": 1e-2, "batch": 16, "quiet": True, **settings}
    return list(ub.train("vae", net=build, **options))


def with_encoder(layer: Callable[[int, int], nn.Module]) -> Callable[[tuple[int, ...], int], Pair]:
    """Return a function that builds a dense decoder and an encoder, given a function of the sizes of the encoder."""
    return lambda shape, latents: (layer(shape[0], 2 * latents), nn.Linear(latents, shape[0]))


class Scaled(nn.Module):
    """A network with a scale that a hook multiplies, a masked weight, and a frozen layer, depending on `kind`."""

    def __init__(self, inputs: int, outputs: int, kind: str) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(inputs, 16), nn.Linear(16, outputs)
        self.scale = nn.Parameter(torch.ones(16))
        if kind == "hook":
            self.first.register_forward_hook(lambda module, inputs, output: output * self.scale)
        if kind == "mask":
            mask = torch.zeros(16, inputs)
            mask[:, 0] = 1
            self.first.weight.data.mul_(mask)
            self.first.weight.register_hook(lambda gradient: gradient * mask)
        if kind == "frozen":
            self.first.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.first(x)))


def weights(kind: str, steps: int, **settings: Any) -> dict[str, Tensor]:
    (run,) = train(with_encoder(lambda n, m: Scaled(n, m, kind)), steps=steps, **settings)
    return dict(run.net.encoder.named_parameters())


def test_a_parameter_that_a_hook_reads_is_trained() -> None:
    assert not torch.equal(weights("hook", 20)["scale"], torch.ones(16))


def test_hooks_of_gradients_are_called() -> None:
    trained = weights("mask", 20)["first.weight"]
    assert not trained[:, 1:].any()
    assert not torch.equal(trained, weights("mask", 0)["first.weight"])


@pytest.mark.parametrize("settings", [{}, {"weight_decay": 0.1, "clip_norm": 1e-3}], ids=["plain", "regularised"])
def test_frozen_parameters_are_not_trained(settings: dict[str, Any]) -> None:
    before, after = weights("frozen", 0), weights("frozen", 20, **settings)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"last.weight", "last.bias", *(["scale"] if settings else [])}


def test_networks_without_trainable_parameters_raise() -> None:
    def frozen(shape: tuple[int, ...], latents: int) -> Pair:
        encoder, decoder = with_encoder(nn.Linear)(shape, latents)
        return encoder.requires_grad_(False), decoder.requires_grad_(False)

    with pytest.raises(UserError, match=r"Got only frozen parameters.*Call requires_grad_\(True\)"):
        train(frozen)


def test_builders_must_create_new_modules() -> None:
    pair: list[nn.Module] = []

    def same(shape: tuple[int, ...], latents: int) -> Any:
        pair[:] = pair or with_encoder(nn.Linear)(shape, latents)
        return tuple(pair)

    with pytest.raises(UserError, match="must create new modules and parameters in every call"):
        train(same, seeds=[0, 1])


def test_modules_without_parameters_may_be_shared() -> None:
    relu = nn.ReLU()
    runs = train(with_encoder(lambda n, m: nn.Sequential(nn.Linear(n, 8), relu, nn.Linear(8, m))), seeds=[0, 1])
    assert len(runs) == 2


class Tied(nn.Module):
    """A network that uses one weight in two layers."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first, self.a, self.b, self.last = (
            nn.Linear(i, j) for i, j in ((inputs, 8), (8, 8), (8, 8), (8, outputs))
        )
        self.b.weight = self.a.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.b(torch.tanh(self.a(self.first(x))))))


class Counter(nn.Linear):
    """A layer with a buffer that is not stored, and one that counts training steps, in place if `in_place`.

    If `in_place` is None, it only reads the count, and remembers the largest one that it has seen.
    """

    def __init__(self, inputs: int, outputs: int, in_place: bool | None = True) -> None:
        super().__init__(inputs, outputs)
        self.in_place = in_place
        self.register_buffer("ones", torch.ones(outputs), persistent=False)
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if self.training and self.in_place:
            self.count.add_(1)
        elif self.training and self.in_place is None:
            self.seen.copy_(self.count)
        elif self.training:
            self.count = self.count + 1
        return super().forward(x) * self.ones


@pytest.mark.parametrize("layer", [Tied, Counter])
def test_tied_weights_and_buffers_are_stored_and_loaded(layer: Any, tmp_path: Path) -> None:
    build = with_encoder(layer)
    (run,) = train(build, out=tmp_path)
    (loaded,) = ub.load_runs(tmp_path, net=build)
    for name, value in run.net.state_dict().items():
        assert torch.equal(loaded.net.state_dict()[name], value)
    if layer is Tied:
        assert torch.equal(loaded.net.encoder.a.weight, loaded.net.encoder.b.weight)
    else:
        assert float(loaded.net.encoder.count) == 20


def test_replaced_buffers_raise() -> None:
    with pytest.raises(UserError, match=r"must change its buffers in place. Got the buffer encoder\.count"):
        train(with_encoder(lambda n, m: Counter(n, m, in_place=False)))


def test_buffers_of_two_modules_stay_one_tensor() -> None:
    def build(shape: tuple[int, ...], latents: int) -> Pair:
        encoder, decoder = Counter(shape[0], 2 * latents), Counter(latents, shape[0], in_place=None)
        decoder.count = encoder.count
        return encoder, decoder

    (run,) = train(build)
    assert float(run.net.encoder.count) == float(run.net.decoder.count) == 20
    assert 0 < float(run.net.decoder.seen) <= 20


def test_changed_buffers_that_are_not_stored_raise() -> None:
    def build(shape: tuple[int, ...], latents: int) -> Pair:
        encoder, decoder = Counter(shape[0], 2 * latents), nn.Linear(latents, shape[0])
        encoder.register_buffer("count", torch.zeros(()), persistent=False)
        return encoder, decoder

    with pytest.raises(UserError, match=r"must be stored. Got the buffer encoder\.count.*persistent=True"):
        train(build)


class ReplacedLate(nn.Linear):
    """A layer that replaces a buffer in its tenth training step."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(1)
        if self.training and self.count == 10:
            self.count = torch.zeros(())
        return super().forward(x)


def test_buffers_that_are_replaced_late_raise() -> None:
    with pytest.raises(UserError, match="must change its buffers in place"):
        train(with_encoder(ReplacedLate))


class ExtraState(nn.Linear):
    """A layer that stores something else than tensors."""

    def get_extra_state(self) -> dict[str, int]:
        return {"version": 1}

    def set_extra_state(self, state: Any) -> None:
        pass


def test_other_state_raises() -> None:
    with pytest.raises(UserError, match=r"must consist of its parameters and buffers\. Got encoder\._extra_state"):
        train(with_encoder(ExtraState))


def test_gradients_of_frozen_parameters_are_not_computed() -> None:
    class Root(nn.Linear):
        def __init__(self, inputs: int, outputs: int) -> None:
            super().__init__(inputs, outputs)
            self.zero = nn.Parameter(torch.zeros(()), requires_grad=False)

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + self.zero.sqrt()

    (run,) = train(with_encoder(Root))
    assert run.divergence is None
    assert len(run.log) > 0


@pytest.mark.parametrize("vmapped", [False, True])
def test_gradients_of_frozen_parameters_are_zero(vmapped: bool, toy: FactorData) -> None:
    build = with_encoder(lambda n, m: Scaled(n, m, "frozen"))
    stack = Stack(
        [RunSpec(VAE(), "toy", 0, 20, 16, 1e-2, 3, "own", likelihood="gaussian")], toy, build, vmapped=vmapped
    )
    before = stack.weights(0)
    stack.advance()
    after = stack.weights(0)
    same = {name for name in before if torch.equal(before[name], after[name])}
    assert same == {"encoder.first.weight", "encoder.first.bias", "encoder.scale"}  # the network does not use the scale


def test_parameters_of_earlier_calls_raise() -> None:
    weights: list[nn.Parameter] = []

    def build(shape: tuple[int, ...], latents: int) -> Pair:
        encoder, decoder = with_encoder(nn.Linear)(shape, latents)
        weights[:] = weights or [encoder.weight]
        encoder.weight = weights[0]
        return encoder, decoder

    with pytest.raises(UserError, match="new modules and parameters in every call"):
        train(build, seeds=[0, 1])


class Autoencoder:
    """A pair of modules with one weight in common."""

    def __init__(self) -> None:
        self.encoder, self.decoder = nn.Sequential(nn.Linear(16, 6)), nn.Sequential(nn.Linear(3, 6), nn.Linear(6, 16))
        self.decoder[1].weight = nn.Parameter(torch.randn(16, 6))
        self.encoder.append(nn.Linear(6, 6))
        self.encoder[1].weight = self.shared = nn.Parameter(torch.randn(6, 6))
        self.decoder.insert(1, nn.Linear(6, 6))
        self.decoder[1].weight = self.shared

    @property
    def pair(self) -> Pair:
        return self.encoder, self.decoder


def test_a_pair_keeps_weights_that_it_shares(tmp_path: Path) -> None:
    given = Autoencoder()
    (run,) = train(given.pair, out=tmp_path)
    assert torch.equal(run.net.encoder[1].weight, run.net.decoder[1].weight)
    assert not torch.equal(run.net.encoder[1].weight, given.shared)


def test_pairs_with_hooks_that_copies_would_not_have_raise() -> None:
    encoder, decoder = with_encoder(nn.Linear)((16,), 3)
    handle = encoder.weight.register_hook(lambda gradient: 0 * gradient)
    with pytest.raises(UserError, match="must not have hooks on parameters"):
        train((encoder, decoder))
    handle.remove()
    handle = encoder.register_forward_hook(lambda module, inputs, output: output + decoder.bias[:6])
    with pytest.raises(UserError, match="hooks that refer to the modules"):
        train((encoder, decoder))
    handle.remove()
    encoder.register_forward_hook(lambda module, inputs, output: 2 * output)
    assert len(train((encoder, decoder))) == 1


def test_networks_of_trained_runs_need_a_decision() -> None:
    (run,) = train(with_encoder(nn.Linear))
    first, decoder = run.net.encoder, nn.Linear(3, 16)
    with pytest.raises(UserError, match="must be clear whether modules of a trained run"):
        train((first, decoder))
    for trained in (True, False):
        (again,) = train((copy.deepcopy(first).requires_grad_(trained), decoder))
        assert torch.equal(again.net.encoder.weight, first.weight) != trained


def test_pairs_with_other_frozen_parameters_or_modes_are_other_networks() -> None:
    def name(change: Callable[[nn.Sequential], Any] = lambda encoder: None) -> str:
        torch.manual_seed(0)
        encoder = nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Linear(8, 6))
        encoder.register_buffer("offset", torch.zeros(2), persistent=False)
        change(encoder)
        return resolve_net((encoder, nn.Linear(3, 16)))[0]

    changes: list[Callable[[nn.Sequential], Any]] = [
        lambda encoder: encoder[0].requires_grad_(False),
        lambda encoder: encoder[1].eval(),
        lambda encoder: encoder.offset.add_(1),
        lambda encoder: encoder[0].bias.data.add_(1),
    ]
    assert name() == name()
    assert len({name(), *map(name, changes)}) == 5


def lazy(inputs: int, outputs: int) -> nn.Module:
    return nn.LazyLinear(outputs)


def double(inputs: int, outputs: int) -> nn.Module:
    return nn.Linear(inputs, outputs).double()


def scripted(inputs: int, outputs: int) -> nn.Module:
    return torch.jit.script(nn.Linear(inputs, outputs))


def old_weight_norm(inputs: int, outputs: int) -> nn.Module:
    return nn.utils.weight_norm(nn.Linear(inputs, outputs))


def accumulating(inputs: int, outputs: int) -> nn.Module:
    layer = nn.Linear(inputs, outputs)
    layer.weight.register_post_accumulate_grad_hook(lambda parameter: None)
    return layer


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (lazy, "must have shapes. Got LazyLinear.weight, which is not initialised"),
        (double, "must be float32. Got Linear.weight with torch.float64"),
        (scripted, "Got a TorchScript module, Linear"),
        (old_weight_norm, "must be copyable"),
        (accumulating, "hooks for accumulated gradients"),
    ],
)
def test_networks_that_cannot_be_trained_raise(layer: Callable[[int, int], nn.Module], message: str) -> None:
    with pytest.raises(UserError, match=message):
        train(with_encoder(layer))


def test_hooks_of_parameters_are_refused_on_other_devices() -> None:
    encoder, decoder = with_encoder(lambda n, m: Scaled(n, m, "mask"))((16,), 3)
    net = VAENet(encoder, decoder, "gaussian")
    check_device(net, torch.device("cpu"))
    with pytest.raises(UserError, match=r"Got a hook on encoder\.first\.weight. Train on the CPU"):
        check_device(net, torch.device("cuda"))


def test_dropout_that_drops_nothing_is_allowed() -> None:
    assert len(train(with_encoder(lambda n, m: nn.Sequential(nn.Linear(n, m), nn.Dropout(0.0))))) == 1


def test_layers_with_state_such_as_spectral_normalisation_are_trained() -> None:
    """The state of the layer changes in every step. This is no sign of random numbers."""
    build = with_encoder(lambda n, m: nn.utils.parametrizations.spectral_norm(nn.Linear(n, m)))
    (before,), (after,) = train(build, steps=0), train(build)
    states = [run.net.state_dict() for run in (before, after)]
    assert {name for name in states[0] if torch.equal(states[0][name], states[1][name])} == set()
    assert float(torch.linalg.matrix_norm(after.net.encoder.weight, 2)) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("between", [[], [nn.BatchNorm2d(8, affine=False, track_running_stats=False)]])
def test_flattening_by_pytorch_after_convolutions_in_bfloat16(between: list[nn.Module]) -> None:
    def build(shape: tuple[int, ...], latents: int) -> Pair:
        layers = [Conv(1, 8, 4), nn.ReLU(), *between, nn.Flatten(), nn.Linear(8 * 16 * 16, 2 * latents)]
        return nn.Sequential(*layers), NETS["locatello"](shape, latents)[1]

    (run,) = train(build, data="sprites", steps=2, batch=4, precision="bf16")
    assert run.divergence is None


def test_concurrent_builds_have_the_weights_of_their_seeds() -> None:
    specs = [RunSpec(VAE(), "toy", seed, 20, 16, 1e-2, 3, "mlp", likelihood="gaussian") for seed in range(40)]

    def first_weight(spec: RunSpec) -> Tensor:
        return next(build_net(spec, (16,), NETS["mlp"]).parameters()).detach().clone()

    expected = list(map(first_weight, specs))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(first_weight, specs))
    assert all(map(torch.equal, expected, found))
