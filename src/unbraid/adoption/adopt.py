"""Make a run from a model that was trained outside unbraid."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unbraid.adoption.checking import check_model
from unbraid.adoption.files import open_model
from unbraid.adoption.storing import AdoptedModel, storable_model
from unbraid.data.dataset import FactorData
from unbraid.data.loading import DataLike, load_data
from unbraid.data.own.arrays import OwnData
from unbraid.errors import warn_user
from unbraid.methods.adopted import POINT_CODES, Adopted
from unbraid.methods.method import Method
from unbraid.nets.adopted import ModelOptions
from unbraid.nets.any_model import evaluation_mode
from unbraid.runs.adopted_model import write_model
from unbraid.runs.adopted_spec import STORED, AdoptedSpec, check_given, check_name
from unbraid.runs.folder import RunFolder, find_runs
from unbraid.runs.labels import run_labels
from unbraid.runs.run import Run, open_run
from unbraid.runs.run_data import check_data_to_save, memory_fingerprint, remember_data
from unbraid.runs.run_data import save_data as write_data
from unbraid.runs.sources import source_digest
from unbraid.runtime.arguments import explain_unknown_arguments
from unbraid.runtime.importing import import_name


@explain_unknown_arguments()
def adopt(
    model: Any,
    data: DataLike,
    name: str,
    *,
    out: str | Path | None = None,
    pixels: tuple[float, float] = (0.0, 1.0),
    logits: bool = False,
    second: str = "logvar",
    latents: int | None = None,
    seed: int | None = None,
    settings: Mapping[str, Any] | None = None,
    trust: bool = False,
    save_data: bool = False,
    quiet: bool = False,
) -> Run:
    """Make a run from a model that was trained outside unbraid. The run can be scored, compared, drawn and exported.

    Args:
        model: The model in one of these forms:

            - an object with methods `encode(x)` and `decode(z)`, or with modules `encoder` and `decoder`,
            - a pair (encoder, decoder) of modules or functions, or an encoder alone,
            - the path of a TorchScript file (.pt), a torch.export file (.pt2) or an ONNX file, or a pair of such paths,
            - ``"file.py:function"`` or ``"module:function"``, where the function returns one of the above.

            The encoder takes examples (n, ...) and returns codes (n, ...), a pair of means and log variances, a
            distribution, or an object with a field for the codes, the means or the distribution. The decoder takes
            codes and returns examples.
        data: The data to encode, in one of the forms that `train` accepts.
        name: The name of the model. Tables and pictures show it in place of the name of a method.
        out: The folder of runs to which the run is added. By default the run is not stored.
        pixels: The values of black and of white in the images that the model takes and returns, such as (-1, 1).
        logits: Whether the decoder returns logits of pixels, to which a sigmoid must be applied.
        second: The meaning of the second output, if the encoder returns a pair: "logvar", "variance", "std", or "other"
            if it is none of these. With `latents`, it is the meaning of the second half of the output.
        latents: The number of latents. It is needed only if the encoder returns one tensor (n, 2 d) of means and log
            variances, or of means and values that `second` describes.
        seed: The seed with which the model was trained, if it is known. Statistical tests need several models that
            were trained with different seeds.
        settings: Hyperparameters of the model, by name. They are shown in tables.
        trust: Whether the program in a TorchScript or torch.export file may be run.
        save_data: Whether to store the data in the folder `out`. This is for data that were passed as arrays or as a
            torch dataset.
        quiet: Whether to hide the progress of loading the data.

    Returns:
        The run. Its model is a copy, so later changes of the original have no effect on it.

    Raises:
        UserError: If the model does not fit the data or cannot be stored, or if `trust` is needed.

    >>> import torch
    >>> import unbraid as ub
    >>> encoder = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3))
    >>> run = ub.adopt(encoder, data="toy", name="linear")
    >>> run.label, run.encode(ub.data.load("toy").images([0, 1])).shape
    ('linear', torch.Size([2, 3]))
    """
    options = ModelOptions(float(pixels[0]), float(pixels[1]), logits, second, latents)
    check_name(name)
    check_given(settings or {})
    source = load_data(data, quiet=quiet)
    if save_data:
        check_data_to_save(source, out)
    given = open_model(_copied(model), trust)
    with evaluation_mode(given.parts.modules):
        checked = check_model(given.parts, options, source)
        adopted = storable_model(checked, given.name, must_be_stored=out is not None)
    codes = Method.code_kinds if checked.variances else POINT_CODES
    method = Adopted.from_values(name, settings or {}, codes)
    net_name = given.name if adopted.as_code and given.name else STORED
    spec = AdoptedSpec(method, source.name, seed=seed, latents=checked.latents, net=net_name, model=adopted.digest)
    if out is not None:
        return _write(Path(out), spec, adopted, source, save_data)
    run = Run(spec, adopted.network())
    remember_data([run], source)
    return run


def _copied(model: Any) -> Any:
    """Return a copy of a model, or the model itself if it cannot be copied."""
    try:
        return copy.deepcopy(model)
    except (RuntimeError, TypeError, AttributeError):  # for example tensors with a history, or open files
        return model


def _warn_of_same_model(out: Path, spec: AdoptedSpec) -> None:
    """Warn if a folder already has a run of the same model with a different seed, name or setting."""
    for other in find_runs(out) if out.is_dir() else []:
        same = isinstance(other.spec, AdoptedSpec) and other.spec.model == spec.model and other.spec.data == spec.data
        if same and other.spec.id != spec.id:
            label = run_labels([other.spec])[other.spec.id]
            warn_user(
                f"{out} already has this model with the same weights: {label} ({other.spec.id}). Models of several "
                "seeds must be trained separately. Comparisons and rankings count this model once."
            )
            return


def _write(out: Path, spec: AdoptedSpec, adopted: AdoptedModel, data: FactorData, save_data: bool) -> Run:
    """Write an adopted model to the folder of its run, and return the run."""
    _warn_of_same_model(out, spec)
    sources = {spec.net: source_digest(import_name("model", spec.net))} if adopted.as_code else {}
    folder = RunFolder.create(out, spec, sources, data=memory_fingerprint(data))
    if save_data and isinstance(data, OwnData):
        write_data(out, data)
    if folder.status != "done":
        write_model(folder, adopted.content, adopted.tensors)
    run = open_run(folder, data)
    remember_data([run], data)
    return run
