"""The bytes and operations of a model-step in the documentation agree with networks, PyTorch and real launches."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

pytest.importorskip("triton", reason="Triton is not installed here")

from support.fused_stacks import random_images
from unbraid.accel.kernels import tuned
from unbraid.accel.kernels.blocked import _to_blocked
from unbraid.methods import METHODS
from unbraid.nets.conv import locatello
from unbraid.nets.mlp import critic
from unbraid.runs.spec import RunSpec
from unbraid.training.stack import Stack

ROOT = Path(__file__).parents[2]
RUNS, BATCH, LATENTS = 2, 64, 10
CASES = [("beta_vae", 1), ("beta_vae", 3), ("factor_vae", 1)]
NOT_LAUNCHED = {"_unpack", "_paint", "torch.sum"}  # the images of the tests are drawn by PyTorch
LONGER_ARGUMENTS = {"_zero_border", "_dense_adam"}  # kernels that change only a part of their arguments


@pytest.fixture
def traffic(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module that counts."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import step_traffic

    return step_traffic


def plain_layers(net: nn.Module) -> nn.Sequential:
    """Return the same layers on the device `meta`, as classes of PyTorch."""
    layers: list[nn.Module] = []
    for layer in net.children():
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
            kind = nn.Conv2d if isinstance(layer, nn.Conv2d) else nn.ConvTranspose2d
            layer = kind(layer.in_channels, layer.out_channels, layer.kernel_size, 2, layer.padding)
        layers.append(nn.ReLU() if isinstance(layer, nn.ReLU) else layer)
    return nn.Sequential(*layers).to("meta")


def torch_operations(net: nn.Module, x: Tensor) -> list[int]:
    """Return the operations of a forward and a backward pass, for each layer with weights."""
    plain = plain_layers(net)
    with FlopCounterMode(display=False) as counter:
        plain(x).sum().backward()
    weighted = [i for i, layer in enumerate(plain) if list(layer.parameters())]
    return [sum(counter.get_flop_counts()[f"Sequential.{i}"].values()) for i in weighted]


def needed_by_layer(kernels: list[Any], part: str) -> list[int]:
    """Return the operations that each layer of a network needs, in the order of the layers."""
    needed: dict[int, int] = defaultdict(int)
    for kernel in kernels:
        if kernel.layer.startswith(f"{part} "):
            needed[int(kernel.layer.removeprefix(f"{part} "))] += kernel.needed
    return [needed[i] for i in sorted(needed)]


@pytest.mark.parametrize("channels", [1, 3])
def test_operations_of_each_layer_agree_with_torch(traffic: ModuleType, channels: int) -> None:
    encoder, decoder = locatello((channels, 64, 64), LATENTS)
    kernels = traffic.model_step("beta_vae", channels)
    images = torch.empty(BATCH, channels, 64, 64, device="meta")
    latents = torch.empty(BATCH, LATENTS, device="meta", requires_grad=True)
    assert needed_by_layer(kernels, "encoder") == torch_operations(encoder, images)
    assert needed_by_layer(kernels, "decoder") == torch_operations(decoder, latents)


def test_operations_of_the_critic_agree_with_torch(traffic: ModuleType) -> None:
    """The first use has no weight gradients, so it needs two of the three products of each layer."""
    kernels = traffic.model_step("factor_vae", 1)
    latents = torch.empty(BATCH, LATENTS, device="meta", requires_grad=True)
    once = torch_operations(critic(LATENTS), latents)
    wanted = [2 * one // 3 + 2 * one for one in once]
    assert needed_by_layer(kernels, "critic") == wanted


@pytest.mark.parametrize(("method", "channels"), CASES)
def test_kernels_compute_more_than_needed_only_because_of_borders_and_padding(
    traffic: ModuleType, method: str, channels: int
) -> None:
    stored = {1: 1, 3: 4}[channels]
    for kernel in traffic.model_step(method, channels):
        assert kernel.flop >= kernel.needed, kernel
        if kernel.name == "_image_conv_transpose4x4":  # zeros in the weights of groups of blocks
            assert kernel.flop < 3 * kernel.needed
        elif "image" in kernel.name:
            assert kernel.flop * channels == kernel.needed * stored
        elif "conv" in kernel.name:
            assert kernel.flop <= kernel.needed * (5 / 4) ** 2, kernel  # the smallest images have 4x4 pixels
    total = [sum(getattr(k, name) for k in traffic.model_step(method, channels)) for name in ("flop", "needed")]
    assert total[0] < 1.2 * total[1]


@pytest.mark.parametrize("channels", [1, 3])
def test_adam_moves_the_state_of_all_parameters_of_the_network(traffic: ModuleType, channels: int) -> None:
    """Gradients are read, parameters and both moments are read and written, and the copy in bf16 is written."""
    networks = locatello((channels, 64, 64), LATENTS)
    found = [kernel for kernel in traffic.model_step("beta_vae", channels) if kernel.name == "_adam"]
    for net, kernel in zip(networks, found, strict=True):
        parameters = sum(p.numel() for p in net.parameters())
        assert parameters * (4 + 12 + 12 + 2) <= kernel.bytes < 1.01 * parameters * (4 + 12 + 12 + 2)


def test_the_critic_moves_the_state_of_all_its_parameters(traffic: ModuleType) -> None:
    """No gradients are stored. The copy is read in two forward and two backward passes and written once."""
    kernels, parameters = traffic.model_step("factor_vae", 1), sum(p.numel() for p in critic(LATENTS).parameters())
    sizes: dict[str, int] = defaultdict(int)
    for kernel in kernels:
        for array in kernel.reads + kernel.writes:
            sizes[array.name] += array.size
    assert sizes["critic parameters"] == pytest.approx(2 * 4 * parameters, rel=0.01)
    assert sizes["critic moments"] == pytest.approx(2 * 8 * parameters, rel=0.01)
    assert sizes["critic parameters, bf16 copy"] == pytest.approx(5 * 2 * parameters, rel=0.01)
    assert "critic parameter gradients" not in sizes


def launched(monkeypatch: pytest.MonkeyPatch, method: str, channels: int, runs: int) -> dict[str, list[int]]:
    """Take a step in which kernels are recorded instead of computed, with the launch settings of `runs` runs.

    Return the bytes of the arguments of each launch, per run, by the name of the kernel. Each array is counted once.
    """
    found: dict[str, list[int]] = defaultdict(list)

    def record(kernel: Any, grid: Any) -> Any:
        def launch(*arguments: Any, **settings: Any) -> None:
            tensors = {a.data_ptr(): a for a in arguments if isinstance(a, Tensor)}
            found[kernel.fn.__name__].append(sum(t.numel() * t.element_size() for t in tensors.values()) // RUNS)

        return launch

    settings = tuned.package_settings
    monkeypatch.setattr(tuned, "package_settings", lambda name, c, m, dtype, _: settings(name, c, m, dtype, runs))
    monkeypatch.setattr(type(_to_blocked), "__getitem__", record)
    specs = [RunSpec(METHODS[method](), "noise", i, 9, BATCH, 1e-4, LATENTS, precision="tf32") for i in range(RUNS)]
    stack = Stack(specs, random_images(channels, 64), locatello, vmapped=True, fused=True)
    stack.copy = stack.rows.bfloat16()
    stack.advance()
    return found


@pytest.mark.parametrize(("method", "channels"), CASES)
@pytest.mark.parametrize("runs", [1, 128])
def test_a_real_step_launches_the_counted_kernels_with_arrays_of_the_counted_sizes(
    traffic: ModuleType, monkeypatch: pytest.MonkeyPatch, method: str, channels: int, runs: int
) -> None:
    counted: dict[str, list[int]] = defaultdict(list)
    for kernel in traffic.model_step(method, channels, runs):
        arrays = {array.name: array.size for array in kernel.reads + kernel.writes}
        counted[kernel.name].append(sum(arrays.values()))
    real = launched(monkeypatch, method, channels, runs)
    assert set(counted) - NOT_LAUNCHED == set(real) - {"_record"}
    for name in set(real) - LONGER_ARGUMENTS - {"_part_sums", "_record"}:
        pairs = list(zip(sorted(counted[name]), sorted(real[name]), strict=True))
        border = 1.2 if "conv4x4" in name else 1.01  # these kernels do not touch the border of small images
        assert all(ours <= 1.01 * theirs for ours, theirs in pairs), (name, pairs)
        assert sum(theirs for _, theirs in pairs) <= border * sum(ours for ours, _ in pairs), (name, pairs)
    for name in LONGER_ARGUMENTS:
        assert len(counted[name]) == len(real[name])
    assert sum(real["_part_sums"]) == pytest.approx(sum(counted["_part_sums"]), rel=0.01)


def test_the_stored_counts_are_current(traffic: ModuleType) -> None:
    import roofline

    stored = json.loads((ROOT / "benchmarks" / "results" / "roofline.json").read_text())
    for name, case in roofline.CASES.items():
        found = {**case._asdict(), **roofline.case_counts(case.method, case.channels)}
        assert json.loads(json.dumps(found)) == stored["cases"][name]
