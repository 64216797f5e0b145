"""The command line: help, training, scoring and drawing, and errors of one line."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from support.command_line import FAST_TRAINING, Capture, error_line, unbraid
from unbraid import metrics
from unbraid.cli import demo
from unbraid.cli.dispatch import COMMANDS, main
from unbraid.cli.values import parse_integers, parse_numbers
from unbraid.data import DATASETS
from unbraid.methods import METHODS
from unbraid.metrics.protocol import Rows
from unbraid.nets.registry import NETS
from unbraid.runs.folder import find_runs


@pytest.fixture
def arrays(tmp_path: Path) -> tuple[Path, Path]:
    rng = np.random.default_rng(0)
    factors = np.stack([rng.integers(0, n, 900) for n in (3, 4, 5)], 1)
    codes = factors + 0.1 * rng.normal(size=factors.shape)
    np.save(tmp_path / "z.npy", codes)
    np.save(tmp_path / "v.npy", factors)
    return tmp_path / "z.npy", tmp_path / "v.npy"


@pytest.mark.parametrize("arguments", [[], ["--help"], *([name, "--help"] for name in COMMANDS)])
def test_every_command_has_help(arguments: list[str], capsys: Capture) -> None:
    try:
        assert main(arguments) == 0
    except SystemExit as leave:
        assert leave.code == 0
    assert "usage: unbraid" in capsys.readouterr().out


@pytest.mark.parametrize("name", METHODS)
def test_every_field_is_a_flag_with_help(name: str, capsys: Capture) -> None:
    import dataclasses

    with pytest.raises(SystemExit):
        unbraid("train", name, "--help")
    text = " ".join(capsys.readouterr().out.split())
    for field in dataclasses.fields(METHODS[name]):
        assert f"--{field.name.replace('_', '-')}" in text
        assert field.metadata["help"] in text


def test_list_shows_the_registries(capsys: Capture) -> None:
    assert unbraid("list") == 0
    text = capsys.readouterr().out
    for name in [*METHODS, *metrics.METRICS, *DATASETS, *NETS]:
        assert f"\n{name} " in text
    assert unbraid("list", "data") == 0
    assert "beta_vae" not in capsys.readouterr().out


def test_train_a_sweep_and_score_it_twice(tmp_path: Path, capsys: Capture) -> None:
    """All combinations of lists and ranges are trained; scoring twice gives one row per run with the same numbers."""
    out = tmp_path / "runs"
    sweep = ["--beta", "1,4", "--learning-rate", "1e-3,1e-4", "--seeds", "0-1", "--out", out]
    assert unbraid("train", "beta_vae", *sweep, *FAST_TRAINING) == 0
    text = capsys.readouterr().out
    assert "8 run(s)" in text
    assert "beta_vae beta=4 learning_rate=0.0001 seed=1" in text
    assert {(r.spec.method.beta, r.spec.learning_rate, r.spec.seed) for r in find_runs(out)} == {  # type: ignore[attr-defined]
        (b, lr, s) for b in (1.0, 4.0) for lr in (1e-3, 1e-4) for s in (0, 1)
    }
    assert unbraid("score", out, "--metrics", "mig,unsupervised", "--json", "--csv", tmp_path / "s.csv", "--quiet") == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 8
    assert {row["beta"] for row in rows} == {1.0, 4.0}
    assert {"mig.discrete_mig", "mig.discrete_mig.sampled", "unsupervised.gaussian_total_correlation"} <= set(rows[0])
    with (tmp_path / "s.csv").open() as file:
        assert [row["run"] for row in csv.DictReader(file)] == [row["run"] for row in rows]
    kept = {f: f.read_bytes() for f in out.glob("*/scores.jsonl")}
    assert len(kept) == 8
    assert unbraid("score", out, "--metrics", "mig,unsupervised", "--json", "--quiet") == 0
    assert json.loads(capsys.readouterr().out) == rows
    assert kept == {f: f.read_bytes() for f in out.glob("*/scores.jsonl")}
    assert unbraid("score", out, "--quiet") == 0
    assert "total corr." in capsys.readouterr().out


def test_the_same_train_command_prints_the_same_runs(tmp_path: Path, capsys: Capture) -> None:
    command = ["train", "vae", "--out", tmp_path / "r", *FAST_TRAINING]
    assert unbraid(*command) == 0
    first = capsys.readouterr().out
    assert unbraid(*command) == 0
    assert capsys.readouterr().out == first


def test_progress_is_plain_lines_with_eta_outside_a_terminal(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "unbraid", "train", "beta_vae", "--data", "sprites", "--steps", "100000", "--out"]
    process = subprocess.Popen([*command, str(tmp_path)], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    line = next(line for line in process.stderr if not line.startswith("unbraid: this will take about"))
    process.kill()
    process.wait()
    process.stderr.close()
    assert line.startswith("training: ")
    assert "ETA" in line
    assert "model-steps/s" in line
    assert "loss" in line
    assert "\x1b" not in line


SUFFIXES: dict[str, Callable[[Path, np.ndarray[Any, Any], str], None]] = {
    ".npy": lambda path, a, name: np.save(path, a),
    ".npz": lambda path, a, name: np.savez(path, **{name: a, "other": np.zeros(2)}),
    ".csv": lambda path, a, name: np.savetxt(path, a, delimiter=",", header="a,b,c", comments=""),
}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_score_arrays_from_files(suffix: str, arrays: tuple[Path, Path], tmp_path: Path, capsys: Capture) -> None:
    """Every file format gives the scores that the library computes."""
    codes, factors = (np.load(path) for path in arrays)
    files = [tmp_path / f"codes{suffix}", tmp_path / f"factors{suffix}"]
    for path, array, name in zip(files, (codes, factors), ("codes", "factors"), strict=True):
        SUFFIXES[suffix](path, array, name)
    assert unbraid("score", "--codes", files[0], "--factors", files[1], "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    rows = Rows.sample_disjoint(codes, factors, 10_000, 5_000, 0)
    assert (len(rows.train), len(rows.test), len(set(rows.train) & set(rows.test))) == (600, 300, 0)
    assert row["mig.discrete_mig"] == pytest.approx(metrics.mig(codes, factors)["discrete_mig"])
    assert row["mig.discrete_mig"] > 0.9
    assert set(metrics.DEFAULT_METRICS) == {key.split(".")[0] for key in row} - {
        "label",
        "rows",
        "protocol",
        "train_rows",
        "test_rows",
        "draws",
    }


def test_score_of_arrays_needs_no_torch(arrays: tuple[Path, Path]) -> None:
    code = f"""import sys; from unbraid.cli import main
assert main(["score", "--codes", {str(arrays[0])!r}, "--factors", {str(arrays[1])!r}]) == 0
sys.exit("torch" in sys.modules)"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trane"], "Unknown command 'trane'. Did you mean 'train'?"),
        (["train", "beta_vea"], "Unknown method 'beta_vea'. Did you mean 'beta_vae'?"),
        (["train", "--beta", "4"], "The method comes first"),
        (["train", "beta_vae", "--data", "dsprite"], "Unknown dataset 'dsprite'. Did you mean 'dsprites'?"),
        (["train", "beta_vae", "--betta", "4"], "Did you mean '--beta'?"),
        (["train", "beta_vae", "--gamma", "4"], "Unknown flag of 'unbraid train beta_vae' '--gamma'"),
        (["train", "beta_vae", "--net", "locatelo", "--data", "toy"], "Did you mean 'locatello'?"),
        (["train", "beta_vae", "--net", "locatello", "--data", "toy"], "choose net 'mlp'"),
        (["train", "beta_vae", "--beta", "four"], "'four' is not a number, a comma-separated list, or a range"),
        (["train", "beta_vae", "--beta", "-1", "--data", "toy"], "must be finite and >= 0. Got -1.0 instead"),
        (["train", "beta_vae", "--beta", "nan", "--data", "toy"], "must be finite"),
        (["train", "beta_vae", "--seeds", "4-0"], "Write 0-4"),
        (["train", "beta_vae", "--seeds", "1.5"], "'1.5' is not a whole number"),
        (["train", "beta_vae", "--steps", "-5", "--data", "toy"], "must be finite and >= 0"),
        (["train", "beta_vae", "--batch", "1", "--data", "toy"], "must be finite and >= 2"),
        (["train", "beta_vae", "--latents", "0", "--data", "toy"], "must be finite and >= 1"),
        (["train", "beta_tcvae", "--estimator", "exact", "--data", "toy"], "must be one of weighted, stratified"),
        (["train", "beta_vae", "--device", "tpu"], "must be cpu, or cuda"),
        (["train", "beta_vae", "--data", "toy", "extra"], "Unexpected argument 'extra'"),
        (["list", "method"], "invalid choice: 'method'"),
        (["score"], "either a folder of runs, or both --codes and --factors"),
        (["score", "nowhere"], "No runs in nowhere, which does not exist. Train some with"),
        (["score", "no where"], "--out 'no where'"),
        (["score", "--metrics", "udr", "runs"], "'udr' compares runs with each other. Compute it with: unbraid select"),
        (["score", "--codes", "z.npy"], "either a folder of runs, or both"),
        (
            ["score", "--codes", "nowhere.npy", "--factors", "nowhere.npy"],
            "There is no file nowhere.npy with the codes",
        ),
        (["score", "--codes", "z.txt", "--factors", "v.txt"], "must be a .npy, .npz or .csv file"),
        (["score", "--metrics", "mgi", "runs"], "Unknown metric 'mgi'. Did you mean 'mig'?"),
        (["score", "--train", "0", "runs"], "--train: must be a whole number from 2 to 10000000"),
        (["traverse", "nowhere"], "No runs in nowhere"),
        (["traverse"], "The following arguments are required: RUNS"),
        (["traverse", "runs", "--columns", "1"], "--columns: must be a whole number from 2 to 1000"),
        (["report", "runs", "--best", "0"], "--best: must be a whole number from 1 to 1000"),
        (["analyse"], "The following arguments are required: RUNS."),
        (
            ["study", "small", "--plan", "--only", "method=nope"],
            "None of the 72 runs has method=nope. They have method=",
        ),
    ],
)
def test_wrong_arguments_give_one_line(arguments: list[str], message: str, capsys: Capture, tmp_path: Path) -> None:
    os.chdir(tmp_path)
    assert message in error_line(capsys, *arguments)
    assert not any(tmp_path.rglob("run.json"))


def test_wrong_arrays_give_one_line(arrays: tuple[Path, Path], tmp_path: Path, capsys: Capture) -> None:
    codes, factors = (np.load(path) for path in arrays)

    def error_of(z: Any, v: Any) -> str:
        np.save(tmp_path / "a.npy", z)
        np.save(tmp_path / "b.npy", v)
        return error_line(capsys, "score", "--codes", tmp_path / "a.npy", "--factors", tmp_path / "b.npy")

    assert "must have the same number of rows. Got 890 and 900" in error_of(codes[:890], factors)
    broken = codes.copy()
    broken[7, 2] = np.nan
    assert "finite" in error_of(broken, factors)
    assert "Factors must be finite" in error_of(codes, np.full(factors.shape, np.inf))
    (tmp_path / "a.npy").write_bytes((tmp_path / "a.npy").read_bytes()[:200])
    assert "cannot be read" in error_line(capsys, "score", "--codes", tmp_path / "a.npy", "--factors", arrays[1])
    np.save(tmp_path / "o.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    assert "cannot be read" in error_line(capsys, "score", "--codes", tmp_path / "o.npy", "--factors", arrays[1])


def test_other_runs_and_damaged_files_give_one_line(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "r"
    assert unbraid("train", "vae", "--out", out, *FAST_TRAINING) == 0
    assert "holds 1 other run" in error_line(capsys, "train", "beta_vae", "--out", out, *FAST_TRAINING)
    (weights,) = out.glob("*/weights.safetensors")
    weights.write_bytes(weights.read_bytes()[:-10])
    assert "is damaged or incomplete" in error_line(capsys, "score", out)
    assert "is damaged or incomplete" in error_line(capsys, "train", "vae", "--out", out, *FAST_TRAINING)
    (tmp_path / "file").write_text("")
    assert "Could not create the folder" in error_line(
        capsys, "train", "vae", "--out", tmp_path / "file" / "x", *FAST_TRAINING
    )


def test_messages_with_commands_can_be_pasted(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "my runs"
    assert unbraid("train", "vae", "--out", out, *FAST_TRAINING) == 0
    (next_line,) = [line for line in capsys.readouterr().out.splitlines() if "Next: " in line]
    assert f"unbraid score '{out}'   or" in next_line
    (file,) = out.glob("*/run.json")
    assert error_line(capsys, "score", file).endswith(f"or a run folder, such as {file.parent}.\n")


def test_the_folder_of_a_csv_file_is_created(arrays: tuple[Path, Path], tmp_path: Path) -> None:
    file = tmp_path / "new" / "scores.csv"
    arguments = ["--codes", arrays[0], "--factors", arrays[1], "--metrics", "mig", "--no-bounds", "--quiet"]
    assert unbraid("score", *arguments, "--csv", file) == 0
    assert "mig.discrete_mig" in file.read_text()


def test_a_full_disk_gives_one_line(tmp_path: Path) -> None:
    """A limit on the size of files stands for a full disk, in a process of its own."""
    script = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000));"
        "from unbraid.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-B", "-c", script, "train", "vae", "--out", str(tmp_path), *FAST_TRAINING]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("unbraid: error: Could not write")
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.rglob("*.tmp"))
    assert unbraid("train", "vae", "--out", tmp_path, *FAST_TRAINING) == 0


def test_partly_trained_runs_are_not_scored(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    from unbraid.training.stack import Stack

    advance = Stack.advance

    def stopped(self: Stack) -> None:
        if self.step == 2:
            raise KeyboardInterrupt
        advance(self)

    with monkeypatch.context() as patch:
        patch.setattr(Stack, "advance", stopped)
        assert unbraid("train", "vae", "--out", tmp_path, "--checkpoint-seconds", "0", *FAST_TRAINING) == 130
    assert "Run the same command again" in capsys.readouterr().err
    assert "can be scored: 0 diverged, 1 not fully trained" in error_line(capsys, "score", tmp_path)
    assert unbraid("train", "vae", "--out", tmp_path, "--add", "--seeds", "7", *FAST_TRAINING) == 0
    assert unbraid("score", tmp_path, "--metrics", "mig", "--quiet") == 0
    assert "left out: 0 diverged, 1 not fully trained" in capsys.readouterr().err


def test_traverse_writes_pictures(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "r"
    command = ["--data", "sprites", "--steps", "1", "--batch", "8", "--latents", "4", "--net", "mlp", "--quiet"]
    assert unbraid("train", "vae", "--out", out, *command) == 0
    assert unbraid("traverse", out, "--columns", "5") == 0
    (png,) = out.glob("*/traversal.png")
    (gif,) = out.glob("*/traversal.gif")
    with Image.open(png) as picture:
        width, height = picture.size
        assert height == 5 * (64 + 2) + 2  # the example and four latents
        assert width > 5 * 64
        assert len(np.unique(np.asarray(picture))) > 10
    with Image.open(gif) as picture:
        assert picture.n_frames == 24  # type: ignore[attr-defined]
    assert unbraid("train", "vae", "--out", tmp_path / "t", *FAST_TRAINING) == 0
    assert "needs images" in error_line(capsys, "traverse", tmp_path / "t")


@pytest.mark.parametrize(
    ("text", "values"),
    [("3", [3]), ("0-3", [0, 1, 2, 3]), ("1,4,16", [1, 4, 16]), ("0-1,5", [0, 1, 5])],
)
def test_lists_and_ranges_of_integers(text: str, values: list[int]) -> None:
    assert parse_integers(text) == values


@pytest.mark.parametrize(
    ("text", "values"),
    [("1e-4", [1e-4]), ("1,4,16", [1, 4, 16]), ("0:1:5", [0, 0.25, 0.5, 0.75, 1]), ("-1", [-1]), ("1-3", [1, 2, 3])],
)
def test_lists_and_ranges_of_numbers(text: str, values: list[float]) -> None:
    assert parse_numbers(text) == values


@pytest.mark.slow
def test_demo_shows_disentanglement(tmp_path: Path, capsys: Capture) -> None:
    """As the README says: one latent each encodes x and y, and MIG is clearly above that of an untrained encoder."""
    assert unbraid("demo", "--out", tmp_path) == 0
    text = capsys.readouterr().out
    for name in (*demo.DEMO_METRICS, "untrained", "traversal.png", demo.ZOO_MODEL):
        assert name.replace("unsupervised", "total corr.") in text
    import unbraid as ub

    rows = {row["label"]: row for row in ub.score(ub.load_runs(tmp_path / "runs"), ["mig"], codes=["mean"], quiet=True)}
    page = (tmp_path / "report.html").read_text()
    assert demo.copied_model(tmp_path / "zoo") == tmp_path / "zoo", "a second demo finds the copy of the first"
    (model,) = ub.load_runs(tmp_path / "zoo")
    assert all(f'data-weights="{run}"' in page for run in (model.id, *(row["run"] for row in rows.values())))
    chance = next(row["mig.discrete_mig"] for label, row in rows.items() if label.startswith("untrained"))
    trained = [row["mig.discrete_mig"] for label, row in rows.items() if not label.startswith("untrained")]
    assert len(trained) == len(demo.METHODS) >= 2
    assert min(trained) > 3 * chance
    data = ub.data.load("sprites")
    for found in ub.load_runs(tmp_path / "runs"):
        if found.spec.steps:
            table = {name: (best, share, second) for name, best, share, _, second in demo.information_rows(found, data)}
            assert table["x"][0] != table["y"][0]
            assert all(table[axis][1] > 3 * table[axis][2] for axis in "xy")
