"""Show trained runs in the browser with their decoders on this machine: the report's page, for models of any size."""

from __future__ import annotations

import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from unbraid.cli.devices import add_device, check_device
from unbraid.cli.parser import Parser, add_root
from unbraid.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from unbraid.runs.run import Run


def main(parser: Parser, arguments: Sequence[str]) -> None:
    parser.add_argument("runs", type=Path, help="a folder of runs, or one run")
    parser.add_argument("--port", type=int, default=0, help="of 127.0.0.1, where the page is served [any free one]")
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    parser.add_argument("--best", type=int, default=4, help="runs shown in detail, with their decoders [4]")
    add_device(parser)
    add_root(parser)
    options = parser.parse_all(arguments)
    if options.best < 1:
        raise UserError(f"--best must be at least 1. Got {options.best} instead.")
    check_device(options.device)
    from unbraid.reporting.detail import drawable, drawn
    from unbraid.reporting.page import live_page
    from unbraid.reporting.server import new_token, serve
    from unbraid.runs.run import load_runs
    from unbraid.scoring.score import load_sources

    runs = load_runs(options.runs, device=options.device)
    able = [run for run in runs if run.net.decoder is not None and run.divergence is None]
    if not able:
        raise UserError(
            f"Exploring needs a trained decoder; none of the {len(runs)} finished run(s) in {options.runs} has one. "
            f"Train to the end first, or look at codes instead: unbraid score {options.runs}"
        )
    token = new_token()
    sources = load_sources(able, quiet=True)

    def draw(run: Run, example: Tensor) -> Tensor:
        data = sources[run.spec.data]
        return drawn(example, data)[0] if drawable(data) else example[0]

    with serve(able, lambda: live_page(runs, token, best=options.best), options.port, token, draw) as server:
        try:
            print(f"{server.url} (Ctrl-C ends it)", flush=True)
            if options.open:
                webbrowser.open(server.url)
            server.wait()
        except KeyboardInterrupt:
            print("\nunbraid: ended.", flush=True)
