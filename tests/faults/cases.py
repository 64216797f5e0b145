"""Generating one case from a seed and a number."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random

from faults.commands import INPUT_FILES, LINES, RUN, command_flags, flag_words
from faults.damage import damage_file
from faults.values import choose_value


@dataclass(frozen=True)
class Case:
    """A command line, and what was done to the files that it reads.

    Attributes:
        line: The command line, without the program.
        damage: What was done to which file, for the report.
    """

    line: tuple[str, ...]
    damage: str = ""

    def __str__(self) -> str:
        words = " ".join(repr(word) if len(word) < 80 else f"{word[:80]!r}..." for word in self.line)
        return f"unbraid {words}" + (f"   ({self.damage})" if self.damage else "")


def make_case(seed: int, number: int, folder: Path) -> Case:
    """Return a case and damage the files in its folder.

    Args:
        seed: The seed of the campaign.
        number: The number of the case.
        folder: The folder of the case, with the files of `commands.write_files`.
    """
    random = Random(f"{seed} {number}")
    command = random.choice(list(LINES))
    line = [command, *random.choice(LINES[command])]
    run = random.choice(sorted(folder.glob("runs/*/run.json"))).parent
    damage = ""
    if random.random() < 0.5 and (files := input_files(line, folder, run)):
        path = random.choice(files)
        damage = f"{path.relative_to(folder)}: {damage_file(path, random)}"
    else:
        for _ in range(random.choice([1, 1, 1, 2, 3])):
            line = change_line(line, random)
    return Case(tuple(word.replace(RUN, str(run.relative_to(folder))) for word in line), damage)


def input_files(line: list[str], folder: Path, run: Path) -> list[Path]:
    """Return the files that a command line names, and those in the folders that it names."""
    found = []
    for word in line[1:]:
        path = run.parent if word == RUN else folder / word
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
    if action < 0.8:
        return [*line[:position], choose_value(random, None), *line[position + 1 :]]
    if action < 0.9:
        return [*line[:position], *line[position + 1 :]]
    return [*line[:position], choose_value(random, None), *line[position:]]
