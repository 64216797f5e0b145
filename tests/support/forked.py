"""A process that imports the libraries once and runs each program in a fork of itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PARENT = """
import gc, json, os, sys, traceback
import matplotlib.figure, numba, numpy, pandas, scipy.stats, sklearn.linear_model, torch, torch._dynamo, torch.export
import unbraid, unbraid.cli.dispatch
from unbraid.scoring import tasks

tasks.PARALLEL_SECONDS = float("inf")  # every core runs tests already
for name in unbraid.__all__:
    getattr(unbraid, name)
gc.freeze()  # so that programs do not copy the memory of the libraries


def run(texts, folder, output):
    os.chdir(folder)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    for text in texts:
        exec(compile(text, "<example>", "exec"), {"__name__": "example"})


for line in sys.stdin:
    child = os.fork()
    if not child:
        status = 1
        try:
            run(**json.loads(line))
            status = 0
        except SystemExit as end:
            status = end.code or 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(status)  # at once, without freeing all objects
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
COMMAND = "import sys\nfrom unbraid.cli.dispatch import main\nsys.exit(main({arguments!r}))"


class ForkedPython:
    """Runs programs as if each had a Python process of its own."""

    def __init__(self, process: subprocess.Popen[str], output: Path) -> None:
        self._process, self._output = process, output

    def run(self, texts: list[str], folder: Path) -> None:
        """Run programs one after another in one process, each with names of its own, and assert that none fails."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        job = {"texts": texts, "folder": str(folder), "output": str(self._output)}
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        status = self._process.stdout.readline()
        assert status == "0\n", "\n".join([f"status {status}", *texts, self._output.read_text()])

    def unbraid(self, arguments: list[str], folder: Path) -> None:
        """Run a command line, and assert that its exit status is 0."""
        self.run([COMMAND.format(arguments=arguments)], folder)


@contextmanager
def forked_python(folder: Path) -> Iterator[ForkedPython]:
    """Start the process. It writes the output of programs into the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    try:
        yield ForkedPython(process, folder / "output.txt")
    finally:
        process.communicate()
