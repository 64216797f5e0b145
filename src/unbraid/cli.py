"""The command line: parse, call the library, print."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from unbraid import __version__
from unbraid.errors import Refusal, unknown

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


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line with the nearest valid name."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        raise Refusal(f"{message[:1].upper()}{message[1:]}. See: {self.prog} --help")

    def parse_all(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse, and refuse leftovers by name."""
        parsed, left = self.parse_known_args(arguments)
        if left:
            flags = [flag for action in self._actions for flag in action.option_strings[:1] if flag.startswith("--")]
            if left[0].startswith("-"):
                raise Refusal(unknown(f"flag of '{self.prog}'", left[0].split("=")[0], flags))
            raise Refusal(f"Unexpected argument {left[0]!r}. See: {self.prog} --help")
        return parsed


class Root(argparse.Action):
    """Where files of data lie, for this process."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        os.environ["UNBRAID_DATA"] = str(values)


def add_root(parser: Any) -> None:
    """The flag --root."""
    parser.add_argument("--root", action=Root, metavar="FOLDER", help="folder of data files [UNBRAID_DATA]")


def demo(arguments: Sequence[str]) -> None:
    from unbraid.commands import demo

    demo.main(Parser(prog="unbraid demo", description=demo.__doc__), arguments)


def listing(arguments: Sequence[str]) -> None:
    from unbraid.commands import listing

    listing.main(Parser(prog="unbraid list", description=listing.__doc__), arguments)


def train(arguments: Sequence[str]) -> None:
    from unbraid.commands import train

    train.main(Parser, arguments)


def score(arguments: Sequence[str]) -> None:
    from unbraid.commands import score

    score.main(Parser(prog="unbraid score", description=score.__doc__), arguments)


def traverse(arguments: Sequence[str]) -> None:
    from unbraid.commands import traverse

    traverse.main(Parser(prog="unbraid traverse", description=traverse.__doc__), arguments)


def select(arguments: Sequence[str]) -> None:
    from unbraid.commands import select

    select.main(Parser(prog="unbraid select", description=select.__doc__), arguments)


def compare(arguments: Sequence[str]) -> None:
    from unbraid.commands import compare

    compare.main(Parser(prog="unbraid compare", description=compare.__doc__), arguments)


def export(arguments: Sequence[str]) -> None:
    from unbraid.commands import export

    export.main(Parser(prog="unbraid export", description=export.__doc__), arguments)


def data(arguments: Sequence[str]) -> None:
    from unbraid.commands import data, show

    data.ACTIONS["show"] = (show.main, show.__doc__ or "")
    data.main(Parser, arguments, show.opened)


def study(arguments: Sequence[str]) -> None:
    from unbraid.commands import study

    study.main(Parser(prog="unbraid study", description=study.__doc__), arguments)


def index(arguments: Sequence[str]) -> None:
    from unbraid.commands import index

    index.main(Parser(prog="unbraid index", description=index.__doc__), arguments)


def share(arguments: Sequence[str]) -> None:
    from unbraid.commands import share

    share.main(Parser(prog="unbraid share", description=share.__doc__), arguments)


def appearance(arguments: Sequence[str]) -> None:
    from unbraid.commands import appearance

    appearance.main(Parser(prog="unbraid appearance", description=appearance.__doc__), arguments)


def analyse(arguments: Sequence[str]) -> None:
    from unbraid.commands import analyse

    analyse.main(Parser(prog="unbraid analyse", description=analyse.__doc__), arguments)


def reproduce(arguments: Sequence[str]) -> int:
    from unbraid.commands import reproduce

    return reproduce.main(Parser(prog="unbraid reproduce", description=reproduce.__doc__), arguments)


def report(arguments: Sequence[str]) -> None:
    from unbraid.commands import report

    report.main(Parser(prog="unbraid report", description=report.__doc__), arguments)


def explore(arguments: Sequence[str]) -> None:
    from unbraid.commands import explore

    explore.main(Parser(prog="unbraid explore", description=explore.__doc__), arguments)


COMMANDS: dict[str, tuple[Callable[[Sequence[str]], int | None], str]] = {
    "demo": (demo, "train, score and draw on built-in data, in about a minute"),
    "list": (listing, "what there is: methods, metrics, data, nets"),
    "train": (train, "train a method, or a sweep of it, resumably"),
    "score": (score, "score trained runs, or anybody's codes and factors"),
    "select": (select, "rank trained runs without labels"),
    "compare": (compare, "folders of runs side by side: settings, scores, what differs beyond chance"),
    "study": (study, "train and score a whole study, resumably, on one machine or many"),
    "analyse": (analyse, "tables and figures of a study's results"),
    "reproduce": (reproduce, "a study's published numbers beside ours: what agrees, what differs"),
    "appearance": (appearance, "bounds, and appearance apart from perspective, of VITAE's studies"),
    "share": (share, "publish runs with checksums, or take in published ones"),
    "index": (index, "write the results table of a folder of runs"),
    "data": (data, "list, fetch, check and show datasets"),
    "report": (report, "write one page with scores, pictures and live sliders"),
    "explore": (explore, "the same page from a local server, for decoders of any size"),
    "export": (export, "write a run's encoder and decoder as ONNX or torch.export files, checked"),
    "traverse": (traverse, "draw what each latent does, as PNG and GIF"),
}


def usage() -> str:
    """The text of `unbraid --help`."""
    lines = [f"  {name:<12}{text}" for name, (_, text) in COMMANDS.items()]
    head = f"unbraid {__version__}: train, score and compare disentangled representations\n\nusage: unbraid COMMAND ..."
    return "\n".join([head, "", "commands (each has --help):", *lines, "", EXAMPLES])


def dispatch(arguments: Sequence[str]) -> int:
    """Run one command; its exit status."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage())
    elif arguments[0] == "--version":
        print(f"unbraid {__version__}")
    elif arguments[0] not in COMMANDS:
        raise Refusal(unknown("command", arguments[0], COMMANDS))
    else:
        return COMMANDS[arguments[0]][0](arguments[1:]) or 0
    return 0


def _tell(message: Warning | str, *where: Any, **more: Any) -> None:
    """A warning in one line, without the place in the code that users cannot mend."""
    print(f"unbraid: warning: {' '.join(str(message).split())}", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0 when all went well, 1 when what it compared differs, 2 after a one-line error, 130 when stopped."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _tell
            return dispatch(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        print("unbraid: stopped. Give the same command again to go on from the last checkpoint.", file=sys.stderr)
        return 130
    except (Refusal, ValueError, TypeError, OSError) as error:
        if os.environ.get("UNBRAID_DEBUG"):
            raise
        print(f"unbraid: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
