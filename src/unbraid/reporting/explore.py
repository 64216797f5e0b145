"""Exploring trained runs in the browser, on a page whose decoders run in a local server."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import Tensor

from unbraid.accel.devices import check_device
from unbraid.data.loading import DataLike
from unbraid.errors import UserError
from unbraid.pictures.examples import decoded_images, is_drawable
from unbraid.reporting.page import live_page
from unbraid.reporting.server import Server, new_token, serve
from unbraid.runs.run import Run, are_folders, as_runs, load_runs
from unbraid.runs.search import as_folders
from unbraid.runtime.arguments import explain_unknown_arguments
from unbraid.scoring.score import load_datasets


@explain_unknown_arguments()
def explore(
    runs: str | Path | Run | Iterable[str | Path | Run],
    *,
    port: int = 0,
    best: int = 4,
    device: str = "cpu",
    trust: bool = False,
    data: DataLike | None = None,
) -> Server:
    """Serve a report page from a local server.

    The page is the one that `report` writes, but its decoders run in the server, so they may have any size. The server
    binds to 127.0.0.1 and runs in the background until it is closed.

    Args:
        runs: One or several folders of runs, one run, or several runs.
        port: The port. 0 chooses any free port.
        best: Number of runs that are shown in detail, with their decoders.
        device: Device on which the decoders run: "cpu" or "cuda".
        trust: Whether methods and networks that are not part of unbraid may be imported and run (see `load_runs`).
        data: The dataset of all runs, in one of the forms that `train` accepts. It is needed only if the runs were
            trained on data in memory that were not saved.

    Returns:
        The running server. Open its `url` in a browser. `wait()` blocks until the server is closed. `close()` or the
        end of a ``with`` block closes it.

    Raises:
        UserError: If none of the runs has a trained decoder, the port cannot be used, or an argument is invalid.

    >>> import tempfile
    >>> import unbraid as ub
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = ub.train(ub.methods.VAE(), data="toy", steps=5, out=folder, quiet=True)
    ...     with explore(folder) as server:
    ...         server.url.startswith("http://127.0.0.1:")
    True
    """
    if best < 1:
        raise UserError(f"The number of best runs must be at least 1. Got best={best} instead.")
    check_device(device)
    given: Any = runs if isinstance(runs, str | Path | Run) or not isinstance(runs, Iterable) else list(runs)
    folders = are_folders(given)
    loaded = load_runs(given, data, device=device, trust=trust) if folders else as_runs(given, data, trust)
    decoding = [run for run in loaded if run.net.decoder is not None and run.divergence is None]
    if not decoding:
        where = f" in {' '.join(map(str, as_folders(given)))}" if folders else ""
        raise UserError(
            f"Exploring needs a trained decoder. None of the {len(loaded)} finished run(s){where} has one, "
            "because they diverged or their method has no decoder. Explore other runs, or score the codes instead: "
            f"unbraid score {where.removeprefix(' in ') or 'FOLDER'}"
        )
    token = new_token()
    datasets = load_datasets(decoding, quiet=True)

    def draw(run: Run, example: Tensor) -> Tensor:
        data = datasets[run.spec.data]
        return decoded_images(example, data)[0] if is_drawable(data) else example[0]

    return serve(decoding, lambda: live_page(loaded, token, best=best), port, token, draw)
