"""Hostile names, and the places in files and folders from which commands and pages read names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from faults.commands import TINY
from faults.processes import run

TEXTS = (
    "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\u202egnp.exe", "\x9b2J", "a\rb", "a\x08\x08c", "[/red]", "[bold]",
    "<img src=x onerror=stolen=1>", "</script><script>stolen=1</script>", "'\"><svg onload=stolen=1>", "{{7*7}}",
    "javascript:stolen=1", "<!--", "]]>", "&lt;b&gt;", "%s%n", "=1+1", "../../x", "a b", "é你好", "x" * 200,
)  # fmt: skip
READING: list[tuple[str, ...]] = [
    ("index", "runs"),
    ("compare", "runs", "others"),
    ("analyse", "runs", "--out", "new"),
    ("train", "vae", *TINY, "--data", "images", "--steps", "3", "--out", "runs", "--add"),
    ("score", "runs", "--metrics", "mig", "--no-bounds"),
    ("select", "runs", "--examples", "20"),
    ("appearance", "runs", "--examples", "100", "--samples", "2"),
    ("report", "runs", "--no-score", "--out", "new.html"),
    ("data", "show", "images", "--out", "new.png"),
    ("inspect", "runs", "--examples", "4", "--out", "new"),
    ("traverse", "runs", "--columns", "2", "--out", "new"),
]
"""Commands that print what they read."""
CONTROLS = {*map(chr, range(32)), *map(chr, range(127, 160)), "\u202e"} - {"\n", "\t"}


def has_controls(text: str) -> bool:
    """Return whether a text has characters that control a terminal."""
    return not CONTROLS.isdisjoint(text)


def write_scored_run(folder: Path) -> None:
    """Train and score a run on the folder of images, in the folder `runs`."""
    for line in (
        ("train", "vae", *TINY, "--data", "images", "--out", "runs"),
        ("score", "runs", "--metrics", "mig", "--no-bounds", "--quiet"),
        ("index", "runs"),
    ):
        process = run(line, folder)
        assert process.status == 0, process.output


def _in_labels(folder: Path, text: str) -> None:
    cell = '"' + text.replace('"', '""') + '"'
    rows = "\n".join(f"{i}.png,{i % 2}" for i in range(8))
    (folder / "images" / "labels.csv").write_text(f"file,{cell}\n{rows}", newline="")


def _in_values(folder: Path, text: str) -> None:
    cell = '"' + text.replace('"', '""') + '"'
    rows = "\n".join(f"{i}.png,{cell if i % 2 else 'b'}" for i in range(8))
    (folder / "images" / "labels.csv").write_text(f"file,a\n{rows}", newline="")


def _change_line(name: str, change: Callable[[dict[str, object], str], object]) -> Callable[[Path, str], None]:
    """Return a function that changes the last line of a .jsonl file of the run."""

    def write(folder: Path, text: str) -> None:
        file = next(folder.glob(f"runs/*/{name}"))
        *before, last = file.read_text().splitlines()
        content = json.loads(last)
        change(content, text)
        file.write_text("\n".join([*before, json.dumps(content)]) + "\n")

    return write


def _in_run_file(folder: Path, text: str) -> None:
    file = next(folder.glob("runs/*/run.json"))
    content = json.loads(file.read_text())
    content["machine"] = content["commit"] = content["versions"] = text
    file.write_text(json.dumps(content))


def _in_spec(folder: Path, text: str) -> None:
    """Name other data, with the id that belongs to them."""
    from unbraid.errors import UserError
    from unbraid.runs.spec import RunSpec

    file = next(folder.glob("runs/*/run.json"))
    content = json.loads(file.read_text())
    content["spec"]["data"] = text
    try:
        content["id"] = RunSpec.from_dict(content["spec"]).id
    except UserError:
        return
    file.write_text(json.dumps(content))
    file.parent.rename(file.parent.with_name(content["id"]))


def _in_study(folder: Path, text: str) -> None:
    identity = next(folder.glob("runs/*/run.json")).parent.name
    (folder / "runs" / "study.json").write_text(json.dumps({"places": {identity: {"index": 0, "variant": text}}}))


def _in_divergence(folder: Path, text: str) -> None:
    run_file = next(folder.glob("runs/*/run.json"))
    run_file.with_name("diverged.json").write_text(json.dumps({"step": 1, "term": text}))


PLACES: dict[str, Callable[[Path, str], None]] = {
    "factor": _in_labels,
    "label": _in_values,
    "metric": _change_line("scores.jsonl", lambda line, text: line.update(metric=text)),
    "score": _change_line("scores.jsonl", lambda line, text: line.update(values={text: 0.5})),
    "codes": _change_line("scores.jsonl", lambda line, text: line.update(codes=text)),
    "scored_data": _change_line("scores.jsonl", lambda line, text: line.update(data=text)),
    "term": _change_line("log.jsonl", lambda line, text: line.update({text: 0.5})),
    "provenance": _in_run_file,
    "data": _in_spec,
    "variant": _in_study,
    "divergence": _in_divergence,
}
"""Functions that write a text to a place in the folder of a case."""
