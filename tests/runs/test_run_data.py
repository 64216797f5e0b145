"""Data in memory: runs keep them, find them beside their folder, and say so if they are missing."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import TensorDataset

import unbraid as ub
from support.own import random_pixels, save_images
from support.training import quick_train
from unbraid.cli.dispatch import main
from unbraid.errors import UserError
from unbraid.runs import run_data
from unbraid.runs.run_data import files_digest, read_saved_data, save_data
from unbraid.runs.tensor_files import read_tensors, write_tensors


def random_vectors(n: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=(n, 6))


LABELS = pd.DataFrame({
    "shape": ["square", "heart", None, "square"] * 5,
    "size": [0.5, 1.5] * 10,
    "angle": [*np.linspace(0, 1, 19), np.nan],
})  # fmt: skip
FORMS: dict[str, Callable[[], Any]] = {
    "array": lambda: random_vectors(20),
    "pair": lambda: (random_vectors(20), LABELS),
    "dataset": lambda: ub.data.from_arrays(random_pixels(20, 16, 16), LABELS, continuous="angle", name="mine"),
    "grid": lambda: ub.data.from_arrays(random_pixels(20, 16, 16), [[i // 4, i % 4] for i in range(20)]),
    "torch dataset": lambda: TensorDataset(torch.rand(20, 1, 16, 16), torch.arange(20) % 3),
}
USES: dict[str, Callable[[Path, Any], object]] = {
    "score": lambda folder, data: ub.score(folder, "unsupervised", data=data, quiet=True),
    "report": lambda folder, data: ub.report(folder, metrics="unsupervised", data=data, quiet=True),
    "explore": lambda folder, data: ub.explore(folder, data=data).close(),
    "traverse": lambda folder, data: ub.traverse(ub.load_run(folder, data)),
    "export": lambda folder, data: ub.export(ub.load_run(folder, data), folder / "x", format="torch", quiet=True),
    "select": lambda folder, data: ub.select(ub.load_runs(folder, data), within="data", examples=10, quiet=True),
}


@pytest.mark.filterwarnings("ignore:angle")
@pytest.mark.parametrize("form", FORMS)
def test_saved_data_are_read_back_unchanged(form: str, tmp_path: Path) -> None:
    (run,) = quick_train(tmp_path, data=FORMS[form](), save_data=True, steps=1)
    saved = ub.load_run(tmp_path).data
    assert isinstance(run.data, ub.data.FactorData)
    assert isinstance(saved, type(run.data))
    assert (saved.name, saved.names, saved.sizes, saved.values, saved.continuous, saved.categorical, saved.gridded) == (
        run.data.name, run.data.names, run.data.sizes, run.data.values, run.data.continuous, run.data.categorical,
        run.data.gridded,
    )  # fmt: skip
    everything = slice(None)
    assert torch.equal(saved.images(everything), run.data.images(everything))
    assert torch.equal(saved.factors(everything), run.data.factors(everything))
    assert torch.equal(
        saved.factor_values(everything).nan_to_num(-9), run.data.factor_values(everything).nan_to_num(-9)
    )


@pytest.mark.parametrize("use", USES)
def test_every_function_works_with_the_same_object_or_with_the_folder_alone(use: str, tmp_path: Path) -> None:
    data = ub.data.from_arrays(random_pixels(20, 16, 16), [i % 3 for i in range(20)], name="mine")
    seeds = [0, 1] if use == "select" else [0]
    quick_train(tmp_path / "a", data=data, steps=1, seeds=seeds)
    with pytest.raises(UserError, match=r"was trained on data in memory \('mine'\).*data=.*save_data=True"):
        USES[use](tmp_path / "a", None)
    USES[use](tmp_path / "a", data)
    quick_train(tmp_path / "b", data=data, steps=1, seeds=seeds, save_data=True)
    USES[use](tmp_path / "b", None)


def test_runs_in_memory_keep_their_data(glyphs: ub.data.FactorData, tmp_path: Path) -> None:
    """Scores, pictures and exports of a run that was just trained need no data=."""
    for data in (glyphs, (random_pixels(20, 16, 16), [i % 3 for i in range(20)])):
        (run,) = quick_train(data=data, steps=1, net="mlp")
        assert "mig.discrete_mig" in ub.score(run, "mig", quiet=True)[0]
        assert ub.traverse(run, out=tmp_path).image.size
    assert quick_train(steps=1)[0].data is None


def test_other_data_of_the_same_name_are_not_mixed(tmp_path: Path) -> None:
    one, other = random_vectors(20), random_vectors(20, seed=1)
    (run,) = quick_train(tmp_path, data=one)
    assert [same.id for same in quick_train(tmp_path, data=one)] == [run.id]
    with pytest.raises(UserError, match="was trained on other data that are also called 'arrays'"):
        quick_train(tmp_path, data=other)
    assert quick_train(tmp_path, data=other, retrain=True)[0].log != run.log
    with pytest.raises(UserError, match="Different datasets must have different names"):
        ub.score([run, *quick_train(data=other, seeds=[1])], "unsupervised", quiet=True)


def test_saving_is_refused_where_it_is_useless_or_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="needs a folder"):
        quick_train(data=random_vectors(20), save_data=True)
    with pytest.raises(UserError, match="toy can be loaded by its name"):
        quick_train(tmp_path, save_data=True)
    monkeypatch.setattr(run_data, "MAX_BYTES", 100)
    with pytest.raises(UserError, match="Store them yourself"):
        quick_train(tmp_path, data=random_vectors(20), save_data=True)
    assert list(tmp_path.iterdir()) == []


def test_damaged_files_are_errors(tmp_path: Path) -> None:
    data = ub.data.from_arrays(random_vectors(20), [i % 3 for i in range(20)])
    path = save_data(tmp_path, data)
    tensors, metadata = read_tensors(path)
    wrong: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"labels": tensors["labels"] + 9}, {}),
        ({"labels": tensors["labels"][:3]}, {}),
        ({"examples": tensors["examples"].double()}, {}),
        ({"exact": torch.zeros(3)}, {}),
        ({}, {"name": 3}),
        ({}, {"name": "other", "values": {"label": [7, 8, 9]}}),  # another fingerprint
    ]
    for changed, facts in wrong:
        write_tensors(path, {**tensors, **changed}, {**metadata, **facts})
        with pytest.raises(UserError, match="Restore the file from a copy, or pass the data"):
            read_saved_data(path)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(UserError, match="damaged"):
        read_saved_data(path)


def test_the_command_line_uses_saved_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quick_train(tmp_path, data=(random_vectors(20), [i % 3 for i in range(20)]), steps=1)
    command = ["score", str(tmp_path), "--metrics", "mig", "--jobs", "1", "--quiet"]
    assert main(command) == 2
    assert "save_data=True" in capsys.readouterr().err
    quick_train(tmp_path, data=(random_vectors(20), [i % 3 for i in range(20)]), steps=1, save_data=True)
    assert main(command) == 0


def test_data_of_another_shape_are_an_error() -> None:
    run = quick_train()[0]
    with pytest.raises(UserError, match=r"examples of the shape .* Got the shape \(6,\)"):
        run_data.run_data(run, random_vectors(5))


CHANGES: dict[str, tuple[Callable[[Path], object], bool]] = {
    "none": (lambda folder: None, False),
    "times": (lambda folder: [os.utime(file, (0, 0)) for file in folder.iterdir()], False),
    "an image, with its time": (lambda folder: shutil.copy2(folder / "k=0_0.png", folder / "k=1_1.png"), True),
    "a new image": (lambda folder: shutil.copy(folder / "k=0_0.png", folder / "k=0_x.png"), True),
    "a label": (lambda folder: (folder / "k=0_0.png").rename(folder / "k=1_0.png"), True),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_files_of_data_are_noticed(change: str, tmp_path: Path) -> None:
    act, changes = CHANGES[change]
    photos, out = tmp_path / "photos", tmp_path / "runs"
    save_images(photos, *(f"k={i % 2}_{i}.png" for i in range(6)), size=16)
    quick_train(out, data=f"{photos}?size=16", steps=1)
    weights = next(out.glob("*/weights.safetensors"))
    before = weights.stat().st_mtime_ns
    act(photos)
    again = functools.partial(quick_train, out, data=f"{photos}?size=16", steps=1)
    for use in (lambda: ub.load_runs(out), lambda: ub.load_run(out), again):
        with pytest.warns(RuntimeWarning, match="photos.size=16 have changed") if changes else nullcontext():
            use()
    assert weights.stat().st_mtime_ns == before
    again(retrain=True)
    assert (next(out.glob("*/weights.safetensors")).stat().st_mtime_ns != before) == changes
    ub.load_run(out)


def test_the_digest_of_files_does_not_depend_on_their_path(tmp_path: Path) -> None:
    for place in ("a", "b"):
        save_images(tmp_path / place, *(f"k={i % 2}_{i}.png" for i in range(6)), size=16)
    one, other = (ub.data.load(f"{tmp_path / place}?size=16") for place in ("a", "b"))
    assert files_digest(one) == files_digest(other)
    noisy = ub.data.load(f"{tmp_path / 'a'}?size=16&noise=0.1")
    assert files_digest(noisy) is not None
    assert files_digest(ub.data.load("toy")) is files_digest(ub.data.from_arrays(random_pixels(4, 8, 8))) is None


def test_data_that_were_moved_are_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", random_vectors(20))
    (run,) = quick_train(tmp_path / "runs", data=str(tmp_path / "a.npy"), steps=1)
    (tmp_path / "a.npy").rename(tmp_path / "b.npy")
    for use in (lambda: ub.load_runs(tmp_path / "runs"), lambda: ub.score(run, "unsupervised", quiet=True)):
        with pytest.raises(UserError, match=r"a\.npy, which does not exist.*pass their new path"):
            use()
    assert len(ub.load_runs(tmp_path / "runs", data=str(tmp_path / "b.npy"))) == 1
    (tmp_path / "a.npy").symlink_to(tmp_path / "b.npy")
    assert len(ub.load_runs(tmp_path / "runs")) == 1
