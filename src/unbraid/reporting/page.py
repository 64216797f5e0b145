"""The report page, an HTML file that contains its data, weights, styles and scripts and loads no other files."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from unbraid.data.loading import DataLike
from unbraid.errors import UserError
from unbraid.reporting import program, truth
from unbraid.reporting.content import Content, report_content
from unbraid.reporting.images import ENCODINGS, encode_pictures, replace_pictures
from unbraid.reporting.report_path import ReportPath
from unbraid.reporting.runs_table import REPORT_METRICS
from unbraid.runs.only import Only
from unbraid.runs.results import RESULTS_FILE
from unbraid.runs.run import Run, are_folders, as_runs
from unbraid.runs.search import as_folders
from unbraid.runtime.arguments import explain_unknown_arguments
from unbraid.runtime.files import make_folder, resolve_path, write_atomic

MAX_PAGE_BYTES = 2_000_000  # maximum size of a page without the weights of decoders
LEFT_OUT = "The pictures of this run are left out, because the page would be too large."
SCRIPTS = (*program.SCRIPTS, *truth.SCRIPTS, "page.js", "explorer.js")


@explain_unknown_arguments()
def report(
    runs: str | Path | Run | Iterable[str | Path | Run],
    out: str | Path | None = None,
    *,
    metrics: str | Iterable[str] = REPORT_METRICS,
    rank: str | None = None,
    best: int = 4,
    scoring: bool = True,
    quiet: bool = False,
    trust: bool = False,
    data: DataLike | None = None,
    only: Only = None,
) -> Path:
    """Write a self-contained HTML page about trained runs.

    The page has a table of all runs with their scores, training curves, and details of the best runs: heat maps,
    reconstructions, traversals, and decoders that run in the browser. For the folder of a study it also has the
    study's analyses, unless `only` is given.

    Args:
        runs: One or several folders of runs, one run, or several runs.
        out: The file to write. The default is `report.html` in the folder of the runs. For several folders it is in the
            folder that contains them, or in the working directory if they are in different places.
        metrics: Metrics whose missing scores are computed and stored, as a list or separated by commas.
        rank: The metric by which runs are ranked. The default is the first metric that any run has a score for.
        best: Number of runs that are shown in detail, at least 1.
        scoring: Whether to compute missing scores. Otherwise the page shows stored scores only.
        quiet: If True, do not show progress.
        trust: Whether methods and networks that are not part of unbraid may be imported and run (see `load_runs`).
        data: The dataset of all runs, in one of the forms that `train` accepts. It is needed only if the runs were
            trained on data in memory that were not saved.
        only: Which runs to show, by their settings, such as "method=beta_vae,beta=8" (see `load_runs`). By default all.

    Returns:
        The path of the page. As the last value of a notebook cell, it is displayed as the page itself.

    Raises:
        UserError: If there are no trained runs, or an argument is invalid.

    >>> import tempfile
    >>> import unbraid as ub
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     runs = ub.train(ub.methods.VAE(), data="toy", steps=5, out=folder, quiet=True)
    ...     page = ub.report(folder, quiet=True)
    ...     page.name, "<script" in page.read_text()
    ('report.html', True)
    """
    if not isinstance(best, int) or best < 1:
        raise UserError(f"A report must show at least 1 run in detail, so 'best' must be >= 1. Got {best!r} instead.")
    given: Any = runs if isinstance(runs, str | Path | Run) or not isinstance(runs, Iterable) else list(runs)
    folders = as_folders(given) if are_folders(given) else []
    trained = as_runs(given, data, trust, only)
    if not trained:
        raise UserError(f"No trained runs in {', '.join(map(str, folders)) or 'the list'}. Finish the training first.")
    folder = _folder_above(folders)
    path = Path(out) if out is not None else _default_path(folder, trained)
    title = trained[0].label if folder is None else _page_title(resolve_path(folder))
    study = folder if len(folders) == 1 and not only and folder and (folder / RESULTS_FILE).exists() else None
    content = report_content(
        trained, title, metrics=metrics, rank=rank, best=best, scoring=scoring, study=study, quiet=quiet, data=data
    )
    make_folder(path.parent)
    write_atomic(path, page_html(content))
    return ReportPath(path)


def _folder_above(folders: Sequence[Path]) -> Path | None:
    """Return the only folder, the common parent of several folders, or the working directory if parents differ.

    Without folders, return None.
    """
    if len(folders) < 2:
        return folders[0] if folders else None
    parents = {folder.parent for folder in folders}
    return parents.pop() if len(parents) == 1 else Path()


def _page_title(folder: Path) -> str:
    """Return the name of a folder, or the name of its parent if the folder is called "runs"."""
    return folder.parent.name if folder.name == "runs" else folder.name


def _default_path(folder: Path | None, runs: Sequence[Run]) -> Path:
    parent = folder or runs[0].path
    if parent is None:
        raise UserError("These runs have no folder. Give the file to write, such as out='report.html'.")
    return parent / "report.html"


def live_page(
    runs: Sequence[Run], token: str, *, best: int = 4, scoring: bool = False, data: DataLike | None = None
) -> bytes:
    """Return the page of a local server, which runs the decoders. The token identifies the page to the server."""
    content = report_content(list(runs), "explore", best=best, scoring=scoring, embed=False, data=data)
    return page_html(content, token=token)


def page_html(content: Content, token: str | None = None) -> bytes:
    """Return the HTML of a page.

    With a token, the page sends latents to the server from which it was loaded, and receives decoded images.
    """
    scripts = [read_asset(name) for name in SCRIPTS]
    if token is not None:
        scripts.insert(0, read_asset("live.js"))
    style = read_asset("page.css")
    weights = [
        f'<script type="text/plain" data-weights="{html.escape(name)}">{base64.b64encode(data).decode()}</script>'
        for name, data in content.weights.items()
    ]
    if token is not None:
        weights.append(f'<script type="text/plain" data-token="{html.escape(token)}"></script>')
    facts = {**content.facts, "live": token is not None}
    parts = {
        "POLICY": html.escape(_content_policy(style, scripts, live=token is not None), quote=True),
        "TITLE": html.escape(f"{content.facts['title']} · unbraid report"),
        "STYLE": style,
        "WEIGHTS": "\n".join(weights),
        "SCRIPTS": "\n".join(f"<script>{text}</script>" for text in scripts),
    }
    parts["REPORT"] = report_json(facts, MAX_PAGE_BYTES - sum(map(len, parts.values())) + len(parts["WEIGHTS"]))
    pieces = read_asset("page.html").split("%")
    return "".join(parts.get(piece, piece) if i % 2 else piece for i, piece in enumerate(pieces)).encode()


def report_json(facts: dict[str, Any], max_bytes: int) -> str:
    """Return the facts of a page as JSON of at most `max_bytes`, with pictures in the best quality that fits.

    If pictures of the lowest quality are too large, those of the last runs are left out, and the page says so.
    """
    space = max_bytes - len(json_for_html(replace_pictures(facts, lambda picture: "")))
    encoded = encode_pictures(facts, space)
    while encoded is None and any("traversals" in run.get("detail", {}) for run in facts["runs"]):
        facts = _without_pictures_of_last_run(facts)
        encoded = encode_pictures(facts, space)
    return json_for_html(encoded or replace_pictures(facts, ENCODINGS[-1].url))


def _without_pictures_of_last_run(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the facts without the pictures of the last run that has pictures."""
    runs = list(facts["runs"])
    last = max(i for i, run in enumerate(runs) if "traversals" in run.get("detail", {}))
    detail = {key: value for key, value in runs[last]["detail"].items() if key not in ("traversals", "reconstructions")}
    why = " ".join([*([runs[last]["why"]] if "why" in runs[last] else []), LEFT_OUT])
    runs[last] = {**runs[last], "detail": detail, "why": why}
    return {**facts, "runs": runs}


def _content_policy(style: str, scripts: Sequence[str], live: bool) -> str:
    """Return the Content-Security-Policy of a page.

    It allows the style and the scripts of the page and, if `live` is True, requests to the server of the page.
    """
    connect = "'self'" if live else "'none'"
    return "; ".join([
        "default-src 'none'", f"connect-src {connect}", "img-src data: blob:", "base-uri 'none'", "form-action 'none'",
        f"style-src {csp_hash(style)}", f"script-src {' '.join(map(csp_hash, scripts))}",
    ])  # fmt: skip


def read_asset(name: str) -> str:
    """Return the text of a file in `assets`."""
    return resources.files("unbraid.reporting").joinpath("assets", name).read_text(encoding="utf-8")


def csp_hash(text: str) -> str:
    """Return the source expression with which a Content-Security-Policy allows exactly this script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def json_for_html(facts: dict[str, Any]) -> str:
    """Encode facts as JSON without characters that could end the HTML element that contains the JSON."""
    text = json.dumps(facts, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
