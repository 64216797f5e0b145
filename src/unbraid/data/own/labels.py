"""Labels of image files: from a csv, from the folders they lie in, or from their names."""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from unbraid.data.own.arrays import Label, Labels
from unbraid.errors import UserError, unknown

TABLES = ("labels.csv", "factors.csv")
SEPARATORS = ",;\t"  # of a csv, the first that its header has
WHOLE = re.compile(r"[+-]?\d+")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
PAIR = re.compile(r"([^=_,; ]+)=([^=_,; ]+)")


def labels_of(folder: Path, files: Sequence[str], labels: str | None) -> Labels:
    """The labels of files, told relative to their folder, from the source that `labels` names or the first there is."""
    if labels is None:
        return _first(folder, files)
    if labels in SOURCES:
        return SOURCES[labels](folder, files)
    if not labels.lower().endswith(".csv"):
        raise UserError(unknown("source of labels", labels, [*SOURCES, "the path of a csv"]))
    return _from_table(Path(labels).expanduser(), files)


def _first(folder: Path, files: Sequence[str]) -> Labels:
    """A csv, else folders if they tell anything, else names if any has the form, else none."""
    if any((folder / table).is_file() for table in TABLES):
        return _from_csv(folder, files)
    by_folder = _by_level(files)
    if by_folder is not None and by_folder.values:
        return by_folder
    return _from_names(folder, files) if any(map(_pairs, files)) else _none(folder, files)


def _none(folder: Path, files: Sequence[str]) -> Labels:
    return Labels(np.empty((len(files), 0), np.int64), {})


def _from_csv(folder: Path, files: Sequence[str]) -> Labels:
    found = [folder / table for table in TABLES if (folder / table).is_file()]
    if len(found) != 1:
        got = "both" if found else "neither"
        raise UserError(f"{folder} must have either {' or '.join(TABLES)}. Got {got}. Say which: labels='PATH.csv'.")
    return _from_table(found[0], files)


def _from_folders(folder: Path, files: Sequence[str]) -> Labels:
    found = _by_level(files)
    if found is None:
        shallow, deep = (pick(files, key=lambda file: file.count("/")) for pick in (min, max))
        raise UserError(
            f"Folders label images that lie equally deep in {folder}. Got {shallow} and {deep}. Move them, or say "
            "labels='none'."
        )
    if not found.values:
        raise UserError(f"Folders label images that lie in several of {folder}. Got a single one. Say labels='none'.")
    return found


def _by_level(files: Sequence[str]) -> Labels | None:
    """A factor for each level of folders that has several, or None where files lie at different depths."""
    paths = [file.split("/")[:-1] for file in files]
    if len(set(map(len, paths))) != 1:
        return None
    levels = [column for column in zip(*paths, strict=True) if len(set(column)) > 1]
    names = ["folder"] if len(levels) == 1 else [f"folder{i + 1}" for i in range(len(levels))]
    return Labels.of(names, [_plain(column) for column in levels], len(files))


def _from_names(folder: Path, files: Sequence[str]) -> Labels:
    found = [_pairs(file) for file in files]
    names = next((list(pairs) for pairs in found if pairs), [])
    wrong = [i for i, pairs in enumerate(found) if set(pairs) != set(names) or not pairs]
    if wrong:
        example = " ".join(f"{name}=..." for name in names) or "name=value"
        raise UserError(
            f"All file names in {folder} must have the form {example}, parted by _ , ; or space. Got {len(wrong):,} "
            f"others, such as {files[wrong[0]]}. Rename them, or say labels='none'."
        )
    return Labels.of(names, [_plain([pairs[name] for pairs in found]) for name in names], len(files))


def _pairs(file: str) -> dict[str, str]:
    """The values in a name such as shape=2_x=13.png; parts without a sign of equality are passed over."""
    found = PAIR.findall(file.rpartition("/")[2].rpartition(".")[0])
    names = Counter(name for name, _ in found)
    if found and max(names.values()) > 1:
        raise UserError(f"A file name must give each factor once. Got {file} instead. Rename it.")
    return dict(found)


SOURCES: dict[str, Callable[[Path, Sequence[str]], Labels]] = {
    "csv": _from_csv,
    "folders": _from_folders,
    "names": _from_names,
    "none": _none,
}


def _from_table(table: Path, files: Sequence[str]) -> Labels:
    """A row a file: its name (with its folders, or alone where no two files share it), then a value for each factor."""
    rows = _rows(table)
    header = [word.strip() for word in next(rows, (1, []))[1]]
    names = header[1:]
    if not names or len(set(names)) != len(names) or "" in names:
        raise UserError(
            f"The first row of {table} must name the columns: the file, then each factor once. Got {header} instead."
        )
    known = _known(files)
    if header[0] in known:
        raise UserError(
            f"The first row of {table} must name the columns. Got the image {header[0]}. Put names above it."
        )
    found = _matched(table, rows, known, names)
    missing = [file for file in files if file not in found]
    if missing:
        raise UserError(
            f"Every image must have a row in {table}. Got {len(missing):,} of {len(files):,} without, such as "
            f"{missing[0]}. Add the rows, move the images, or say labels='none'."
        )
    return Labels.of(names, [_plain([found[file][j] for file in files]) for j in range(len(names))], len(files))


def _matched(
    table: Path, rows: Iterator[tuple[int, list[str]]], known: dict[str, str], names: list[str]
) -> dict[str, list[str]]:
    """The values of each file that has a row."""
    found: dict[str, list[str]] = {}
    strangers = []
    for line, (name, *values) in rows:
        if len(values) != len(names) or "" in values:
            raise UserError(
                f"Line {line} of {table} must have a file and {len(names)} values ({', '.join(names)}). "
                f"Got {[name, *values]} instead."
            )
        file = known.get(name.replace("\\", "/").removeprefix("./"))
        if file is None:
            strangers.append(name)
        elif file in found:
            raise UserError(f"A file must have one row in {table}. Got a second one for {file} in line {line}.")
        else:
            found[file] = values
    if strangers:
        raise UserError(
            f"Every row of {table} must name an image in the folder, once. Got {len(strangers):,} that do not, such as "
            f"{strangers[0]}. Remove the rows or add the images."
        )
    return found


def _known(files: Sequence[str]) -> dict[str, str]:
    """Files by their path, and by their name alone where only one has it."""
    names = Counter(file.rpartition("/")[2] for file in files)
    alone = {name: file for file in files if names[name := file.rpartition("/")[2]] == 1}
    return alone | {file: file for file in files}


def _rows(table: Path) -> Iterator[tuple[int, list[str]]]:
    """The lines of a csv in UTF-8 that are not empty, with their numbers, parted by comma, semicolon or tab."""
    try:
        with table.open(encoding="utf-8-sig", newline="") as file:
            head = file.readline()
            file.seek(0)
            reader = csv.reader(file, delimiter=next((mark for mark in SEPARATORS if mark in head), ","))
            for row in reader:
                if any(row):
                    yield reader.line_num, [word.strip() for word in row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{table} must be a csv file in UTF-8. Reading it failed: {error}.") from error


def _plain(words: Sequence[str]) -> Sequence[Label]:
    """Whole numbers, numbers, or words, whatever fits them all."""
    if all(map(WHOLE.fullmatch, words)):
        return list(map(int, words))
    if not all(map(NUMBER.fullmatch, words)):
        return words
    numbers = list(map(float, words))
    if not all(map(math.isfinite, numbers)):
        return words
    return [int(number) for number in numbers] if all(number.is_integer() for number in numbers) else numbers
