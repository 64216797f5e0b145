"""Manipulated data: the changes of images, the files that hold them, and the command that learns them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image
from torch.func import vmap

import unbraid as ub
from support.manipulations import SMALL, discs
from unbraid.cli import dispatch as cli
from unbraid.data import from_arrays, load
from unbraid.data.manipulated import ManipulatedImages, add_fixed_noise, apply_manipulation, reflect
from unbraid.data.manipulation_files import describe_data, read_manipulation, write_manipulation
from unbraid.errors import UserError
from unbraid.manipulation import draw_comparison, modify
from unbraid.manipulation.settings import choose_planes
from unbraid.noise import Noise


@pytest.fixture(scope="module")
def manipulation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of a short manipulation of the sprites."""
    return modify("sprites", out=tmp_path_factory.mktemp("modified") / "short.safetensors", **SMALL)


def test_reflection_keeps_the_range_and_small_changes_small() -> None:
    values = torch.tensor([1.1, -0.1, 0.0, 1.0, 0.4, 2.0, -1.0])
    assert reflect(values).tolist() == pytest.approx([0.9, 0.1, 0.0, 1.0, 0.4, 0.0, 1.0], abs=1e-6)
    x, change = torch.rand(1000), 2 * torch.rand(1000) - 1
    y = reflect(x + change)
    assert float(y.min()) >= 0
    assert float(y.max()) <= 1
    assert bool(((y - x).abs() <= change.abs() + 1e-6).all())


def test_noise_is_uniform_fixed_and_within_eps() -> None:
    data, plain = load("sprites?noise=0.1"), load("sprites")
    index = torch.arange(0, len(data), 37)
    first = data.batch(index)
    assert torch.equal(first, data.batch(index))
    assert torch.equal(first[5:6], data.batch(index[5:6]))
    assert torch.equal(vmap(data.batch)(torch.stack([index, index.flip(0)]))[1], first.flip(0))
    assert float((first - plain.batch(index)).abs().max()) <= 0.1 + 1e-6
    change = data.change(index).flatten()  # type: ignore[attr-defined]
    assert float(change.mean()) == pytest.approx(0, abs=1e-3)
    assert float(change.std()) == pytest.approx(0.1 / 3**0.5, rel=0.02)
    pixel = data.change(index)[:, 0, 3, 4]  # type: ignore[attr-defined]
    assert float(pixel.std()) > 0.05  # another one for each example
    assert torch.equal((data.images(index) / 255 * 255).round().byte(), (first * 255).round().byte())
    assert (data.binary, data.categorical, data.name) == (False, ("shape",), "sprites?noise=0.1")


def test_noise_can_be_clipped() -> None:
    data, folded, plain = load("sprites?noise=0.1:clip"), load("sprites?noise=0.1"), load("sprites")
    index = torch.arange(0, len(data), 37)
    x, change = plain.batch(index), folded.change(index)  # type: ignore[attr-defined]
    assert torch.equal(data.batch(index), (x + change).clamp(0, 1))
    black = x == 0
    assert float((data.batch(index)[black] == 0).float().mean()) == pytest.approx(0.5, abs=0.01)
    assert float((folded.batch(index)[black] == 0).float().mean()) == 0
    assert data.name == "sprites?noise=0.1:clip"
    assert torch.equal(data.to("cpu").batch(index), data.batch(index))


def test_added_noise_is_independent_of_the_noise_of_noisy_data() -> None:
    base = load("noisy_dsprites")
    index = torch.arange(0, len(base), 100_000)
    change = add_fixed_noise(base, 0.1).change(index).flatten()
    empty = base.batch(index).flatten()
    background = empty < 1
    assert abs(float(torch.corrcoef(torch.stack([change[background], empty[background]]))[0, 1])) < 0.02


def test_changes_equal_the_patterns_of_the_file_and_stay_within_eps(manipulation: Path) -> None:
    data, plain = load(f"sprites?modified={manipulation}"), load("sprites")
    assert isinstance(data, ManipulatedImages)
    index = torch.arange(len(data))
    change = data.batch(index) - plain.batch(index)
    assert 0 < float(change.abs().max()) <= 0.1 + 1e-6
    tensors, facts = read_manipulation(manipulation)
    expected = reflect(plain.batch(index) + 0.1 * tensors["patterns"][tensors["which"].long()] / 127)
    assert torch.allclose(data.batch(index), expected, atol=1e-6)
    assert torch.equal(data.factors(index), plain.factors(index))
    assert torch.equal(data.index(plain.factors(index[:9])), index[:9])
    assert torch.equal(data.draw(Noise(torch.tensor(3)), 50), plain.draw(Noise(torch.tensor(3)), 50))
    assert torch.equal(vmap(data.batch)(index[:8].view(2, 4)).flatten(0, 1), data.batch(index[:8]))
    assert set(facts["recipe"]) >= {"eps", "steps", "samples", "rotations", "capacity", "learning_rate", "seed"}
    assert facts["recipe"]["rotations"] == [[["orientation", "y"]]]
    assert facts["versions"]["torch"]


@pytest.mark.parametrize(
    ("rotations", "message"),
    [("x", "pairs of different factors"), ("x:x", "pairs of different"), ("x:size", "Unknown factor to rotate"),
     ("x:y,y:scale", "pairs of different"), ("x:shape", "Unknown factor to rotate")],
)  # fmt: skip
def test_invalid_rotations_are_rejected(rotations: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        choose_planes(load("sprites"), rotations, 1, 0)


@pytest.mark.parametrize(
    ("key", "value"),
    [("eps", 0.0), ("eps", 1.5), ("steps", 0), ("capacity", float("nan")), ("learning_rate", -1.0), ("rounds", 2**31),
     ("batch", 1)],
)  # fmt: skip
def test_invalid_settings_are_rejected(key: str, value: float, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"The setting '{key}' of a manipulation"):
        modify(discs(), out=tmp_path / "m.safetensors", **{**SMALL, key: value})


def test_invalid_data_and_files_are_rejected(tmp_path: Path, manipulation: Path) -> None:
    out = tmp_path / "m.safetensors"
    cases: list[tuple[Any, Path, str]] = [
        ("toy", out, "needs images with factors"),
        ("sprites?noise=0.1", out, "made for unchanged data"),
        (from_arrays(np.zeros((4, 16, 16))), out, "needs images with factors"),
        ("sprites", tmp_path / "m.bin", "must end in .safetensors"),
        (from_arrays(np.zeros((3, 16, 16)), np.arange(3)[:, None]), out, "two factors whose values have an order"),
        ("sprites", manipulation, "made with seed = 0"),
    ]
    for data, path, message in cases:
        with pytest.raises(UserError, match=message):
            modify(data, out=path, **SMALL, seed=5)
    with pytest.raises(UserError, match="need a dataset of images"):
        load("toy?noise=0.1")
    for text in ("0", "2", "nan", "much", "0.1:cut", ":clip"):
        with pytest.raises(ValueError, match="noise"):
            load(f"sprites?noise={text}")
    with pytest.raises(ValueError, match="cannot be combined"):
        load(f"sprites?noise=0.1&modified={manipulation}")


def damaged_file(kind: str, path: Path) -> bytes:
    """Return the content of an invalid file."""
    tensors, facts = read_manipulation(path)
    content = {
        "cut": path.read_bytes()[:-500],
        "foreign": b"not a file of tensors",
        "kind": safetensors.torch.save(tensors, {"unbraid": json.dumps({**facts, "kind": "weights"})}),
        "format": safetensors.torch.save(tensors, {"unbraid": json.dumps({**facts, "format": 99})}),
        "bare": safetensors.torch.save(tensors),
        "rows": _file_content({**tensors, "which": tensors["which"][:-1].clone()}, facts),
        "range": _file_content({**tensors, "which": tensors["which"] + 1}, facts),
        "dtype": _file_content({**tensors, "patterns": tensors["patterns"].float()}, facts),
        "shape": _file_content({**tensors, "patterns": tensors["patterns"][..., :16].clone()}, facts),
        "missing": _file_content({"which": tensors["which"]}, facts),
        "base": _file_content(tensors, {**facts, "base": "dsprites"}),
        "sizes": _file_content(tensors, {**facts, "sizes": [1, 2]}),
        "nothing": _file_content(tensors, {"kind": facts["kind"], "format": 1, "eps": 0.1}),
    }
    return content[kind]


def _file_content(tensors: dict[str, torch.Tensor], facts: dict[str, Any]) -> bytes:
    return safetensors.torch.save(tensors, {"unbraid": json.dumps(facts)})


@pytest.mark.parametrize(
    ("kind", "message"),
    [("cut", "failed"), ("foreign", "failed"), ("kind", "failed"), ("format", "failed"),
     ("bare", "failed"), ("rows", "contain int8"), ("range", "contain int8"), ("dtype", "contain int8"),
     ("shape", "contain int8"), ("missing", "failed"), ("base", "with 'base' sprites. Got 'base' dsprites"),
     ("sizes", "with 'sizes'"), ("nothing", "with 'base' sprites. Got 'base' None")],
)  # fmt: skip
def test_damaged_and_wrong_files_are_rejected(kind: str, message: str, manipulation: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(damaged_file(kind, manipulation))
    with pytest.raises(UserError, match=message):
        load(f"sprites?modified={bad}")


def test_files_are_found_by_path_by_name_and_by_default(
    manipulation: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNBRAID_DATA", str(tmp_path))
    with pytest.raises(UserError, match=r"unbraid data modify sprites --out .*modified/sprites.safetensors"):
        load("sprites?modified=default")
    with pytest.raises(UserError, match="There is no such file"):
        load("sprites?modified=short.safetensors")
    folder = tmp_path / "modified"
    folder.mkdir()
    for name in ("sprites", "short"):
        (folder / f"{name}.safetensors").write_bytes(manipulation.read_bytes())
    index = torch.arange(0, 9216, 500)
    expected = load(f"sprites?modified={manipulation}").batch(index)
    for name in ("default", "short.safetensors"):
        data = load(f"sprites?modified={name}&subset=50")
        assert data.name == f"sprites?modified={name}&subset=50"
        assert torch.equal(data.batch(index), expected)
        assert len(data.draw(Noise(torch.tensor(0)), 500).unique()) <= 50
    with pytest.raises(UserError, match="There is no such file"):
        load("sprites?modified=default", root=tmp_path / "elsewhere")


def test_manipulation_of_user_data_loaded_by_path(tmp_path: Path) -> None:
    grid = discs(4, 3)
    np.savez(tmp_path / "discs.npz", images=grid.images(slice(None)).numpy(), factors=grid.factors(slice(None)).numpy())
    path = tmp_path / "discs.npz"
    file = modify(str(path), out=tmp_path / "own.safetensors", **SMALL)
    data = load(f"{path}?modified={file}")
    assert isinstance(data, ManipulatedImages)
    assert data.name == f"{path}?modified={file}"
    assert torch.equal(load(data.name).batch(torch.arange(12)), data.batch(torch.arange(12)))
    assert str(data.fingerprint).startswith(str(load(str(path)).fingerprint))  # type: ignore[attr-defined]
    assert load(f"{path}?layout=chw&noise=0.1").name == f"{path}?layout=chw&noise=0.1"
    moved = tmp_path / "moved.npz"
    path.rename(moved)
    assert torch.equal(load(f"{moved}?modified={file}").batch(torch.arange(12)), data.batch(torch.arange(12)))
    with pytest.raises(UserError, match="with 'names'"):
        apply_manipulation(discs(), file)


def test_manipulation_of_data_that_do_not_fill_a_grid(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images, labels = rng.random((30, 16, 16)), rng.integers(4, size=(30, 2))
    data = from_arrays(images, labels)
    assert not data.gridded
    changed = apply_manipulation(data, modify(data, out=tmp_path / "m.safetensors", **SMALL))
    assert float((changed.batch(torch.arange(30)) - data.batch(torch.arange(30))).abs().max()) <= 0.1 + 1e-6
    assert len(changed) == 30
    assert torch.equal(changed.factors([3, 7]), data.factors([3, 7]))
    assert int(changed.draw(Noise(torch.tensor(0)), 999).max()) == 29
    with pytest.raises(UserError, match="with 'labels'"):
        apply_manipulation(from_arrays(images[::-1].copy(), labels[::-1].copy()), tmp_path / "m.safetensors")


def test_categorical_and_constant_factors_are_not_rotated(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    factors = np.array([[i, 0, j, k] for i in range(3) for j in range(3) for k in range(2)])
    data = from_arrays(rng.random((18, 16, 16)), factors[:, [0, 2, 3]], names=["a", "b", "kind"])
    data.categorical = ("kind",)
    file = modify(data, out=tmp_path / "m.safetensors", **SMALL, ensemble=2, rotations="random")
    facts = read_manipulation(file)[1]
    assert {tuple(sorted(plane)) for one in facts["recipe"]["rotations"] for plane in one} == {("a", "b")}
    assert len(facts["sigma"]) == 4


def test_a_new_process_loads_manipulated_data_by_name(manipulation: Path, tmp_path: Path) -> None:
    name = f"sprites?modified={manipulation}"
    runs = ub.train(ub.methods.BetaVAE(), data=name, seeds=[0], steps=2, batch=8, out=tmp_path, quiet=True)
    assert runs[0].spec.data == name
    program = (
        "import torch, unbraid as ub; run = ub.load_runs('.')[0]; data = ub.data.load(run.spec.data);"
        "print(data.fingerprint, float(data.batch(torch.arange(9)).double().sum()));"
        "print(ub.score([run], ['mig'], quiet=True)[0]['mig.discrete_mig'] >= 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    data = load(name)
    total = float(data.batch(torch.arange(9)).double().sum())
    assert done.stdout.split() == [str(data.fingerprint), str(total), "True"]  # type: ignore[attr-defined]


def run_command(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    status = cli.main(["data", *map(str, arguments)])
    streams = capsys.readouterr()
    return status, streams.out + streams.err


def test_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("UNBRAID_DATA", str(tmp_path))
    flags = ["--steps", "2", "--batch", "4", "--samples", "1", "--quiet"]
    status, output = run_command(capsys, "modify", "sprites", *flags, "--picture", tmp_path / "pair.png")
    assert status == 0, output
    assert '"sprites?modified=default"' in output
    assert (tmp_path / "modified" / "sprites.safetensors").exists()
    with Image.open(tmp_path / "pair.png") as picture:
        assert picture.height == pytest.approx(3 * 64, abs=30)
    status, output = run_command(capsys, "show", "sprites?modified=default", "--out", tmp_path / "all.png")
    assert status == 0, output
    assert (tmp_path / "all.png").exists()
    status, output = run_command(capsys, "modify", "sprites", *flags, "--eps", "3", "--out", tmp_path / "m.safetensors")
    assert status != 0
    assert "The setting 'eps' of a manipulation" in output
    assert "modify" in run_command(capsys, "--help")[1]


def test_difference_is_drawn_magnified_ten_times(tmp_path: Path) -> None:
    data = discs()
    patterns = torch.zeros(2, 1, 16, 16, dtype=torch.int8)
    patterns[1, 0, 0, 0] = 127
    which = torch.ones(len(data), dtype=torch.int16)
    write_manipulation(tmp_path / "dot.safetensors", patterns, which, {**describe_data(data), "eps": 0.05})
    with pytest.raises(UserError, match="already exists"):
        modify(data, out=tmp_path / "dot.safetensors", **SMALL)
    changed = apply_manipulation(data, tmp_path / "dot.safetensors")
    assert float(changed.batch(torch.tensor([7]))[0, 0, 0, 0] - data.batch(torch.tensor([7]))[0, 0, 0, 0]) > 0.049
    with Image.open(draw_comparison(changed, tmp_path / "dot.png", examples=2)) as picture:
        grey = np.asarray(picture.convert("L"))
    lower = grey[2 * grey.shape[0] // 3 :]
    assert int(((lower > 120) & (lower < 135)).sum()) >= 2 * 16  # .05 x 10 = half grey, in both tiles


def test_patterns_move_to_another_device(manipulation: Path) -> None:
    data = load(f"sprites?modified={manipulation}")
    assert data.to("meta").patterns.device.type == "meta"  # type: ignore[attr-defined]
    assert data.to("cpu").batch(torch.arange(3)).shape == (3, 1, 32, 32)
