"""The command line: parse, call the library, print."""

from __future__ import annotations

import errno
import importlib
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

from unbraid.cli.parser import Parser
from unbraid.errors import UserError, unknown
from unbraid.version import __version__

EXAMPLES = """examples:
  unbraid demo                                            # trains, scores and draws on built-in data, about a minute
  unbraid list methods
  unbraid train beta_vae --data sprites --beta 1,4,16 --seeds 0-4 --steps 5000 --out runs/beta
  unbraid score runs/beta
  unbraid score --codes z.npy --factors v.npy             # anybody's codes, no model needed
  unbraid select runs/beta                                # rank runs without labels
  unbraid report runs/beta                                # one page: scores, pictures, decoders live in the browser
  unbraid traverse runs/beta
"""


class Command(NamedTuple):
    """A command: the module of `unbraid.cli` that holds it, and what `unbraid --help` says of it."""

    module: str
    summary: str

    def run(self, name: str, arguments: Sequence[str]) -> int:
        """Import the module and call its `main(parser, arguments)`; returns the exit status."""
        module = importlib.import_module(f"unbraid.cli.{self.module}")
        return module.main(Parser(prog=f"unbraid {name}", description=module.__doc__), arguments) or 0


COMMANDS: dict[str, Command] = {
    "demo": Command("demo", "train, score and draw on built-in data, in about a minute"),
    "list": Command("list_registries", "what there is: methods, metrics, data, nets"),
    "train": Command("train", "train a method, or a sweep of it, resumably"),
    "score": Command("score", "score trained runs, or anybody's codes and factors"),
    "select": Command("select", "rank trained runs without labels"),
    "compare": Command("compare", "folders of runs side by side: settings, scores, what differs beyond chance"),
    "study": Command("study", "train and score a whole study, resumably, on one machine or many"),
    "analyse": Command("analyse", "tables and figures of a study's results"),
    "reproduce": Command("reproduce", "a study's published numbers beside ours: what agrees, what differs"),
    "appearance": Command("appearance", "bounds, and appearance apart from perspective, of VITAE's studies"),
    "share": Command("share", "publish runs with checksums, or take in published ones"),
    "index": Command("index", "write the results table of a folder of runs"),
    "data": Command("data", "list, fetch, check and show datasets"),
    "report": Command("report", "write one page with scores, pictures and live sliders"),
    "explore": Command("explore", "the same page from a local server, for decoders of any size"),
    "export": Command("export", "write a run's encoder and decoder as ONNX or torch.export files, checked"),
    "traverse": Command("traverse", "draw what each latent does, as PNG and GIF"),
}


def usage() -> str:
    """The text of `unbraid --help`."""
    lines = [f"  {name:<12}{command.summary}" for name, command in COMMANDS.items()]
    head = f"unbraid {__version__}: train, score and compare disentangled representations\n\nusage: unbraid COMMAND ..."
    return "\n".join([head, "", "commands (each has --help):", *lines, "", EXAMPLES])


def dispatch(arguments: Sequence[str]) -> int:
    """Run one command; its exit status."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage())
    elif arguments[0] == "--version":
        print(f"unbraid {__version__}")
    elif arguments[0] not in COMMANDS:
        raise UserError(unknown("command", arguments[0], COMMANDS))
    else:
        return COMMANDS[arguments[0]].run(arguments[0], arguments[1:])
    return 0


def _tell(message: Warning | str, *where: Any, **more: Any) -> None:
    """A warning in one line, without the place in the code that users cannot mend."""
    print(f"unbraid: warning: {' '.join(str(message).split())}", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    0: success; 1: what was compared differs; 2: an error of the user, in one line; 3: a bug; 130: interrupted.
    """
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _tell
            return dispatch(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        print("unbraid: stopped. Give the same command again to go on from the last checkpoint.", file=sys.stderr)
        return 130
    except (UserError, OSError) as error:
        if os.environ.get("UNBRAID_DEBUG") or not _is_for_the_user(error):
            return _report_bug(error)
        print(f"unbraid: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except Exception as error:
        return _report_bug(error)


def _is_for_the_user(error: Exception) -> bool:
    """Whether an error is the user's to correct: a wrong argument or file, a missing file, a full disk."""
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    return isinstance(error, UserError | FileNotFoundError) or full


def _report_bug(error: Exception) -> int:
    """Print the traceback of an error that is not the user's; returns the exit status."""
    traceback.print_exception(error)
    print("unbraid: this is a bug in unbraid. Please report it: the command, and the lines above.", file=sys.stderr)
    return 3
