"""Run every command line once for each replacement of each file that it reads.

The campaign draws such cases at random. This module runs all of them: with the file removed or replaced by a folder, a
pipe, a loop of links, a link that leads nowhere or a device (--what kinds), or with other contents (--what contents).
With --what flags, it instead runs every command with every value of the campaign for every flag, which takes hours of
one core. Run it in the folder `tests`: python -m faults.sweep
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from faults import processes
from faults.bad_input import BadInput, InputCase, input_files
from faults.campaign import prepared
from faults.commands import LINES, RUN, command_flags, flag_words
from faults.damage import CONTENTS, KINDS, replace_by
from faults.exemptions import ENDLESS_FLAGS
from faults.values import FEW, NUMBERS, PATHS, TEXTS

IDLE_SECONDS = 30.0  # without any computing, after which a command counts as hanging


@dataclass(frozen=True)
class ReplacedFile(InputCase):
    """A command line, and a file that is replaced before the command runs.

    Attributes:
        replace: Function that replaces the file.
        label: What replaces it.
    """

    replace: Callable[[Path], object] = Path.unlink
    label: str = ""

    def __str__(self) -> str:
        return f"unbraid {' '.join(self.line)}   ({self.damaged}: {self.label})"

    def damage(self, folder: Path) -> None:
        self.replace(folder / self.damaged)


def replacements(what: str) -> dict[str, Callable[[Path], object]]:
    """Return functions that replace a file, by their labels."""
    if what == "kinds":
        return {kind: partial(replace_by, kind=kind) for kind in KINDS}
    return {f"content {i}": partial(Path.write_bytes, data=content) for i, content in enumerate(CONTENTS)}


def command_lines(template: Path) -> Iterator[list[list[str]]]:
    """Yield the valid command lines of each command for the files of a template folder."""
    run = sorted(template.glob("runs/*/run.json"))[0].parent.relative_to(template)
    for command, lines in LINES.items():
        yield [[command, *(word.replace(RUN, str(run)) for word in line)] for line in lines]


def file_cases(template: Path, what: str) -> Iterator[InputCase]:
    """Yield all cases in which a file is replaced."""
    for words in (words for lines in command_lines(template) for words in lines):
        for file in input_files(words, template):
            for label, replace in replacements(what).items():
                yield ReplacedFile(tuple(words), str(file.relative_to(template)), 0, replace, label)


def flag_cases(template: Path) -> Iterator[InputCase]:
    """Yield all cases in which a flag has another value. Each is added to the first line that accepts it."""
    for lines in command_lines(template):
        flags: dict[str, tuple[list[str], argparse.Action]] = {}
        for words in lines:
            for flag in command_flags(flag_words(words)):
                flags.setdefault(flag.option_strings[-1], (words, flag))
        for name, (words, flag) in flags.items():
            for value in (*NUMBERS, *TEXTS, *PATHS) if flag.dest not in ENDLESS_FLAGS else FEW:
                yield InputCase((*words, f"{name}={value}"))


def main() -> int:
    """Run the cases, print the failures and their number, and return 1 if there is one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--what", choices=("kinds", "contents", "flags"), default="kinds")
    parser.add_argument("--shard", default="0/1", metavar="I/N", help="run case I, I + N, I + 2 N and so on [0/1]")
    options = parser.parse_args()
    first, step = map(int, options.shard.split("/"))
    warnings.simplefilter("ignore", DeprecationWarning)  # forking a process with threads
    processes.IDLE_SECONDS = IDLE_SECONDS
    processes.preload()
    count, faults = 0, 0
    with prepared(part := BadInput()):
        every = flag_cases(part.template) if options.what == "flags" else file_cases(part.template, options.what)
        for case in list(every)[first::step]:
            outcome = part.run(case)
            count += 1
            if outcome.fault:
                faults += 1
                print(f"FAULT: {outcome.fault}\n    {case}\n    {outcome.output.strip()[-300:]}", flush=True)
    print(f"{count} cases, {faults} faults")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
