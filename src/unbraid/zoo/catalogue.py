"""Finding, loading and copying the models of the zoo."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from unbraid.errors import UserError, unknown_name_message
from unbraid.runs.folder import RunFolder
from unbraid.runs.pretrained import from_pretrained
from unbraid.runs.pretrained_files import RUN_FILES
from unbraid.runs.results import latest_scores
from unbraid.runs.run import Run
from unbraid.runtime.files import make_folder
from unbraid.runtime.folders import new_folder
from unbraid.runtime.schema import WrongContentError, read_json

MODELS = Path(__file__).parent / "models"
FACTS_FILE = "zoo.json"
CHOICES = ("median", "best")
REMEDY = "Install unbraid again, or write the folder of models again."


@dataclass(frozen=True)
class ZooFacts:
    """The content of `zoo.json`.

    Attributes:
        choice: Whether the model is the "median" or the "best" run by the score `metric`.
        runs: The number of runs of the method on the dataset, from which the model was chosen.
        metric: The score by which the model was chosen, such as `mig.discrete_mig`.
        exact_scores: The scores of the run before its weights were rounded, as the study computed them. The study may
            have used other samples than the default protocol, with which the stored scores of the model are computed.
    """

    choice: str
    runs: int
    metric: str
    exact_scores: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.choice not in CHOICES:
            raise WrongContentError(f"The choice must be one of {', '.join(CHOICES)}. Got {self.choice!r} instead.")


@dataclass(frozen=True)
class ZooModel:
    """A trained model that comes with the package.

    Attributes:
        name: The name by which `ub.zoo.load` finds the model.
        path: The folder of the model. It is an ordinary run folder that also contains a model card.
    """

    name: str
    path: Path

    @cached_property
    def facts(self) -> ZooFacts:
        """How the model was chosen."""
        return read_json(self.path / FACTS_FILE, ZooFacts, REMEDY)

    @cached_property
    def run_folder(self) -> RunFolder:
        """The folder of the model, opened as a run folder. Its attribute `spec` has the settings of the run."""
        return RunFolder.open(self.path)

    @property
    def scores(self) -> dict[str, float]:
        """The scores of the model with its stored, rounded weights, by name, such as `mig.discrete_mig`."""
        return latest_scores(self.run_folder)

    @property
    def size(self) -> int:
        """The size of the folder in bytes."""
        return sum(file.stat().st_size for file in self.path.iterdir())

    @property
    def card(self) -> str:
        """The model card in Markdown."""
        file = self.path / "README.md"
        try:
            return file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise UserError(f"{file} must be text in UTF-8. Got other bytes instead. {REMEDY}") from error


def list_models(folder: str | Path | None = None) -> list[ZooModel]:
    """List the models.

    Args:
        folder: A folder of models that `evidence/make_zoo.py` wrote. By default the models of the package.

    Returns:
        The models, sorted by dataset and method. The median model of a method comes before its best one.

    >>> import unbraid as ub
    >>> all(model.name.count("/") == 2 for model in ub.zoo.list())
    True
    """
    root = MODELS if folder is None else Path(folder)
    paths = [file.parent for file in root.glob(f"*/*/*/{FACTS_FILE}")]
    models = [ZooModel(path.relative_to(root).as_posix(), path) for path in paths]
    return sorted(models, key=lambda model: (model.path.parent, CHOICES.index(model.facts.choice)))


def find_model(name: str, folder: str | Path | None = None) -> ZooModel:
    """Return the model with the given name.

    Args:
        name: The name of a model, such as ``dsprites/ada_gvae/best``. A name without the last part, such as
            ``dsprites/ada_gvae``, stands for the median model, or for the best one if there is no median model.
        folder: A folder of models, as in `list_models`.

    Returns:
        The model.

    Raises:
        UserError: If there is no such model.
    """
    models = {model.name: model for model in list_models(folder)}
    for candidate in (name, *(f"{name}/{choice}" for choice in CHOICES)):
        if candidate in models:
            return models[candidate]
    if not models:
        where = MODELS if folder is None else folder
        raise UserError(f"There is no model {name!r}, because the folder {where} contains no models.")
    raise UserError(unknown_name_message("model", name, list(models)))


def load_model(name: str, *, device: str = "cpu", folder: str | Path | None = None) -> Run:
    """Load a model by name, as an ordinary run with weights in float32.

    Loading needs no network connection and no data, and runs no code that is named in the files of the model. The run
    has no folder, so scoring it does not change the installed package. Use `copy` to get a run folder.

    Args:
        name: The name of a model, such as ``dsprites/ada_gvae`` or ``dsprites/ada_gvae/best`` (see `list`).
        device: The device on which to load the network.
        folder: A folder of models, as in `list`.

    Returns:
        The run.

    Raises:
        UserError: If there is no such model, or if a file is damaged.
    """
    stored = from_pretrained(find_model(name, folder).path, device=device)
    return Run(stored.spec, stored.net, stored.log, divergence=stored.divergence)


def copy(name: str, out: str | Path, *, folder: str | Path | None = None) -> Path:
    """Copy a model to a folder of runs, with its stored scores. All commands that take runs accept the copy.

    Args:
        name: The name of a model, as in `load`.
        out: The folder of runs. The copy is a new folder in it, whose name is the id of the run.
        folder: A folder of models, as in `list`.

    Returns:
        The folder of the copied run.

    Raises:
        UserError: If there is no such model, or if the folder already contains the run.
    """
    model = find_model(name, folder)
    target = Path(out) / model.run_folder.spec.id
    make_folder(target.parent)
    with new_folder(target) as temporary:
        for file in sorted(model.path.iterdir()):
            if file.name in (*RUN_FILES, "README.md", "config.json"):
                shutil.copyfile(file, temporary / file.name)
    return target
