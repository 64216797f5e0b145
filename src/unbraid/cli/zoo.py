"""List the trained models that come with unbraid, show one of them, or copy one to a folder of runs."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import TYPE_CHECKING

from unbraid.cli.parser import Parser
from unbraid.cli.values import path
from unbraid.errors import UserError
from unbraid.runtime.tables import table

if TYPE_CHECKING:
    from unbraid.zoo import ZooModel

COLUMNS = ("mig.discrete_mig", "dci.disentanglement", "factor_vae.eval_accuracy", "sap.SAP_score")


def main(parser: Parser, arguments: Sequence[str]) -> None:
    actions = "list prints all models, show prints a model card, copy writes a run folder that all commands accept"
    parser.add_argument("action", choices=("list", "show", "copy"), help=actions)
    parser.add_argument("name", nargs="?", metavar="NAME", help="name of a model, such as dsprites/ada_gvae")
    parser.add_argument("out", type=path, nargs="?", metavar="FOLDER", help="folder of runs to copy the model to")
    other = "folder of models written by evidence/make_zoo.py [the models that come with unbraid]"
    parser.add_argument("--folder", type=path, help=other)
    options = parser.parse_all(arguments)
    from unbraid import zoo
    from unbraid.zoo.catalogue import find_model

    if options.action == "list":
        print(models_table(zoo.list(options.folder)))
    elif options.name is None:
        raise UserError(f"Give the name of a model: unbraid zoo {options.action} NAME. See: unbraid zoo list")
    elif options.action == "show":
        model = find_model(options.name, options.folder)
        print(f"{model.card.partition('---')[2].partition('---')[2].strip()}\n\nFolder: {model.path}")
    elif options.out is None:
        raise UserError(f"Give the folder of runs: unbraid zoo copy {options.name} FOLDER")
    else:
        target = zoo.copy(options.name, options.out, folder=options.folder)
        print(f"The model was copied to {target}. Look at it with: unbraid report {quote(str(target))}")


def models_table(models: Sequence[ZooModel]) -> str:
    """Return a table with one row per model: its settings, its size, the number of candidates and its main scores.

    The column "candidates" is the number of runs from which the model was chosen.
    """
    if not models:
        return "This copy of unbraid contains no models."
    rows = []
    for model in models:
        scores = model.scores
        spec = model.run_folder.spec
        shown = [f"{scores[name]:.3f}" if name in scores else "-" for name in COLUMNS]
        rows.append([model.name, spec.steps, spec.latents, f"{model.size / 1e6:.1f} MB", model.facts.runs, *shown])
    return table(["model", "steps", "latents", "size", "candidates", *COLUMNS], rows)
