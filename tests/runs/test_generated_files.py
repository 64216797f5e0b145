"""Files with any part replaced by something else are read or give a UserError of one line, never another exception."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest

from support.training import quick_train
from unbraid.errors import UserError
from unbraid.runs.folder import find_runs
from unbraid.runs.results import load_results, write_results
from unbraid.runs.scores import add_scores, read_protocol
from unbraid.scoring.comparison import Side

JUNK: list[Any] = [
    None, True, -1, 0, 1.5, 10**30, float("nan"), float("inf"), "", "x", "\0", "\ud800", "a:b", "../..", [], {}, [[]],
    {"": ""}, [1, "x"], {"name": "vae"}, "é" * 5000,
]  # fmt: skip
FILES = ("run.json", "log.jsonl", "scores.jsonl", "diverged.json", "../study.json")
CASES = 30  # per file


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that has all files."""
    (trained,) = quick_train(tmp_path_factory.mktemp("runs"))
    assert trained.path is not None
    record = {"metric": "mig", "codes": "mean", "rows": {"train": 3}, "seed": 0, "data": "toy"}
    add_scores(trained.path, [{**record, "values": {"discrete_mig": 0.25}}])
    (trained.path / "diverged.json").write_text('{"step": 3, "term": "kl"}')
    places = {trained.id: {"index": 0, "strength": 4.0, "level": 0}}
    (trained.path / "../study.json").write_text(json.dumps({"places": places, "protocol": {"train": 10, "test": 5}}))
    return trained.path


def mutated(value: Any, generator: random.Random) -> Any:
    """Return a copy in which one entry is replaced by junk, removed or renamed."""
    if not isinstance(value, list | dict) or not value or generator.random() < 0.1:
        return generator.choice(JUNK)
    changed = copy.deepcopy(value)
    key = generator.choice(list(changed) if isinstance(changed, dict) else range(len(changed)))
    action = generator.random()
    if action < 0.15:
        del changed[key]
    elif action < 0.25 and isinstance(changed, dict):
        changed[generator.choice(["", "x", "\ud800"])] = changed.pop(key)
    else:
        changed[key] = mutated(changed[key], generator)
    return changed


def read_everything(run: Path) -> None:
    """Do what `index`, `compare`, `score` and `train` do with the files of a run."""
    for folder in find_runs(run.parent):
        folder.read_log()
        folder.divergence()
    read_protocol(run)
    load_results(write_results(run.parent))
    Side.read("a", run.parent)


@pytest.mark.parametrize("name", FILES)
def test_wrong_content_never_ends_in_another_exception(name: str, run: Path) -> None:
    file, generator, errors = run / name, random.Random(name), 0
    before = file.read_text()
    lines = name.endswith("jsonl")
    content = [json.loads(line) for line in before.splitlines()] if lines else json.loads(before)
    read_everything(run)
    try:
        for _ in range(CASES):
            changed = mutated(content, generator)
            texts = changed if lines and isinstance(changed, list) else [changed]
            file.write_text("\n".join(map(json.dumps, texts)))
            try:
                read_everything(run)
            except UserError as error:
                errors += 1
                assert "\n" not in str(error)
    finally:
        file.write_text(before)
    assert errors > CASES // 4
