"""Loading and uploading models in the layout of the Hugging Face Hub (see `pretrained_files`)."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from unbraid.errors import UserError
from unbraid.methods import Method
from unbraid.nets.vae import Pair, PairBuilder
from unbraid.runs.folder import RunFolder
from unbraid.runs.pretrained_files import CARD, CONFIG, RUN_FILES, PretrainedConfig
from unbraid.runs.run import Run, open_trained_run
from unbraid.runtime.arguments import explain_unknown_arguments
from unbraid.runtime.schema import read_json

REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
REMEDY = "Download or save the model again."


@explain_unknown_arguments()
def from_pretrained(
    source: str | Path,
    *,
    revision: str | None = None,
    device: str = "cpu",
    net: str | PairBuilder | Pair | None = None,
    trust: bool = False,
    methods: Iterable[type[Method]] = (),
) -> Run:
    """Load a model that `Run.save_pretrained` or `push_to_hub` wrote. Its data are not needed.

    Only JSON and safetensors files are read, and no code in the folder or repository is run. A method or network that
    is not part of unbraid is imported only if `trust` is true.

    Args:
        source: A folder, or the name OWNER/NAME of a repository on the Hugging Face Hub, which is downloaded.
        revision: A branch, tag or commit of the repository. Give a commit to always load the same weights.
        device: The device on which to load the network.
        net: The network, if it cannot be built from the name in the spec.
        trust: Whether to import a method or network that is not part of unbraid (see `load_run`).
        methods: Classes of your own methods (see `load_run`).

    Returns:
        The run. It encodes, decodes and samples. To score it, pass `data=` if its data cannot be loaded by name.

    Raises:
        UserError: If there is no such folder, if a file is missing or damaged, if the package huggingface_hub is
            needed and not installed, if the download fails, or if `trust` is needed.

    >>> import tempfile
    >>> import unbraid as ub
    >>> (run,) = ub.train("vae", data="toy", steps=5, quiet=True)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = run.save_pretrained(f"{folder}/model")
    ...     ub.from_pretrained(f"{folder}/model").id == run.id
    True
    """
    path = Path(source)
    if not path.is_dir():
        path = _download(str(source), revision)
    for name in (CONFIG, "run.json", "weights.safetensors"):
        if not (path / name).is_file():
            raise UserError(
                f"{path} must have a file {name}. It has none. {REMEDY} To load a run folder, use load_run."
            )
    shape = tuple(read_json(path / CONFIG, PretrainedConfig, REMEDY).shape)
    run = open_trained_run(RunFolder.open(path), shape, net, device, trust, list(methods))
    _ = run.net  # raises an error now if the weights are damaged
    return run


@explain_unknown_arguments()
def push_to_hub(run: Run, repository: str, *, private: bool = True, token: str | None = None) -> str:
    """Upload a run to the Hugging Face Hub. The repository is created if it does not exist.

    Args:
        run: A trained run.
        repository: The name OWNER/NAME of the repository.
        private: Whether a new repository is private.
        token: An access token. By default the one that `hf auth login` has stored.

    Returns:
        The address of the repository.

    Raises:
        UserError: If the package huggingface_hub is not installed, or if the upload fails.
    """
    if not REPOSITORY.fullmatch(repository):
        raise UserError(f"A repository must be OWNER/NAME. Got {repository!r} instead.")
    hub = _import_hub()
    with tempfile.TemporaryDirectory() as folder:
        saved = run.save_pretrained(Path(folder) / repository.partition("/")[2])
        try:
            api = hub.HfApi(token=token)
            address = api.create_repo(repository, private=private, exist_ok=True)
            api.upload_folder(repo_id=repository, folder_path=saved)
        except Exception as error:
            raise UserError(f"The model could not be uploaded to {repository}: {_first_line(error)}") from error
    return str(address)


def _download(source: str, revision: str | None) -> Path:
    """Download the files of a model, and nothing else, into the cache of huggingface_hub."""
    if not REPOSITORY.fullmatch(source):
        raise UserError(f"A model must be a folder, or OWNER/NAME on the Hugging Face Hub. Got {source!r} instead.")
    hub = _import_hub()
    try:
        files = [*RUN_FILES, CONFIG, CARD]
        return Path(hub.snapshot_download(source, revision=revision, allow_patterns=files))
    except Exception as error:
        raise UserError(
            f"There is no folder {source}, and it could not be downloaded from the Hugging Face Hub: "
            f"{_first_line(error)}"
        ) from error


def _import_hub() -> Any:
    try:
        import huggingface_hub
    except ModuleNotFoundError as error:
        raise UserError(
            "The Hugging Face Hub needs the package huggingface_hub, which is not installed. Install it with: "
            'pip install "unbraid[hub]"'
        ) from error
    return huggingface_hub


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}"
