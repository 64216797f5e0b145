"""The table in docs/guides/sharing_models.md: the models that come with unbraid."""

from __future__ import annotations

from pathlib import Path

from generate import ROOT
from generate.markdown import number, replace_block, table
from unbraid.zoo.catalogue import ZooModel, list_models

PAGE = ROOT / "docs" / "guides" / "sharing_models.md"
SCORES = {
    "MIG": "mig.discrete_mig",
    "DCI": "dci.disentanglement",
    "FactorVAE": "factor_vae.eval_accuracy",
    "SAP": "sap.SAP_score",
}
HEADER = ["model", "steps", "seed", "latents", "network", "chosen from", "size", *SCORES]


def zoo_pages() -> dict[Path, str]:
    """Return the page with the current table of models."""
    return {PAGE: replace_block(PAGE.read_text(), "zoo", table(HEADER, map(model_row, list_models())))}


def model_row(model: ZooModel) -> list[str]:
    """Return the row of a model: its settings, its size and its stored scores."""
    spec, scores = model.run_folder.spec, model.scores
    settings = [f"{spec.steps:,}", str(spec.seed), str(spec.latents), f"`{spec.net}`", f"{model.facts.runs} runs"]
    size = f"{model.size / 1e6:.1f} MB"
    return [f"`{model.name}`", *settings, size, *(number(scores.get(name)) for name in SCORES.values())]
