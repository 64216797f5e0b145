"""Compiled functions that are cached on disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

INNER = """
from unbraid.runtime.jit import kernel

@kernel()
def inner(x):
    return x + {}
"""
OUTER = """
from inner_kernel import inner
from unbraid.runtime.jit import kernel

@kernel()
def outer(x):
    return 10 * inner(x)
"""


def result(folder: Path) -> str:
    """Return what a new process computes with the kernels in the folder."""
    program = "from outer_kernel import outer; print(outer(1), sum(outer.stats.cache_hits.values()))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    return subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_cached_code_is_compiled_again_if_a_kernel_in_another_file_changes(tmp_path: Path) -> None:
    (tmp_path / "outer_kernel.py").write_text(OUTER)
    (tmp_path / "inner_kernel.py").write_text(INNER.format(1))
    assert [result(tmp_path), result(tmp_path)] == ["20 0", "20 1"]
    (tmp_path / "inner_kernel.py").write_text(INNER.format(200))
    assert [result(tmp_path), result(tmp_path)] == ["2010 0", "2010 1"]


TYPED = """
from typing import NamedTuple

from unbraid.runtime.jit import kernel

class {name}(NamedTuple):
    x: int

@kernel()
def inner(pair):
    return pair.x + 1

def outer(x):
    return inner({name}(x))

outer.stats = inner.stats
"""


def test_cached_code_of_a_type_that_has_been_renamed_is_compiled_again(tmp_path: Path) -> None:
    for name in ("First", "Second"):
        (tmp_path / "outer_kernel.py").write_text(TYPED.format(name=name))
        assert result(tmp_path) == "2 0"
