"""A report as one HTML file: data, weights, styles and scripts inside, nothing fetched."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from unbraid.errors import UserError
from unbraid.reporting.content import REPORTED, Content, report_content
from unbraid.runs.results import RESULTS_FILE
from unbraid.runs.run import Run, load_runs
from unbraid.runtime.files import make_folder, write_atomic

SCRIPTS = ("warp.js", "decoder.js", "controls.js", "room.js", "truth.js", "page.js", "explorer.js")


def report(
    runs: str | Path | Run | Sequence[Run],
    out: str | Path | None = None,
    *,
    metrics: Iterable[str] = REPORTED,
    rank: str | None = None,
    best: int = 4,
    scoring: bool = True,
    quiet: bool = False,
) -> Path:
    """Write one self-contained page on a folder of runs (or on runs) and return its path, `report.html` beside them.

    The `best` runs by the headline of `rank` (the first metric that is there) are shown in detail, with their decoders
    live in the page.
    Missing scores of `metrics` are computed and kept unless `scoring` is False. A study's folder brings its analyses.

    >>> import tempfile
    >>> import unbraid as ub
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     runs = ub.train(ub.methods.VAE(), data="toy", steps=5, out=folder, quiet=True)
    ...     page = ub.report(folder, quiet=True)
    ...     page.name, "<script" in page.read_text()
    ('report.html', True)
    """
    if best < 1:
        raise UserError(f"A report needs at least 1 run to look at: 'best' must be >= 1. Got {best} instead.")
    folder = Path(runs) if isinstance(runs, str | Path) else None
    found = _given(runs)
    if not found:
        raise UserError(f"No trained runs in {folder or 'what was given'}. Train to the end first.")
    path = Path(out) if out is not None else _beside(folder, found)
    study = folder if folder is not None and (folder / RESULTS_FILE).exists() else None
    title = found[0].label if folder is None else _named(folder.resolve())
    made = report_content(found, title, metrics=metrics, rank=rank, best=best, scoring=scoring, study=study, quiet=quiet)
    make_folder(path.parent)
    write_atomic(path, page_html(made))
    return path


def _given(runs: str | Path | Run | Sequence[Run]) -> list[Run]:
    """The trained runs of a folder, or those given."""
    if isinstance(runs, str | Path):
        return load_runs(runs)
    return [runs] if isinstance(runs, Run) else list(runs)


def _named(folder: Path) -> str:
    """A folder's name; of one that is simply called runs, its parent's."""
    return folder.parent.name if folder.name == "runs" else folder.name


def _beside(folder: Path | None, runs: Sequence[Run]) -> Path:
    where = folder or runs[0].path
    if where is None:
        raise UserError("Runs that were trained without a folder need a place for their report: pass out=.")
    return where / "report.html"


def live_page(runs: Sequence[Run], token: str, *, best: int = 4, scoring: bool = False) -> bytes:
    """The page of a local server: the same, with images decoded by that server."""
    made = report_content(list(runs), "explore", best=best, scoring=scoring, embed=False)
    return page_html(made, token=token)


def page_html(made: Content, token: str | None = None) -> bytes:
    """The HTML of a report; with a token, images come from the server that sent it."""
    scripts = [read_asset(name) for name in SCRIPTS]
    if token is not None:
        scripts.insert(0, read_asset("live.js"))
    connect = "'self'" if token is not None else "'none'"
    style = read_asset("page.css")
    policy = "; ".join([
        "default-src 'none'", f"connect-src {connect}", "img-src data: blob:", "base-uri 'none'", "form-action 'none'",
        f"style-src {csp_hash(style)}", f"script-src {' '.join(map(csp_hash, scripts))}",
    ])  # fmt: skip
    weights = [
        f'<script type="text/plain" data-weights="{html.escape(name)}">{base64.b64encode(content).decode()}</script>'
        for name, content in made.weights.items()
    ]
    if token is not None:
        weights.append(f'<script type="text/plain" data-token="{html.escape(token)}"></script>')
    parts = {
        "POLICY": html.escape(policy, quote=True),
        "TITLE": html.escape(f"{made.facts['title']} · unbraid report"),
        "STYLE": style,
        "REPORT": json_for_html({**made.facts, "live": token is not None}),
        "WEIGHTS": "\n".join(weights),
        "SCRIPTS": "\n".join(f"<script>{text}</script>" for text in scripts),
    }
    pieces = read_asset("page.html").split("%")
    return "".join(parts.get(piece, piece) if i % 2 else piece for i, piece in enumerate(pieces)).encode()


def read_asset(name: str) -> str:
    """A file of the page's."""
    return resources.files("unbraid.reporting").joinpath("assets", name).read_text(encoding="utf-8")


def csp_hash(text: str) -> str:
    """The source expression that lets exactly this script or style run."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def json_for_html(facts: dict[str, Any]) -> str:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(facts, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
