"""Part "input": generated bad command lines and damaged files for every command."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from faults.commands import INPUT_FILES, LINES, RUN, command_flags, flag_words, write_files
from faults.damage import damage_file
from faults.judging import find_changes, find_fault, find_lost_scores, fingerprint, score_lines
from faults.parts import Outcome, Part
from faults.processes import run
from faults.values import choose_value


@dataclass(frozen=True)
class InputCase:
    """A command line, and a file that is damaged before.

    Attributes:
        line: The command line, without the program.
        damaged: The damaged file, relative to the folder of the case, or an empty text.
        seed: The seed of the damage.
    """

    line: tuple[str, ...]
    damaged: str = ""
    seed: int = 0

    def __str__(self) -> str:
        words = " ".join(repr(word) if len(word) < 80 else f"{word[:80]!r}..." for word in self.line)
        return f"unbraid {words}" + (f"   (damaged {self.damaged}, seed {self.seed})" if self.damaged else "")

    def damage(self, folder: Path) -> None:
        """Damage the file in the folder of the case."""
        damage_file(folder / self.damaged, Random(self.seed))


class BadInput(Part):
    """Part "input" of the campaign."""

    name = "input"
    weight = 0.35
    unit = "commands"

    def prepare(self, folder: Path) -> None:
        """Write the files that the command lines name."""
        self.template, self.folder = folder / "template", folder / "case"
        self.template.mkdir()
        write_files(self.template)

    def make_case(self, random: Random) -> InputCase:
        """Generate a case: a changed command line, or a valid command line and a damaged file."""
        command = random.choice(list(LINES))
        line = [command, *random.choice(LINES[command])]
        chosen = random.choice(sorted(self.template.glob("runs/*/run.json"))).parent
        words = [word.replace(RUN, str(chosen.relative_to(self.template))) for word in line]
        if random.random() < 0.5 and (files := input_files(words, self.template)):
            damaged = str(random.choice(files).relative_to(self.template))
            return InputCase(tuple(words), damaged, random.randrange(2**31))
        for _ in range(random.choice([1, 1, 1, 2, 3])):
            words = change_line(words, random)
        return InputCase(tuple(words))

    def run(self, case: InputCase) -> Outcome:
        """Run a case in a copy of the template folder."""
        from unbraid.reporting.server import Server

        def do_not_serve() -> None:
            Server.wait = lambda self: None  # type: ignore[method-assign]

        shutil.copytree(self.template, self.folder, symlinks=True)
        try:
            add_odd_files(self.folder)
            if case.damaged:
                case.damage(self.folder)
            before, scores = fingerprint(self.folder), score_lines(self.folder)
            process = run(case.line, self.folder, do_not_serve)
            assert process.status is not None
            fault = find_fault(case.line, process.status, process.output) or find_lost_scores(scores, self.folder)
            if not fault and process.status == 2:
                fault = find_changes(before, self.folder)
            return Outcome(fault, process.output)
        finally:
            shutil.rmtree(self.folder)

    def simpler(self, case: InputCase) -> Iterator[InputCase]:
        """Generate command lines without one word, and the case without damage."""
        if case.damaged:
            yield replace(case, damaged="")
        for position in range(len(case.line) - 1, 0, -1):
            yield replace(case, line=case.line[:position] + case.line[position + 1 :])


def add_odd_files(folder: Path) -> None:
    """Write a plain file, a pipe, an empty folder, a loop of links, and a link to an endless file."""
    (folder / "plain").write_text("text\n")
    os.mkfifo(folder / "fifo")
    (folder / "empty").mkdir()
    (folder / "loop").symlink_to("loop")
    (folder / "zero").symlink_to("/dev/zero")


def input_files(line: list[str], folder: Path) -> list[Path]:
    """Return the files that a command line names, and those in the folders that it names."""
    found = []
    for word in line[1:]:
        path = folder / word
        if path.is_file():
            found.append(path)
        elif path.is_dir():
            found += [file for pattern in INPUT_FILES for file in path.glob(pattern)]
            found += path.glob("labels.csv")
            found += sorted(path.glob("*.png"))[:1]
    return sorted(found)


def change_line(line: list[str], random: Random) -> list[str]:
    """Return a command line with one flag added or one word changed, repeated or removed."""
    flags = command_flags(flag_words(line))
    action = random.random()
    if flags and action < 0.7:
        flag = random.choice(flags)
        name, value = random.choice(flag.option_strings), choose_value(random, flag)
        if flag.nargs == 0 and random.random() < 0.8:
            return [*line, name]
        return [*line, f"{name}={value}"] if random.random() < 0.5 else [*line, name, value]
    position = random.randrange(1, len(line) + 1)
    before = next((flag for flag in flags if line[position - 1] in flag.option_strings), None)
    if action < 0.8:
        return [*line[:position], choose_value(random, before), *line[position + 1 :]]
    if action < 0.9:
        return [*line[:position], *line[position + 1 :]]
    return [*line[:position], choose_value(random, before), *line[position:]]
