"""The command line: choose the command, run it, and turn errors into messages and exit statuses."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple, TextIO, cast

from unbraid.cli.parser import Parser
from unbraid.errors import UserError, convert_missing_torch, unknown_name_message
from unbraid.runtime.interrupts import Interrupts
from unbraid.runtime.terminal import PrintableStream, printable
from unbraid.version import __version__

EXAMPLES = """examples:
  unbraid demo                                            # train and score models and draw pictures, in a minute
  unbraid list methods
  unbraid train beta_vae --data sprites --beta 1,4,16 --seeds 0-4 --steps 5000 --out runs/beta
  unbraid score runs/beta
  unbraid score --codes z.npy --factors v.npy             # score codes from any model
  unbraid adopt model.onnx --data dsprites --name mine --out runs/mine   # use a model that was trained elsewhere
  unbraid select runs/beta                                # rank runs without using labels
  unbraid report runs/beta                                # HTML page with scores, pictures and sliders
  unbraid traverse runs/beta
"""
USER_ERRORS = (UserError, FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.ESTALE)
PATH_ERRORS = (errno.ENAMETOOLONG, errno.ELOOP)


class Command(NamedTuple):
    """A command: the module of `unbraid.cli` that implements it, and its line in `unbraid --help`.

    `until_interrupted` says that an interrupt is the normal end of the command, which then returns its own status.
    """

    module: str
    summary: str
    until_interrupted: bool = False

    def run(self, name: str, arguments: Sequence[str]) -> int:
        """Import the module, call its `main(parser, arguments)`, and return the exit status."""
        module = importlib.import_module(f"unbraid.cli.{self.module}")
        return module.main(Parser(prog=f"unbraid {name}", description=module.__doc__), arguments) or 0


COMMANDS: dict[str, Command] = {
    "demo": Command("demo", "train and score models on built-in data and draw pictures, in about a minute"),
    "list": Command("list_registries", "list the methods, metrics, datasets and networks"),
    "train": Command("train", "train a method, or sweep its hyperparameters (can be resumed)"),
    "adopt": Command("adopt", "turn the file of a model that was trained elsewhere into a run"),
    "score": Command("score", "score trained runs, or codes and factors in files"),
    "select": Command("select", "rank trained runs without using labels"),
    "compare": Command("compare", "compare folders of runs: settings, scores, and significant differences"),
    "reasoning": Command("reasoning", "measure how fast a network learns to reason from the codes of trained runs"),
    "study": Command("study", "train and score a whole study, on one machine or many (can be resumed)"),
    "analyse": Command("analyse", "answer questions about a study with tables and figures"),
    "reproduce": Command("reproduce", "compare the published results of a study with those of your runs"),
    "appearance": Command(
        "appearance", "print likelihood bounds of a VITAE study, and how well appearance is separated"
    ),
    "zoo": Command("zoo", "list the trained models that come with unbraid, or copy one to a folder of runs"),
    "share": Command("share", "publish runs with checksums, or import published runs"),
    "index": Command("index", "write the results table of a folder of runs"),
    "tune": Command("tune", "search for the fastest launch settings of the kernels on this GPU"),
    "diagnose": Command("diagnose", "predict from a dataset whether a VAE will find its factors"),
    "data": Command("data", "list, download, check, draw and modify datasets"),
    "report": Command("report", "write an HTML page with scores, pictures, and sliders for the latents"),
    "explore": Command("explore", "serve the page of 'report' from this machine, for decoders of any size", True),
    "export": Command("export", "write the encoder and decoder of a run as ONNX or torch.export files"),
    "traverse": Command("traverse", "draw the effect of each latent as a PNG and a GIF"),
    "swap": Command("swap", "draw the exchange of latents or subspaces between examples"),
    "inspect": Command("inspect_runs", "measure active latents and the orthogonality of decoders, plot two latents"),
    "samples": Command("samples", "draw samples from the prior of several runs"),
    "reconstruct": Command("reconstruct", "draw reconstructions of the same examples by several runs"),
}


def usage() -> str:
    """Return the text of `unbraid --help`."""
    lines = [f"  {name:<12}{command.summary}" for name, command in COMMANDS.items()]
    head = f"unbraid {__version__}: train, score and compare disentangled representations\n\nusage: unbraid COMMAND ..."
    return "\n".join(
        [head, "", "commands (each has --help, which shows default values in square brackets):", *lines, "", EXAMPLES]
    )


def dispatch(arguments: Sequence[str]) -> int:
    """Run one command and return its exit status."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage())
    elif arguments[0] == "--version":
        print(f"unbraid {__version__}")
    elif arguments[0] not in COMMANDS:
        raise UserError(unknown_name_message("command", arguments[0], COMMANDS))
    else:
        return COMMANDS[arguments[0]].run(arguments[0], arguments[1:])
    return 0


class WarningPrinter:
    """Prints each warning once, as one line without the source line that issued it."""

    def __init__(self) -> None:
        self.printed: set[str] = set()

    def __call__(self, message: Warning | str, *where: Any, **more: Any) -> None:
        line = printable(f"unbraid: warning: {' '.join(str(message).split())}")
        if line not in self.printed:
            print(line, file=sys.stderr)
        self.printed.add(line)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    The exit status is 0 for success, 1 if published results differ from those of the runs (`unbraid reproduce`), 2 for
    an error that the user can correct, 3 for a bug, 130 if the command was interrupted, and 141 if the program that
    reads the output has ended. A bug is printed with its traceback; any other error is printed in one line. If the
    environment variable UNBRAID_DEBUG is set, every error is printed with its traceback and the status is 3. An error
    after an interrupt counts as the interrupt, because a library may have raised it in place of the interrupt.

    Args:
        arguments: The command and its arguments; by default those of the process.
    """
    words = sys.argv[1:] if arguments is None else arguments
    interrupts = Interrupts()
    try:
        with (
            interrupts,
            warnings.catch_warnings(),
            contextlib.redirect_stdout(cast(TextIO, PrintableStream(sys.stdout))),
        ):
            warnings.showwarning = WarningPrinter()
            warnings.filterwarnings("always", "left out: ", RuntimeWarning)
            status = dispatch(words)
            sys.stdout.flush()
        return _report_interrupt() if interrupts.received and not _ends_by_interrupt(words) else status
    except BrokenPipeError:  # the program that reads the output, such as `head`, has ended
        _discard_output()
        return 141
    except KeyboardInterrupt:
        return _report_interrupt()
    except Exception as error:
        return _report_interrupt() if interrupts.received else _report_error(error)


def _ends_by_interrupt(words: Sequence[str]) -> bool:
    """Return whether an interrupt is the normal end of a command."""
    return bool(words) and words[0] in COMMANDS and COMMANDS[words[0]].until_interrupted


def _report_interrupt() -> int:
    """Print that the command was interrupted, and return the exit status."""
    print("unbraid: stopped. Run the same command again to resume from the last checkpoint.", file=sys.stderr)
    return 130


def _report_error(raised: Exception) -> int:
    """Print an error in one line, or with its traceback if it is a bug, and return the exit status."""
    error = convert_missing_torch(raised, "This command")
    if os.environ.get("UNBRAID_DEBUG") or not _user_can_correct(error):
        return _report_bug(error)
    advice = ". Use a smaller batch, or fewer examples or rows." if _lacks_memory(error) else ""
    print(printable(f"unbraid: error: {' '.join(str(error).split())}{advice}"), file=sys.stderr)
    return 2


def _user_can_correct(error: Exception) -> bool:
    """Return whether the user can correct an error: a wrong argument or file, a full disk, or too little memory."""
    wrong_disk_or_path = isinstance(error, OSError) and error.errno in DISK_ERRORS + PATH_ERRORS
    return isinstance(error, USER_ERRORS) or wrong_disk_or_path or _lacks_memory(error)


def _lacks_memory(error: Exception) -> bool:
    """Return whether an error says that there is not enough memory.

    On the CPU, PyTorch raises a plain RuntimeError for this, so its message is searched.
    """
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and ("can't allocate memory" in str(error) or "out of memory" in str(error))
    )


def _discard_output() -> None:
    """Redirect the rest of the output to the null device, so that Python reports no error when it exits."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report_bug(error: Exception) -> int:
    """Print the traceback of a bug, ask the user to report it, and return the exit status."""
    traceback.print_exception(error)
    print("unbraid: this is a bug in unbraid. Please report it with the command and the lines above.", file=sys.stderr)
    return 3
