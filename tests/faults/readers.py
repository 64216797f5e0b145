"""Part "readers": damaged files for every reader of published datasets."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from faults.damage import damage_file
from faults.judging import find_fault
from faults.parts import Outcome, Part
from faults.processes import run_function
from faults.reader_files import READERS, check_readers


@dataclass(frozen=True)
class ReaderCase:
    """A form of a dataset, the file that is damaged, and the seed of the damage."""

    reader: str
    file: str
    seed: int

    def __str__(self) -> str:
        return f"read {self.reader}   (damaged {self.file}, seed {self.seed})"


class Readers(Part):
    """Part "readers" of the campaign."""

    name = "readers"
    weight = 0.05
    unit = "files"

    def prepare(self, folder: Path) -> None:
        """Write valid files, and check that they are read without an error, or with the one that is expected."""
        check_readers()
        self.template, self.folder, self.cache = folder / "template", folder / "case", folder / "cache"
        for name, reader in READERS.items():
            (self.template / name).mkdir(parents=True)
            reader.write(self.template / name)
            process = run_function(self.reading(name, self.template / name), folder)
            assert process.status == 0 or "registrations of FAUST must be" in process.output, process.output

    def reading(self, name: str, folder: Path) -> Callable[[], object]:
        """Return a function that reads files, with an empty folder for the tables that readers keep."""

        def read() -> object:
            os.environ["UNBRAID_CACHE"] = str(self.cache)
            return READERS[name].read(folder)

        return read

    def make_case(self, random: Random) -> ReaderCase:
        """Choose a form, one of its files, and a seed."""
        name = random.choice(sorted(READERS))
        file = random.choice(sorted(path.name for path in (self.template / name).iterdir()))
        return ReaderCase(name, file, random.randrange(2**31))

    def run(self, case: ReaderCase) -> Outcome:
        """Damage a copy of the files and read it."""
        shutil.copytree(self.template / case.reader, self.folder)
        try:
            damage_file(self.folder / case.file, Random(case.seed))
            process = run_function(self.reading(case.reader, self.folder), self.folder.parent)
            assert process.status is not None
            fault = find_fault(("read",), process.status, process.output)
            left = [path.name for path in self.cache.rglob("*") if path.name.endswith((".tmp", ".part"))]
            return Outcome(fault or (f"left {', '.join(left[:3])}" if left else ""), process.output)
        finally:
            shutil.rmtree(self.folder)
            shutil.rmtree(self.cache, ignore_errors=True)
