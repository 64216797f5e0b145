"""DFC-VAE with the features of a VGG-19 in a file: the network by loops, the file, its name, and damaged files.

The files here have random weights and, except in one slow test, fewer channels than the published file, which is not
available to the tests.
"""

from __future__ import annotations

import hashlib
import math
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor

import unbraid as ub
from support.engine_laws import make_stack
from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.methods import DFCVAE, Batch, network_files, vgg19
from unbraid.methods.network_files import find_network_file, name_network_file
from unbraid.methods.vgg19 import CONVOLUTIONS, MEAN, OUTPUTS, STD, compute_vgg19, read_vgg19
from unbraid.nets.vae import VAENet
from unbraid.noise import Noise
from unbraid.runs.spec import RunSpec

CPU = torch.device("cpu")
CHANNELS = (2, 2, 3, 3, *[4] * 4, *[5] * 8)  # output channels of the sixteen convolutions
PUBLISHED = (64, 64, 128, 128, *[256] * 4, *[512] * 8)


def weights(channels: tuple[int, ...] = CHANNELS, seed: int = 0) -> dict[str, Tensor]:
    """Return random weights with the names of torchvision's vgg19, and a layer of its classifier."""
    generator, inputs, tensors = torch.Generator().manual_seed(seed), 3, {}
    for index, outputs in zip(CONVOLUTIONS, channels, strict=True):
        spread = math.sqrt(2 / (9 * inputs))
        tensors[f"features.{index}.weight"] = spread * torch.randn(outputs, inputs, 3, 3, generator=generator)
        tensors[f"features.{index}.bias"] = 0.1 * torch.randn(outputs, generator=generator)
        inputs = outputs
    return {**tensors, "classifier.0.weight": torch.zeros(7, 5)}


def write(path: Path, content: Any) -> Path:
    if path.suffix == ".safetensors":
        safetensors.torch.save_file(content, path)
    else:
        torch.save(content, path)
    return path


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a data folder and a cache folder of this test, and forget the files of other tests."""
    monkeypatch.setenv("UNBRAID_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("UNBRAID_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(network_files, "_PATHS", {})
    vgg19._load.cache_clear()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "vgg19.pth", weights())


def torchvision_features(tensors: dict[str, Tensor]) -> nn.Sequential:
    """Return the layers of torchvision's `vgg19().features`: blocks of 2, 2, 4, 4 and 4 convolutions."""
    layers: list[nn.Module] = []
    inputs = 3
    for convolutions in (2, 2, 4, 4, 4):
        for _ in range(convolutions):
            outputs = len(tensors[f"features.{len(layers)}.bias"])
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU()]
            inputs = outputs
        layers.append(nn.MaxPool2d(2, 2))
    network = nn.Sequential(*layers)
    network.load_state_dict({k.removeprefix("features."): v for k, v in tensors.items() if k.startswith("features")})
    return network.requires_grad_(False)


@pytest.mark.parametrize("suffix", [".pth", ".pt", ".safetensors"])
@pytest.mark.parametrize("layers", ["123", "345"])
def test_features_equal_those_of_the_whole_network(layers: str, suffix: str, tmp_path: Path) -> None:
    """The outputs are those after the ReLU (index + 1) of the layers of torchvision."""
    path, network = write(tmp_path / f"v{suffix}", weights()), torchvision_features(weights())
    x = torch.rand(2, 3, 32, 40)
    h = (x - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]
    expected = []
    for index, layer in enumerate(network):
        h = layer(h)
        if index - 1 in OUTPUTS[layers]:
            expected.append(h)
    found = compute_vgg19(x, read_vgg19(path, layers), layers)
    assert len(found) == 3
    for ours, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, wanted)


def test_first_feature_by_loops(file: Path) -> None:
    """A normalised pixel is a weighted sum over a 3x3 window, in which pixels outside the image count as 0."""
    x, tensors = torch.rand(1, 3, 4, 4), weights()
    found = compute_vgg19(x, read_vgg19(file, "123"), "123")[0]
    for row, column in ((0, 0), (1, 2), (3, 1)):
        total = float(tensors["features.0.bias"][1])
        for channel in range(3):
            for i in range(max(0, row - 1), min(4, row + 2)):
                for j in range(max(0, column - 1), min(4, column + 2)):
                    pixel = (float(x[0, channel, i, j]) - MEAN[channel]) / STD[channel]
                    total += pixel * float(tensors["features.0.weight"][1, channel, i - row + 1, j - column + 1])
        assert float(found[0, 1, row, column]) == pytest.approx(max(0.0, total), abs=1e-5)


def test_one_channel_is_repeated_three_times(file: Path) -> None:
    x, network = torch.rand(3, 1, 8, 8), read_vgg19(file, "123")
    for grey, colour in zip(
        compute_vgg19(x, network, "123"), compute_vgg19(x.repeat(1, 3, 1, 1), network, "123"), strict=True
    ):
        assert torch.equal(grey, colour)


@pytest.mark.parametrize("layers", ["123", "345"])
def test_smallest_image_has_one_pixel_in_the_last_layer(layers: str, file: Path) -> None:
    size = vgg19.smallest_size(layers)
    assert compute_vgg19(torch.rand(1, 3, size, size), read_vgg19(file, layers), layers)[-1].shape[2:] == (1, 1)
    with pytest.raises(RuntimeError, match="too small"):
        compute_vgg19(torch.rand(1, 3, size - 1, size - 1), read_vgg19(file, layers), layers)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_file_with_the_shapes_of_the_published_file(suffix: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"v{suffix}", weights(PUBLISHED))
    found = compute_vgg19(torch.rand(2, 3, 64, 64), read_vgg19(path, "345"), "345")
    assert [tuple(h.shape) for h in found] == [(2, 256, 16, 16), (2, 512, 8, 8), (2, 512, 4, 4)]
    assert all(0 < float(h.mean()) < math.inf for h in found)


def test_the_old_format_of_torch_is_read(tmp_path: Path) -> None:
    """The published file was written before PyTorch wrote zip archives."""
    path = tmp_path / "old.pth"
    torch.save(weights(), path, _use_new_zipfile_serialization=False)
    assert torch.equal(read_vgg19(path, "123").convolutions[1].weight, weights()["features.2.weight"])


def identity_net() -> VAENet:
    """Return a network without weights, whose reconstruction is always an image of ones."""
    decoder = nn.Sequential(nn.Linear(2, 3 * 8 * 8), nn.Unflatten(1, (3, 8, 8)))
    net = VAENet(nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 4)), decoder, likelihood="gaussian")
    for parameter in net.parameters():
        parameter.data.zero_()
    decoder[0].bias.data.fill_(1.0)  # type: ignore[operator, union-attr]
    return net


def test_loss_by_hand(file: Path) -> None:
    """The loss is half of the mean squared difference of each layer, times the number of values, summed over layers."""
    x = torch.rand(4, 3, 8, 8)
    noise = Noise(torch.tensor(0))
    _, terms = DFCVAE(network=str(file)).objective(identity_net(), Batch(x, 4), noise, torch.tensor(0.0))
    network, expected = read_vgg19(file, "123"), 0.0
    pairs = zip(compute_vgg19(x, network, "123"), compute_vgg19(torch.ones(4, 3, 8, 8), network, "123"), strict=True)
    for own, other in pairs:
        expected += sum(192 / 2 * float(F.mse_loss(a, b)) for a, b in zip(own, other, strict=True)) / 4
    assert float(terms["features"].detach()) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("vmapped", [False, True])
def test_runs_of_a_stack_reconstruct_better(vmapped: bool, file: Path, glyphs: FactorData) -> None:
    """The runs of a stack share the fixed network."""
    method = DFCVAE(beta=0.01, network=str(file))
    stack = make_stack([method, method], glyphs, [0, 1], [1e-3, 1e-3], vmapped=vmapped)
    losses = []
    for _ in range(40):
        stack.advance()
        losses.append(stack.last[:, 0].clone())
    assert (losses[-1] < losses[0]).all()
    assert not torch.equal(stack.rows[0], stack.rows[1])


def test_network_that_is_first_used_in_a_gradient_is_not_part_of_it(file: Path) -> None:
    """The tensors that are kept in memory are ordinary ones, whatever transformations are active when they are read."""
    method, x = DFCVAE(network=str(file)), torch.rand(1, 8, 8)
    gradient = torch.func.grad(lambda y: sum(h.sum() for h in method.compute_features(y[None])))(x)  # type: ignore[attr-defined]
    network = vgg19.load_vgg19(method.network, "123", CPU)
    tensors = [network.mean, network.std, *(part for one in network.convolutions for part in one[1:])]
    assert not any(is_functorch_wrapped_tensor(tensor) for tensor in tensors)
    leaf = x.clone().requires_grad_()
    torch.stack([h.sum() for h in method.compute_features(leaf[None])]).sum().backward()
    torch.testing.assert_close(gradient, leaf.grad)


def test_name_is_the_digest_of_the_file(file: Path, tmp_path: Path) -> None:
    """A copy at another path gives the same run, and another content another run."""
    name = f"vgg19-{hashlib.sha256(file.read_bytes()).hexdigest()[:16]}"
    copy = tmp_path / "copy.pth"
    copy.write_bytes(file.read_bytes())
    first, second = (RunSpec(DFCVAE(network=path), "toy") for path in (file, copy))  # type: ignore[arg-type]
    other = RunSpec(DFCVAE(network=str(write(tmp_path / "other.pth", weights(seed=1)))), "toy")
    assert first.to_dict()["method"]["network"] == name
    assert first.id == second.id != other.id
    assert RunSpec.from_dict(first.to_dict()) == first
    assert str(tmp_path) not in first.to_json()


def test_specs_without_a_file_are_unchanged() -> None:
    assert set(RunSpec(DFCVAE(), "toy").to_dict()["method"]) == {"name", "beta", "features", "pixels", "feature_seed"}


def test_moved_file_is_found_again(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process finds the file by the record in the cache folder, and then in the data folder."""
    name = name_network_file("vgg19", file)
    monkeypatch.setattr(network_files, "_PATHS", {})
    assert find_network_file(name) == file
    moved = tmp_path / "data" / "networks" / f"{name}.pth"
    moved.parent.mkdir(parents=True)
    file.rename(moved)
    assert find_network_file(name) == moved


def test_missing_or_changed_file_is_an_error_that_names_it(file: Path, glyphs: FactorData) -> None:
    """Settings with the name of a file can be read, compared and copied without the file. Training needs it."""
    method = DFCVAE(network=str(file))
    write(file, weights(seed=3))
    assert DFCVAE(network=method.network) == method
    message = rf"file of the network {method.network} must be available.*{file}.* is not, or no longer.*networks"
    with pytest.raises(UserError, match=message):
        method.check(glyphs, 8, 2)
    file.unlink()
    with pytest.raises(UserError, match=message):
        method.compute_features(torch.rand(1, 3, 8, 8))


def test_run_is_loaded_without_its_file(file: Path, tmp_path: Path, glyphs: FactorData) -> None:
    """The file is needed only for training, and no file of the run contains its path."""
    method, out = DFCVAE(network=str(file)), tmp_path / "runs"
    (run,) = ub.train(method, data=glyphs, net="mlp", steps=3, batch=8, latents=2, out=out, quiet=True)
    file.unlink()
    network_files._PATHS.clear()
    loaded = ub.load_run(out / run.id, glyphs)
    assert loaded.spec == run.spec
    assert torch.equal(loaded.encode(glyphs.images([1, 2])), run.encode(glyphs.images([1, 2])))
    assert not any(str(file) in part.read_text(errors="ignore") for part in (out / run.id).iterdir())


def test_command_line_takes_a_file(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from unbraid.cli.dispatch import main

    out = tmp_path / "runs"
    command = f"train dfc_vae --data sprites --network {file} --layers 123,345 --steps 1 --batch 2 --out {out} --quiet"
    assert main(command.split()) == 0
    assert len({path.parent.name for path in out.glob("*/weights.safetensors")}) == 2
    capsys.readouterr()


def edited(change: Callable[[dict[str, Tensor]], object]) -> dict[str, Tensor]:
    tensors = weights()
    change(tensors)
    return tensors


WRONG: dict[str, tuple[Any, str]] = {
    "a list": ([torch.zeros(3)], "must be a dictionary of tensors. Got list"),
    "no tensors": ({}, r"must be the layers \[0, 2, 5.* Got \[\]"),
    "VGG-16": ({f"features.{i}.weight": torch.zeros(1) for i in (0, 2, 5, 7, 10, 12, 14, 17)}, "7, 10, 12, 14, 17]"),
    "no bias": (edited(lambda t: t.pop("features.5.bias")), "must have a tensor features.5.bias"),
    "whole numbers": (
        edited(lambda t: t.update({"features.2.weight": torch.zeros(2, 2, 3, 3, dtype=torch.int32)})),
        "features.2.weight of floating-point numbers",
    ),
    "other channels": (
        edited(lambda t: t.update({"features.2.weight": torch.zeros(2, 9, 3, 3)})), r"Got \(2, 9, 3, 3\) and \(2,\)"
    ),
    "a long bias": (edited(lambda t: t.update({"features.0.bias": torch.zeros(3)})), r"and \(3,\) instead"),
    "no channels": (
        edited(lambda t: t.update({"features.0.weight": torch.zeros(0, 3, 3, 3), "features.0.bias": torch.zeros(0)})),
        r"Got \(0, 3, 3, 3\)",
    ),
    "NaN": (edited(lambda t: t["features.7.bias"].fill_(math.nan)), "features.7 must be finite"),
    "text": ({**weights(), "features.0.weight": "abc"}, "must have a tensor features.0.weight"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_rejects_other_content(case: str, tmp_path: Path) -> None:
    content, message = WRONG[case]
    with pytest.raises(UserError, match=f"must have the weights of a VGG-19.*{message}") as error:
        read_vgg19(write(tmp_path / "wrong.pth", content), "123")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("suffix", [".pth", ".safetensors", "old"])
def test_damaged_file_is_one_error(suffix: str, tmp_path: Path) -> None:
    """A file that is cut or has wrong bytes is either read, or it is one UserError."""
    path = tmp_path / f"damaged{suffix.removeprefix('old') or '.pth'}"
    if suffix == "old":
        torch.save(weights(), path, _use_new_zipfile_serialization=False)
    else:
        write(path, weights())
    content, generator = path.read_bytes(), torch.Generator().manual_seed(0)
    errors = 0
    for position in torch.randint(len(content), (60,), generator=generator).tolist():
        flipped = content[:position] + bytes([content[position] ^ 0xFF]) + content[position + 1 :]
        for damaged in (content[:position], flipped):
            path.write_bytes(damaged)
            try:
                read_vgg19(path, "123")
            except UserError as error:
                errors += 1
                assert str(path) in str(error)
                assert "\n" not in str(error)
    assert errors >= 60  # every file that is cut


class Program:
    """An object whose unpickling would create a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("save", [torch.save, lambda content, path: path.write_bytes(pickle.dumps(content))])
def test_no_code_in_a_file_is_run(save: Callable[[Any, Path], object], tmp_path: Path) -> None:
    target, path = tmp_path / "created", tmp_path / "program.pth"
    save({**weights(), "features.0.weight": Program(target)}, path)
    with pytest.raises(UserError, match="must be a complete file of tensors"):
        read_vgg19(path, "123")
    assert not target.exists()


@pytest.mark.parametrize("given", ["missing.pth", ".", "vgg19-123", "README.md", "a\0.pth", 5000 * "a" + ".pth"])
def test_rejects_a_path_that_is_no_file_of_weights(given: str) -> None:
    with pytest.raises(UserError, match=r"existing file that ends in .pth, .pt, .safetensors. Got"):
        DFCVAE(network=given)


def test_rejects_a_pipe_and_a_number(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.pth")
    with pytest.raises(UserError, match="must be an ordinary file"):
        DFCVAE(network=str(tmp_path / "pipe.pth"))
    with pytest.raises(UserError, match=r"'network' parameter of DFCVAE must be text. Got 3 instead"):
        DFCVAE(network=3)  # type: ignore[arg-type]


def test_rejects_data_that_are_no_images(file: Path, toy: FactorData, glyphs: FactorData) -> None:
    with pytest.raises(UserError, match=r"needs images with 1 or 3 channels and at least 4 x 4 pixels. Got .*\(\d+,\)"):
        DFCVAE(network=str(file)).check(toy, 8, 2)
    with pytest.raises(UserError, match=r"at least 16 x 16 .* Got .* \(1, 12, 12\) instead. .*\(network 'none'\)"):
        DFCVAE(network=str(file), layers="345").check(glyphs, 8, 2)
