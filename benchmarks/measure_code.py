"""Structure of the source before and after a commit: layout, cycles, function lengths, size and start-up time.

    python benchmarks/measure_code.py --before 72591fd

Both versions are checked out into temporary folders, so that uncommitted changes do not count.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from machine import describe

ROOT = Path(__file__).parents[1]
LONG = 50  # lines above which a function counts as long
STARTS = 5  # starts of Python of which the median is taken
SITE_BUILDER = ("docs/build_site.py", "docs/site_markdown.py", "docs/site_math.py", "docs/site")
LOCK_WRAPPERS = "import fcntl"


def modules(root: Path) -> dict[str, Path]:
    """The path of each module of the package, by its dotted name."""
    files = (root / "src" / "unbraid").rglob("*.py")
    return {".".join(f.relative_to(root / "src").with_suffix("").parts).removesuffix(".__init__"): f for f in files}


def imports(name: str, path: Path, known: dict[str, Path]) -> set[str]:
    """The modules of the package that a module imports anywhere, inside functions too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.add(full if full in known else node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return (found & set(known)) - {name, "unbraid"}


def unit(module: str) -> str:
    """The package, or the module at the top, to which a module belongs."""
    return module.split(".")[1] if "." in module else module


def in_cycles(graph: dict[str, set[str]]) -> list[str]:
    """The nodes that can be reached from themselves."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        stack = list(graph[start])
        while stack:
            if (node := stack.pop()) not in seen:
                seen.add(node)
                stack += graph[node]
        return seen

    return sorted(node for node in graph if node in reached(node))


def function_lengths(paths: list[Path]) -> list[int]:
    """The lines of each function and method, without its docstring."""
    lengths = []
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = node.body[0]
                doc = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
                inside = (first.end_lineno or 0) - first.lineno + 1 if doc else 0
                lengths.append((node.end_lineno or 0) - node.lineno + 1 - inside)
    return lengths


def is_docstring(node: ast.AST) -> bool:
    """Whether a statement is a string that stands alone."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def code_lines(paths: list[Path]) -> int:
    """Lines that are neither blank, nor comments, nor docstrings."""
    total = 0
    for path in paths:
        text = path.read_text()
        skipped: set[int] = set()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Expr) and is_docstring(node):
                skipped |= set(range(node.lineno, (node.end_lineno or 0) + 1))
        lines = enumerate(text.splitlines(), 1)
        total += sum(1 for i, line in lines if i not in skipped and line.strip() and not line.strip().startswith("#"))
    return total


def statements(paths: list[Path]) -> int:
    """Return the number of statements except docstrings and imports. It does not depend on how lines are wrapped."""
    nodes = (node for path in paths for node in ast.walk(ast.parse(path.read_text())))
    counted = (
        node for node in nodes if isinstance(node, ast.stmt) and not isinstance(node, ast.Import | ast.ImportFrom)
    )
    return sum(not is_docstring(node) for node in counted)


def seconds(root: Path, *command: str) -> float:
    """The median time of a command that runs the package in `root`."""
    times = []
    for _ in range(STARTS):
        begun = time.perf_counter()
        environment = {**os.environ, "PYTHONPATH": str(root / "src")}
        subprocess.run([sys.executable, *command], check=True, env=environment, stdout=subprocess.DEVNULL, cwd=root)
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def measure(root: Path) -> dict[str, Any]:
    """All figures of one version."""
    known = modules(root)
    used = {name: imports(name, path, known) for name, path in known.items()}
    graph: dict[str, set[str]] = {unit(name): set() for name in known if name != "unbraid"}
    for name, targets in used.items():
        if name != "unbraid":
            graph[unit(name)] |= {unit(target) for target in targets} - {unit(name)}
    importers = {name: sum(name in targets for targets in used.values()) for name in known}
    paths = list(known.values())
    lengths = function_lengths(paths)
    builder = [
        f for place in SITE_BUILDER for f in ([root / place] if (root / place).is_file() else (root / place).glob("*"))
    ]
    return {
        "modules at the top": sum(name.count(".") == 1 and path.name != "__init__.py" for name, path in known.items())
        + 1,
        "modules": len(known),
        "packages and top modules in import cycles": len(in_cycles(graph)),
        "median lines of a function": statistics.median(lengths),
        "longest function": max(lengths),
        f"functions over {LONG} lines": sum(length > LONG for length in lengths),
        "modules that one other module imports": sum(count == 1 for count in importers.values()),
        "lines of code without docstrings": code_lines(paths),
        "statements without imports": statements(paths),
        "lines of our own site builder": sum(len(f.read_text().splitlines()) for f in builder if f.suffix != ".png"),
        "modules that call fcntl": sum(LOCK_WRAPPERS in path.read_text() for path in paths),
        "seconds of import unbraid": round(seconds(root, "-c", "import unbraid"), 3),
        "seconds of unbraid --help": round(seconds(root, "-m", "unbraid", "--help"), 3),
        "seconds of python": round(seconds(root, "-c", "pass"), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", default="72591fd", help="the commit to compare with [72591fd]")
    parser.add_argument("--after", default="HEAD", help="the commit that is compared [HEAD]")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results" / "measure_code.json")
    options = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for when, commit in (("before", options.before), ("after", options.after)):
            place = Path(folder) / when
            place.mkdir()
            archive = subprocess.run(["git", "archive", commit], check=True, capture_output=True, cwd=ROOT).stdout
            subprocess.run(["tar", "x", "-C", str(place)], check=True, input=archive)
            found[when] = {"measured commit": commit, **measure(place)}
    for name in found["before"]:
        print(f"{name:45}{found['before'][name]!s:>12}{found['after'][name]!s:>12}")
    options.results.write_text(json.dumps({**found, **describe()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
