"""Part "hostile": folders, archives and names that try to run code, to write elsewhere, or to control the terminal."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import stat
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

from faults.commands import LINES, RUN, TINY, write_images
from faults.hostile_names import PLACES, READING, TEXTS, has_controls, write_scored_run
from faults.judging import find_fault
from faults.parts import Outcome, Part
from faults.processes import Process, run, run_function, start
from support.hostile_folders import TRICKS
from support.own_code import SOURCE

MODULE = "canary"
RAN = f"{MODULE}.imported"  # the file that the module writes when it is imported
SECRET = "secret"  # a file beside the folder of a case, which nothing may change
ESCAPED = Path(tempfile.gettempdir()) / "unbraid-escaped"  # a file outside of every case
NAMES = ("../escaped", str(ESCAPED), "a/../../escaped", "..\\escaped", "C:\\escaped", "\x1b[31m", "x" * 300)
LINK, HARD_LINK, DEVICE, PIPE = tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE
KINDS = ("code", "code", "pickle", "share", "archive", "names", "names")


@dataclass(frozen=True)
class HostileCase:
    """An attack.

    Attributes:
        kind: What is attacked.
        trick: The way in which the folder, the archive or the name is hostile.
        line: The command line that meets it.
    """

    kind: str
    trick: str
    line: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind}: {self.trick!r}: unbraid {' '.join(self.line)}"


class RunsWhenUnpickled:
    """An object whose unpickling writes a file."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, str]]:
        """Return the call that unpickling makes."""
        return open, (RAN, "w")


class Hostile(Part):
    """Part "hostile" of the campaign."""

    name = "hostile"
    weight = 0.05
    unit = "attacks"

    def prepare(self, folder: Path) -> None:
        """Train runs with code of a module, publish runs, and train a run on images."""
        self.template, self.folder = folder / "template", folder / "outside" / "case"
        self.template.mkdir()
        (self.template / f"{MODULE}.py").write_text(SOURCE)
        for out, place in (("by_module", MODULE), ("by_file", f"./{MODULE}.py")):
            line = ("train", f"{place}:Mine", *TINY, "--net", f"{place}:pair", "--seeds", "0,1", "--out", out)
            self.must_run(line, lambda: sys.path.insert(0, "."))
        self.must_run(("train", "vae", *TINY, "--seeds", "0,1", "--out", "others"))
        self.must_run(("share", "export", "others", "published"))
        write_images(self.template)
        write_scored_run(self.template)
        (self.template / RAN).unlink()

    def must_run(self, line: tuple[str, ...], prepare: Callable[[], None] = lambda: None) -> None:
        """Run a command of the preparation."""
        process = run(line, self.template, prepare)
        assert process.status == 0, process.output

    def make_case(self, random: Random) -> HostileCase:
        """Generate an attack and a command that meets it."""
        kind = random.choice(KINDS)
        tricks, lines = CHOICES[kind]
        trick = random.choice(tricks)
        if kind == "names":
            trick = f"{trick} {random.choice(TEXTS)}"
        return HostileCase(kind, trick, random.choice(lines))

    def run(self, case: HostileCase) -> Outcome:
        """Run a case in a copy of the template. Nothing beside the copy may change, and no code may run."""
        self.folder.parent.mkdir()
        shutil.copytree(self.template, self.folder, symlinks=True)
        (self.folder.parent / SECRET).write_text("secret")
        try:
            fault, output = ATTACKS[case.kind](self.folder, case)
            return Outcome(fault or self.find_damage(), output)
        finally:
            shutil.rmtree(self.folder.parent)

    def find_damage(self) -> str:
        """Return which traces an attack has left, or an empty text."""
        if (self.folder / RAN).exists():
            return "code was run"
        names = sorted(path.name for path in self.folder.parent.iterdir())
        if names != ["case", SECRET] or ESCAPED.exists():
            return f"files outside of the folder: {names}"
        return ""


def judge(process: Process) -> str:
    """Return what is wrong with the end of a command, or an empty text."""
    assert process.status is not None
    return find_fault(process.line, process.status, process.output)


def attack_with_code(folder: Path, case: HostileCase) -> tuple[str, str]:
    """Let a command work on runs whose method and network lie beside them, and whose folder is on the import path."""
    chosen = next((folder / case.trick).glob("*/run.json")).parent.relative_to(folder)
    names = {"runs": case.trick, RUN: str(chosen)}
    process = run([names.get(word, word) for word in case.line], folder, prepare_code)
    return judge(process), process.output


def prepare_code() -> None:
    """Put the folder of the case on the import path, and do not serve pages."""
    from unbraid.reporting.server import Server

    sys.path.insert(0, ".")
    Server.wait = lambda self: None  # type: ignore[method-assign]


def attack_with_pickle(folder: Path, case: HostileCase) -> tuple[str, str]:
    """Let a command read arrays of objects."""
    array = np.array([[RunsWhenUnpickled()] * 2] * 8, dtype=object)
    np.save(folder / "codes.npy", array, allow_pickle=True)
    np.save(folder / "factors.npy", np.zeros((8, 2), np.int64))
    (folder / "factors.csv").write_text("0,0\n" * 8)
    if case.trick == "npy":
        (folder / "arrays.npz").write_bytes(pickle.dumps(RunsWhenUnpickled()))
    else:
        np.savez(folder / "arrays.npz", codes=array, images=array)
    process = run(case.line, folder)
    return judge(process) or ("" if process.status == 2 else f"status {process.status}"), process.output


def attack_share(folder: Path, case: HostileCase) -> tuple[str, str]:
    """Let `share` check or import a published folder that was altered. It must refuse."""
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    TRICKS[case.trick](folder / "published", elsewhere)
    process = run(case.line, folder)
    accepted = process.status == 0 or (folder / "new").exists()
    return judge(process) or ("an altered folder was accepted" if accepted else ""), process.output


Member = Callable[[tarfile.TarInfo], None]


def _kind(kind: bytes) -> Member:
    def change(info: tarfile.TarInfo) -> None:
        info.type, info.linkname = kind, f"../{SECRET}"

    return change


def _name(name: str) -> Member:
    def change(info: tarfile.TarInfo) -> None:
        info.name = name

    return change


def _size(info: tarfile.TarInfo) -> None:
    info.size = 2**40


MEMBERS: dict[str, Member] = {
    **{name[:30]: _name(name) for name in NAMES},
    **{f"member {kind!r}": _kind(kind) for kind in (LINK, HARD_LINK, DEVICE, PIPE)},
    "huge": _size,
}
"""Changes of a member of an archive. A zip archive has only those that it can express."""


def attack_with_archive(folder: Path, case: HostileCase) -> tuple[str, str]:
    """Let the readers of archives read a hostile one. Names inside must not be followed."""
    from unbraid.data.files.archives import read_tar_files, read_zip_files

    info = tarfile.TarInfo("data/cars/a.mat")
    info.size = 4
    MEMBERS[case.trick](info)
    path = folder / f"archive.{case.line[0]}"
    if case.line[0] == "tar":
        path.write_bytes(info.tobuf() + b"evil" + bytes(10_240))
        process = run_function(lambda: list(read_tar_files(path)), folder)
    else:
        mode = {LINK: stat.S_IFLNK, DEVICE: stat.S_IFCHR, PIPE: stat.S_IFIFO}.get(info.type, stat.S_IFREG)
        member = zipfile.ZipInfo(info.name)
        member.external_attr = (mode | 0o644) << 16
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr(member, b"evil")
        path.write_bytes(buffer.getvalue())
        process = run_function(lambda: list(read_zip_files(path)), folder)
    return judge(process), process.output


def attack_with_names(folder: Path, case: HostileCase) -> tuple[str, str]:
    """Let a command print names with control characters and markup."""
    place, _, text = case.trick.partition(" ")
    PLACES[place](folder, text)
    with tempfile.TemporaryFile() as printed:
        process = start(case.line, folder, output=os.dup(printed.fileno()))
        process.wait()
        printed.seek(0)
        shown = printed.read().decode(errors="replace")
    controls = has_controls(shown + process.output)
    return judge(process) or ("control characters on the terminal" if controls else ""), process.output


ATTACKS: dict[str, Callable[[Path, HostileCase], tuple[str, str]]] = {
    "code": attack_with_code,
    "pickle": attack_with_pickle,
    "share": attack_share,
    "archive": attack_with_archive,
    "names": attack_with_names,
}


def lines_with(*words: str, command: str = "") -> list[tuple[str, ...]]:
    """Return the command lines that have one of these words."""
    every = ((name, *line) for name, lines in LINES.items() if name.startswith(command) for line in lines)
    return [line for line in every if not {*words}.isdisjoint(line)]


CHOICES: dict[str, tuple[list[str], list[tuple[str, ...]]]] = {
    "code": (["by_module", "by_file"], lines_with("runs", RUN)),
    "pickle": (["npy", "npz"], [*lines_with("--codes", command="score"), *lines_with("arrays.npz", command="train")]),
    "share": (sorted(TRICKS), [("share", "check", "published"), ("share", "import", "published", "new")]),
    "archive": (sorted(MEMBERS), [("tar",), ("zip",)]),
    "names": (sorted(PLACES), READING),
}
"""The tricks of each kind, and the command lines that meet them."""
