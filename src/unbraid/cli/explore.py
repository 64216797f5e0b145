"""Show trained runs in the browser, with sliders for the latents.

The page is the same as that of `unbraid report`, but the decoders run on this machine. They can therefore be of any
size.
"""

from __future__ import annotations

import webbrowser
from collections.abc import Sequence
from typing import Any

from unbraid.cli.parser import Parser, add_device, add_trust_and_root, parse_and_run
from unbraid.cli.values import path, whole_number


def main(parser: Parser, arguments: Sequence[str]) -> int:
    parser.add_argument("runs", type=path, metavar="RUNS", help="a folder of runs, or one run")
    parser.add_argument(
        "--port",
        type=whole_number(0, 65_535),
        default=0,
        help="port on 127.0.0.1 at which the page is served [any free port]",
    )
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    parser.add_argument(
        "--best", type=whole_number(0, 1000), default=4, help="number of runs shown in detail, with their decoders [4]"
    )
    add_device(parser)
    add_trust_and_root(parser)
    return parse_and_run(parser, arguments, run)


def run(options: Any) -> None:
    """Serve the page until the user presses Ctrl-C."""
    from unbraid.reporting.explore import explore

    settings = {"port": options.port, "best": options.best, "device": options.device, "trust": options.trust}
    with explore(options.runs, **settings) as server:
        try:
            print(f"{server.url} (press Ctrl-C to stop)", flush=True)
            if options.open:
                webbrowser.open(server.url)
            server.wait()
        except KeyboardInterrupt:
            print("\nunbraid: stopped.", flush=True)
