"""Networks of the user's own that use features of PyTorch beyond plain layers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import unbraid as ub
from unbraid.errors import UserError
from unbraid.runs.run import Run

Pair = tuple[nn.Module, nn.Module]


def train(build: Callable[[tuple[int, ...], int], Any], **settings: Any) -> list[Run]:
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

    with pytest.raises(UserError, match="must create new modules in every call"):
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
    """A layer with a buffer that is not stored, and one that counts training steps, in place if `in_place`."""

    def __init__(self, inputs: int, outputs: int, in_place: bool = True) -> None:
        super().__init__(inputs, outputs)
        self.in_place = in_place
        self.register_buffer("ones", torch.ones(outputs), persistent=False)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if self.training and self.in_place:
            self.count.add_(1)
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


def test_layers_with_state_such_as_spectral_normalisation_are_trained() -> None:
    """The state of the layer changes in every step. This is no sign of random numbers."""
    (run,) = train(with_encoder(lambda n, m: nn.utils.parametrizations.spectral_norm(nn.Linear(n, m))))
    layer = run.net.encoder.parametrizations.weight[0]
    assert abs(float(torch.linalg.matrix_norm(run.net.encoder.weight, 2)) - 1) < 0.1
    assert layer.training or layer._u.norm() > 0
