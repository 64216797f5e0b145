"""Runs for Trackio, written by the real package to a folder of its own, without a network connection."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import unbraid as ub

SCRIPT = """
import json
import os

import trackio
import unbraid as ub
from trackio.sqlite_storage import SQLiteStorage

trackio.init(project="mine", name="open", embed=False, auto_log_gpu=False, auto_log_cpu=False)
os.environ["TRACKIO_SERVER_URL"] = "http://127.0.0.1:9/?write_token=x"  # must not be used
for _ in range(2):  # the second call loads the run and writes it again, in place of the first
    (run,) = ub.train("vae", "toy", steps=3, out="runs", log="trackio", quiet=True)
assert os.environ["TRACKIO_SERVER_URL"]
trackio.log({"loss": 1.0})  # the run of the user is still the current one
trackio.finish()
[stored] = trackio.Api().runs("unbraid")
logs = [SQLiteStorage.get_logs(project, name) for project, name in (("unbraid", stored.name), ("mine", "open"))]
print(json.dumps([run.id, run.log, stored.name, stored.config, *logs]))
"""


def test_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ub.UserError, match=r'needs the package trackio.*pip install "unbraid\[trackio\]"'):
        ub.train("vae", "toy", steps=2, out=tmp_path, log="trackio", quiet=True)


@pytest.mark.slow
def test_project_has_the_log_and_the_settings(tmp_path: Path) -> None:
    pytest.importorskip("trackio", reason="needs trackio (extra trackio)")
    variables = {**os.environ, "TRACKIO_DIR": str(tmp_path / "trackio")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=tmp_path, env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    run, log, name, config, stored, mine = json.loads(done.stdout.splitlines()[-1])
    assert name == run
    assert config["method"] == "vae"
    assert config["_Group"] == "runs"
    expected = [{f"train/{key}": value for key, value in record.items() if key != "step"} for record in log]
    assert [record["step"] for record in stored] == [record["step"] for record in log]
    assert [{key: record[key] for key in record if key.startswith("train/")} for record in stored] == expected
    assert [record["loss"] for record in mine] == [1.0]
