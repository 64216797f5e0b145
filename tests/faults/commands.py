"""The commands: a small valid command line for each, the files that they read, and their flags."""

from __future__ import annotations

import argparse
import functools
from pathlib import Path
from unittest import mock

import numpy as np

from unbraid.cli.data import ACTIONS
from unbraid.cli.dispatch import COMMANDS, dispatch, main
from unbraid.cli.parser import Parser
from unbraid.errors import UserError
from unbraid.methods import METHODS
from unbraid.runs.folder import RunFolder

TINY = ["--data", "toy", "--steps", "2", "--batch", "4", "--latents", "2", "--quiet"]
RUN = "RUN"  # is replaced by the folder of a run
LINES: dict[str, list[list[str]]] = {
    "demo": [["--steps", "x"]],
    "list": [[], ["methods"]],
    "train": [
        *([method, *TINY, "--out", "new"] for method in METHODS),
        ["vae", *TINY, "--seeds", "0,1", "--out", "runs", "--add"],
        ["vae", *TINY, "--steps", "6", "--out", "partial"],
        ["vae", *TINY, "--data", "images", "--out", "new"],
        ["vae", *TINY, "--data", "arrays.npz", "--out", "new"],
    ],
    "score": [
        ["runs", "--metrics", "mig", "--no-bounds", "--quiet"],
        ["--codes", "codes.npy", "--factors", "factors.npy", "--metrics", "mig,sap", "--no-bounds", "--quiet"],
        ["--codes", "arrays.npz", "--factors", "factors.csv", "--metrics", "mig", "--no-bounds", "--quiet"],
    ],
    "adopt": [
        ["model.onnx", "--data", "toy", "--name", "mine", "--out", "new", "--quiet"],
        ["model.pt", "--data", "toy", "--name", "mine", "--out", "new", "--trust", "--quiet"],
    ],
    "select": [["runs", "--examples", "20", "--quiet"]],
    "compare": [["runs", "others", "--quiet"]],
    "reasoning": [
        ["runs", "--steps", "2", "--batch", "2", "--test", "4", "--relations", "2", "--out", "new", "--quiet"],
    ],
    "study": [
        # Without --steps, a damaged file that lacks the number of steps would ask for the default of 300,000.
        ["study.toml", "--steps", "2", "--out", "new", "--metrics", "mig", "--samples", "50", "--quiet"],
        ["study.json", "--steps", "2", "--out", "new", "--metrics", "none", "--quiet"],
        ["locatello2019", "--only", "method=vae", "--data", "toy", "--steps", "2", "--out", "new", "--seeds", "0",
         "--metrics", "none", "--quiet"],
    ],
    "analyse": [["runs", "--out", "new"], ["results.csv", "--out", "new"]],
    "reproduce": [["locatello2019", "--runs", "runs"], ["locatello2019", "--runs", "results.csv"]],
    "appearance": [["runs", "--examples", "100", "--samples", "2", "--quiet"]],
    "share": [["export", "runs", "new"], ["import", "published", "new"], ["check", "published"]],
    "zoo": [["list"], ["show", "dsprites/ada_gvae"], ["copy", "dsprites/ada_gvae", "new"]],
    "index": [["runs"]],
    "data": [
        ["list"], ["list", "cars3d"], ["get", "cars3d", "--url", "http://127.0.0.1:9/", "--quiet"], ["check", "toy"],
        ["show", "toy", "--out", "new.png"], ["show", "images", "--out", "new.png"],
        ["modify", "sprites", "--steps", "1", "--batch", "2", "--samples", "1", "--out", "new.safetensors", "--quiet"],
    ],
    "report": [["runs", "--no-score", "--out", "new.html", "--quiet"]],
    "explore": [["runs", "--best", "1"]],
    "export": [[RUN, "--format", "torch", "--out", "new", "--quiet"]],
    "traverse": [["runs", "--columns", "2", "--out", "new"]],
    "swap": [["runs", "--data", "images", "--examples", "2", "--latents", "0,1", "--out", "new"]],
    "tune": [["--show"], ["--reset"]],
    "diagnose": [["toy", "--places", "4", "--examples", "20"]],
    "inspect": [["runs", "--examples", "4", "--circle", "a", "--out", "new"]],
    "samples": [["runs", "--count", "2", "--out", "new.png"]],
    "reconstruct": [["runs", "--examples", "2", "--out", "new.png"]],
}  # fmt: skip
INPUT_FILES = (
    "*/run.json", "*/scores.jsonl", "*/log.jsonl", "*/weights.safetensors", "*/checkpoint.safetensors", "study.json",
    "results.sqlite", "SHA256SUMS", "*/diverged.json",
)  # fmt: skip
"""Files in folders that a command line names."""


class ParserFoundError(Exception):
    """Carries the parser of a command out of its `main`."""


@functools.cache
def command_flags(words: tuple[str, ...]) -> tuple[argparse.Action, ...]:
    """Return the flags of a command, such as `("score",)`, `("train", "vae")` or `("data", "get")`."""

    def parse_all(self: Parser, arguments: object) -> argparse.Namespace:
        raise ParserFoundError(self)

    with mock.patch.object(Parser, "parse_all", parse_all):
        try:
            dispatch(words)
        except ParserFoundError as found:
            return tuple(action for action in found.args[0]._actions if action.option_strings)
        except UserError:  # an unknown method or action
            pass
    return ()


def flag_words(line: list[str]) -> tuple[str, ...]:
    """Return the first words of a command line, which determine its flags."""
    return tuple(line[: 2 if line[0] in ("train", "data") else 1])


def check_coverage() -> None:
    """Raise an error if a command or an action of `unbraid data` has no command line here."""
    missing = {*COMMANDS} - {*LINES} | {*ACTIONS} - {line[0] for line in LINES["data"]}
    assert not missing, f"tests/faults/commands.py has no command line for {missing}"


def write_files(folder: Path) -> None:
    """Write the files that the command lines name: runs, arrays, images, studies and a published folder."""
    for seeds, out in (("0,1", "runs"), ("2,3", "others")):
        assert main(["train", "vae", *TINY, "--seeds", seeds, "--out", str(folder / out)]) == 0
        assert main(["score", str(folder / out), "--metrics", "mig", "--no-bounds", "--quiet"]) == 0
    write_partial_run(folder)
    assert main(["index", str(folder / "runs")]) == 0
    assert main(["share", "export", str(folder / "others"), str(folder / "published")]) == 0
    factors = np.stack(np.meshgrid(np.arange(8), np.arange(8)), -1).reshape(-1, 2)
    np.save(folder / "factors.npy", factors)
    np.save(folder / "codes.npy", factors + 0.5)
    np.savez(folder / "arrays.npz", codes=factors + 0.5, images=factors + 0.5)
    (folder / "factors.csv").write_text("\n".join(f"{a},{b}" for a, b in factors))
    (folder / "results.csv").write_text("run,data,method,seed,status,mig.discrete_mig\na,toy,vae,0,done,0.5\n")
    (folder / "study.toml").write_text('data = ["toy"]\nsteps = 2\nbatch = 4\nlatents = 2\n[[method]]\nname = "vae"\n')
    (folder / "study.json").write_text(
        '{"data": "toy", "seeds": 1, "steps": 2, "batch": 4, "latents": 2, "method": {"name": "beta_vae", "beta": [1]}}'
    )
    write_images(folder)
    write_models(folder)


def write_models(folder: Path) -> None:
    """Write an encoder of toy data with two latents as an ONNX file and as a TorchScript file."""
    import onnx
    import torch
    from onnx import TensorProto, helper, numpy_helper

    from unbraid.data import load

    inputs = load("toy").shape[0]
    weight = numpy_helper.from_array(np.ones((inputs, 2), np.float32), "w")
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size]) for name, size in (("x", inputs), ("z", 2))
    ]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["z"])], "encoder", ends[:1], ends[1:], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), folder / "model.onnx")
    torch.jit.save(torch.jit.trace(torch.nn.Linear(inputs, 2), torch.zeros(1, inputs)), folder / "model.pt")


def write_images(folder: Path) -> None:
    """Write a folder of eight images with labels."""
    from PIL import Image

    (folder / "images").mkdir()
    for i in range(8):
        Image.fromarray(np.full((8, 8), 30 * i, np.uint8)).save(folder / "images" / f"{i}.png")
    (folder / "images" / "labels.csv").write_text("file,a\n" + "\n".join(f"{i}.png,{i % 2}" for i in range(8)))


def write_partial_run(folder: Path) -> None:
    """Write a folder with a run that has a checkpoint and is not finished."""
    line = ["train", "vae", *TINY, "--steps", "6", "--checkpoint-seconds", "0", "--out", str(folder / "partial")]
    with mock.patch.object(RunFolder, "finish", side_effect=UserError("stopped")):
        assert main(line) == 2
    assert list(folder.glob("partial/*/checkpoint.safetensors"))
