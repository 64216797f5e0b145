"""The command `unbraid explore`: it serves until it is stopped, and its errors are one line."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import unbraid as ub
from support.server import LATENTS, decode_path, decoded_example
from support.training import quick_train
from unbraid.cli.dispatch import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs on images without factors, whose page is made quickly."""
    made = tmp_path_factory.mktemp("explored")
    np.save(made / "images.npy", np.random.default_rng(0).integers(0, 256, (60, 1, 16, 16), np.uint8))
    quick_train(made / "runs", data=str(made / "images.npy"), steps=2, net="mlp")
    return made / "runs"


def start_explore(folder: Path, *flags: str, **settings: str) -> tuple[subprocess.Popen[str], str]:
    """Start the command in a process of its own; returns the process and the address of the page."""
    process = subprocess.Popen(
        [sys.executable, "-m", "unbraid", "explore", str(folder), *flags],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **settings},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert process.stdout is not None
    first = process.stdout.readline()
    if not first:
        pytest.fail(process.communicate()[1])
    found = re.match(r"(http://127\.0\.0\.1:(\d+)/\?token=[\w-]+) \(press Ctrl-C to stop\)\n", first)
    assert found, first
    return process, found[1]


def test_the_command_serves_until_ctrl_c(folder: Path, tmp_path: Path) -> None:
    browser, seen = tmp_path / "browser.py", tmp_path / "seen"
    browser.write_text(f"import pathlib, sys\npathlib.Path({str(seen)!r}).write_text(sys.argv[1])\n")
    process, url = start_explore(folder, "--open", BROWSER=f"{sys.executable} {browser} %s")
    connection = http.client.HTTPConnection(url.split("/")[2], timeout=20)
    connection.request("GET", f"/?{url.partition('?')[2]}")
    page = connection.getresponse().read().decode()
    run, token = (re.search(pattern, page) for pattern in (r'"id":"([0-9a-z]+)"', r'data-token="([^"]+)"'))
    assert run
    assert token
    connection.request("POST", decode_path(run[1], token[1]), LATENTS.tobytes())
    pixels = np.frombuffer(connection.getresponse().read(), "<f4")
    trained = next(one for one in ub.load_runs(folder) if one.id == run[1])
    assert np.allclose(pixels, decoded_example(trained, LATENTS).ravel(), atol=1e-6)
    process.send_signal(signal.SIGINT)  # with a connection open
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, "\nunbraid: stopped.\n")
    assert "Traceback" not in err
    assert seen.read_text() == url
    connection.close()


def test_a_browser_opens_only_with_the_flag(folder: Path, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    process, _ = start_explore(folder, BROWSER=f"touch {seen} %s")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 0
    assert not seen.exists()


def test_errors_of_the_command_are_one_line(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    holder = socket.create_server(("127.0.0.1", 0))
    port = holder.getsockname()[1]
    wrong = {
        f"Port {port} of 127.0.0.1 is in use": [str(folder), "--port", str(port)],
        "must be a whole number from 0 to 65535": [str(folder), "--port", "70000"],
        "best runs must be at least 1": [str(folder), "--best", "0"],
        "No runs in": [str(tmp_path)],
    }
    for reason, arguments in wrong.items():
        assert main(["explore", *arguments]) == 2
        err = capsys.readouterr().err
        assert reason in err
        assert err.count("\n") == 1
    holder.close()


def test_runs_without_a_decoder_raise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quick_train(tmp_path, method=ub.methods.PCL(), data="toy", steps=1)
    assert main(["explore", str(tmp_path)]) == 2
    assert "Exploring needs a trained decoder" in capsys.readouterr().err
