"""Ways to damage a file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from faults.exemptions import ENDLESS_KEYS

JSON_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1.5, float("nan"), float("inf"), 2**31, 2**63, 2**64, 10**400, "", "text", "\ud800", "\0", [],
    [1, "a", None], {}, {"a": {"b": []}}, ["a"] * 1000, "x" * 10_000, "../..", "/etc", -0.0, 1e308, "os:system",
)  # fmt: skip
TEXT_PARTS = (
    "", "\n", "{", "[", "[[", "nan", "inf", "-1", "é", "\0", "a,b", '"', "=", "seeds = [0, 1]", "betta = 4",
    'method = ["beta_vae"]', "seeds = -1", "seeds = 99999999999", "data = 3", "steps = nan",
    "[[method]]",
    'name = "os:system"', "9" * 400, "1e999", ",,,", "x" * 5000, "net = 5", "batch = 0.5", "method = 1", "data = []",
)  # fmt: skip

CONTENTS = (
    b"", b"\0" * 100, b"\xff" * 100, b"null", b"[]", b"{}", b"1", b'"a"', b"[" * 100_000, b"{}\n[]\n",
    b'{"a":' * 50_000, b"PK\x05\x06" + bytes(18), b"\x93NUMPY\x01\x00\x0e\x00{'descr': 3}  \n",
    b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999, 99), }",
    (2**62).to_bytes(8, "little") + b"{}", (1).to_bytes(8, "little") + b"8",
)  # fmt: skip
KINDS = ("remove", "folder", "pipe", "loop", "device", "dangling")


def damage_file(path: Path, random: Random) -> str:
    """Damage a file in place, and return what was done."""
    structured = path.suffix in (".json", ".jsonl")
    ways: list[Callable[[Path, Random], None]] = [change_json] * 4 if structured else []
    if path.suffix in (".toml", ".csv", ".py") or path.name == "SHA256SUMS":
        ways += [change_lines] * 3
    if path.suffix in (".safetensors", ".npy", ".npz"):
        ways += [change_header] * 2
    way = random.choice([*ways, truncate, flip_bytes, replace_content, replace_kind])
    way(path, random)
    return way.__name__


def truncate(path: Path, random: Random) -> None:
    """Cut a file."""
    os.truncate(path, random.choice([0, 1, random.randrange(path.stat().st_size + 1)]))


def flip_bytes(path: Path, random: Random) -> None:
    """Change one to eight bytes."""
    content = bytearray(path.read_bytes())
    for _ in range(random.choice([1, 1, 2, 8])):
        if content:
            end = random.choice([min(200, len(content)), len(content)])
            content[random.randrange(end)] = random.randrange(256)
    path.write_bytes(content)


def replace_content(path: Path, random: Random) -> None:
    """Replace the whole content."""
    path.write_bytes(random.choice(CONTENTS))


def replace_kind(path: Path, random: Random) -> None:
    """Replace a file by a folder, a pipe, a link or a device, or remove it."""
    replace_by(path, random.choice(KINDS))


def replace_by(path: Path, kind: str) -> None:
    """Replace a file by one of `KINDS`."""
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind != "remove":
        path.symlink_to({"loop": path.name, "device": "/dev/zero", "dangling": "nowhere"}[kind])


def change_lines(path: Path, random: Random) -> None:
    """Replace, repeat, remove or insert a line of text."""
    lines = path.read_text(errors="replace").splitlines() or [""]
    position = random.randrange(len(lines))
    action = random.choice(["replace", "insert", "remove", "repeat", "cells"])
    if action == "replace":
        lines[position] = random.choice(TEXT_PARTS)
    elif action == "insert":
        lines.insert(position, random.choice(TEXT_PARTS))
    elif action == "remove":
        del lines[position]
    elif action == "repeat":
        lines.insert(position, lines[position])
    else:
        cells = lines[position].split(",")
        cells[random.randrange(len(cells))] = random.choice(TEXT_PARTS)
        lines[position] = ",".join(cells)
    path.write_text("\n".join(lines), errors="replace")


def change_header(path: Path, random: Random) -> None:
    """Replace a number or a word in the readable part of a binary file."""
    content = path.read_bytes()
    old = random.choice([b"F32", b"shape", b"data_offsets", b"<f8", b"<i8", b"(64, 2)", b"codes", b"unbraid", b"step"])
    new = random.choice([b"F64", b"|O8", b"<f4", b"(-1, 2)", b"", b"\xff", b"(64,)", b"(9999999999, 9999999)", b"<U4"])
    path.write_bytes(content.replace(old, new, 1))


def change_json(path: Path, random: Random) -> None:
    """Change, add or remove one value of a JSON file, or of one line of a .jsonl file."""
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    number = random.randrange(len(lines)) if lines else 0
    try:
        content = json.loads(lines[number])
    except (ValueError, IndexError):
        return
    lines[number] = json.dumps(changed(content, random))
    path.write_text("\n".join(lines) + "\n")


def changed(content: Any, random: Random) -> Any:
    """Return a copy of JSON content with one value changed, added or removed."""
    if random.random() < 0.15 or not isinstance(content, dict | list) or not content:
        return random.choice(JSON_VALUES)
    copy = content.copy()
    key = random.choice(list(copy)) if isinstance(copy, dict) else random.randrange(len(copy))
    action = random.random()
    if action < 0.15:
        del copy[key]
    elif action < 0.25 and isinstance(copy, dict):
        copy[random.choice(["", "extra", "__class__", "name", "\ud800"])] = random.choice(JSON_VALUES)
    elif action < 0.3:
        nested: Any = []
        for _ in range(500):
            nested = [nested]
        copy[key] = nested
    elif key in ENDLESS_KEYS:
        copy[key] = random.choice([None, -1, 1.5, "a", [], 2**64, float("nan")])
    else:
        copy[key] = changed(copy[key], random)
    return copy
