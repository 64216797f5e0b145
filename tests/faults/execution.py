"""Running a case in a forked process, and judging how the command ended."""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from faults.cases import Case, make_case

TIMEOUT = 60.0  # seconds
MEMORY = 4 * 2**30  # bytes that a command may allocate
DISGUISED = re.compile(
    r"not supported between|has no attribute|object is not|out of range|unexpected keyword|positional argument"
    r"|NoneType|unhashable|must be real number|cannot unpack|not enough values|too many values|invalid literal"
    r"|object has|cannot convert|division by zero|instancemethod|got multiple values"
)
"""Messages that Python writes for programmers, and that must not reach a user as the whole explanation."""


@dataclass(frozen=True)
class Result:
    """How a case ended.

    Attributes:
        case: The case.
        number: Its number.
        fault: What is wrong, or an empty text.
        output: What the command wrote to standard error.
    """

    case: Case
    number: int
    fault: str
    output: str


def run_case(seed: int, number: int, template: Path, scratch: Path) -> Result:
    """Generate a case in a copy of the template folder and run it."""
    folder = scratch / str(number)
    shutil.copytree(template, folder, symlinks=True)
    add_odd_files(folder)
    try:
        case = make_case(seed, number, folder)
        before = fingerprint(folder)
        status = run_forked(case, folder, scratch / f"{number}.err")
        output = (scratch / f"{number}.err").read_text(errors="replace")
        fault = find_fault(case, status, output)
        if not fault and status == 2:
            fault = find_changes(before, fingerprint(folder))
        return Result(case, number, fault, output)
    finally:
        shutil.rmtree(folder)
        (scratch / f"{number}.err").unlink(missing_ok=True)


def add_odd_files(folder: Path) -> None:
    """Write a plain file, a pipe, an empty folder, a loop of links, and a link to an endless file."""
    (folder / "plain").write_text("text\n")
    os.mkfifo(folder / "fifo")
    (folder / "empty").mkdir()
    (folder / "loop").symlink_to("loop")
    (folder / "zero").symlink_to("/dev/zero")


def fingerprint(folder: Path) -> dict[str, str]:
    """Return the names of all files in a folder, each with its kind, size and time of change."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_symlink() or not path.is_dir():
            facts = path.lstat()
            found[str(path.relative_to(folder))] = f"{facts.st_mode} {facts.st_size} {facts.st_mtime_ns}"
    return found


def find_changes(before: dict[str, str], after: dict[str, str]) -> str:
    """Return which files a command that failed has changed, removed or left behind, or an empty text.

    The results table is left out, because commands write it again whenever they read the runs. Scores are left out,
    because those that were computed before an error are kept.
    """
    kept = (name for name in before if not name.endswith((".sqlite", "scores.jsonl")))
    changed = [name for name in kept if after.get(name) != before[name]]
    temporary = [name for name in after.keys() - before.keys() if name.endswith((".tmp", ".part"))]
    named = [f"changed {', '.join(changed[:3])}"] * bool(changed) + [f"left {', '.join(temporary[:3])}"] * bool(
        temporary
    )
    return "; ".join(named)


def run_forked(case: Case, folder: Path, errors: Path) -> int:
    """Run a command in a forked process. Return its exit status, minus a signal, or -signal.SIGALRM for a hang."""
    pid = os.fork()
    if pid == 0:
        run_in_child(case, folder, errors)
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return -signal.SIGALRM


def run_in_child(case: Case, folder: Path, errors: Path) -> None:
    """Run a command in this process, which ends here."""
    from unbraid.cli.dispatch import main
    from unbraid.reporting.server import Server

    status = 99
    try:
        os.setpgid(0, 0)
        os.chdir(folder)
        os.environ["UNBRAID_DATA"] = str(folder / "data")
        for name, target in ((os.devnull, 0), (os.devnull, 1), (str(errors), 2)):
            os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC), target)
        sys.stdout, sys.stderr = (os.fdopen(os.dup(n), "w", errors="backslashreplace") for n in (1, 2))
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**28, 2**28))
        Server.wait = lambda self: None  # type: ignore[method-assign]
        status = main(list(case.line))
    except SystemExit as error:
        status = 0 if error.code is None else int(error.code)
    except BaseException as error:
        print(f"Traceback outside of main: {error!r}", file=sys.stderr)
    finally:
        sys.stderr.flush()
        os._exit(status)


def find_fault(case: Case, status: int, output: str) -> str:
    """Return what is wrong with the end of a command, or an empty text."""
    if status < 0:
        return "hang" if status == -signal.SIGALRM else f"killed by signal {-status}"
    if status == 3 or "Traceback" in output:
        return "traceback"
    if status not in (0, 2) and not (status == 1 and case.line[0] == "reproduce"):
        return f"status {status}"
    errors = [line for line in output.splitlines() if line.startswith("unbraid: error: ")]
    if status == 2 and len(errors) != 1:
        return f"{len(errors)} lines of error"
    if errors and DISGUISED.search(errors[0]):
        return "disguised error"
    return ""
