"""Provenance of results: versions, commit and machine."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from unbraid.runtime import provenance

ROOT = Path(__file__).parents[2]


def test_the_commit_is_that_of_the_source_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNBRAID_COMMIT", raising=False)
    answer = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    if answer.returncode:
        pytest.skip("the source tree is not in a git repository")
    provenance.git_commit.cache_clear()
    assert provenance.git_commit() == answer.stdout.strip()
    monkeypatch.setenv("UNBRAID_COMMIT", "abc")
    provenance.git_commit.cache_clear()
    assert provenance.git_commit() == "abc"
    provenance.git_commit.cache_clear()


def test_versions_and_machine_are_plain_values() -> None:
    versions = provenance.library_versions()
    assert {"python", "torch", "numpy"} <= set(versions)
    assert all(isinstance(value, str) for value in versions.values())
    assert set(provenance.machine_info()) == {"system", "processor", "cores"}
