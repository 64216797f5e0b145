"""The tables in docs/papers: the contents of each page, networks, settings of studies, and scores of stored runs."""

from __future__ import annotations

import functools
import itertools
import re
import statistics
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import nn

from generate import ROOT
from generate.manipulated import RATES, beside
from generate.markdown import RESULTS, replace_block, result, table
from generate.pairs import METRICS
from generate.pmp import evidence_tables, sprites_medians
from generate.vitae import times
from unbraid.analysis.demystifying import VARIANTS
from unbraid.analysis.plots import display_name
from unbraid.analysis.trace_bound import best_noise, stochastic_loss
from unbraid.nets import NETS
from unbraid.reproduction import reproduce
from unbraid.studies.demystifying import PRIMARY
from unbraid.studies.planned import PlannedRun
from unbraid.studies.published import STUDIES

PAPERS = ROOT / "docs" / "papers"
VARIANCES = (4.0, 1.0)  # of the reconstructions along their two principal axes


def paper_pages() -> dict[Path, str]:
    """Return the pages of docs/papers with their current tables."""
    return {path: with_blocks(path.read_text(), blocks()[path.stem]) for path in sorted(PAPERS.glob("*.md"))}


def with_blocks(text: str, made: dict[str, str]) -> str:
    """Return a page with all its blocks replaced."""
    for name, content in made.items():
        text = replace_block(text, name, content)
    return text


def papers() -> list[dict[str, Any]]:
    """Return the papers in the order of papers.toml, with their tables and figures."""
    listed: list[dict[str, Any]] = tomllib.loads((PAPERS / "papers.toml").read_text())["paper"]
    return listed


@functools.cache
def blocks() -> dict[str, dict[str, str]]:
    """Return the generated blocks of every page by the name of the page."""
    scores = {score: score_table(score) for score in ("DCI", "FactorVAE", "SAP")}
    bodies, celeba = (1, 400, 200), (3, 128, 128)
    return {
        "index": {"contents": contents_table()},
        "challenging": {"objective": variance_table("objective"), "setting": variance_table("objective and strength")},
        "pmp": {
            "network": network_table("fumero", (3, 64, 64), 10),
            "pointnet": network_table("pointnet", (3 * 6890,), 10),
            "settings": pmp_settings_table(),
            "sprites": sprites_medians(),
            "evidence": evidence_tables(evidence_runs()),
            "medians": medians_table(),
        },
        "diffusion_vae": {"settings": diffusion_table()},
        "vitae": {
            "mnist": network_table("vitae_mlp", (1, 28, 28), 4),
            "bodies": network_table("vitae_bodies", bodies, 4),
            "celeba": network_table("vitae_celeba", celeba, 2),
            "times": times(),
        },
        "demystifying": {"rotation": rotation_table(), "strengths": strengths_table(), **scores},
    }


def contents_table() -> str:
    """Return one row per table or figure: the source, a link, what it shows, and the kind of result on the page."""
    rows = [
        [paper["short"], f"[{item['name']}]({paper['page']}.md#{anchor(item['name'])})", item["shows"], found(item)]
        for paper in papers()
        for item in paper["item"]
    ]
    return table(["source", "table or figure", "what it shows", "on the page"], rows)


def anchor(heading: str) -> str:
    """Return the anchor of a heading: in lower case, without punctuation, and with hyphens for spaces."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def found(item: dict[str, Any]) -> str:
    """Return the kind of result of a table or figure, or the reason why there is none."""
    return {"picture": "a picture", "table": "a table"}.get(item["evidence"]) or f"no result: {item['reason']}"


def variance_table(part: str) -> str:
    """Return the fractions of variance that `part` explains on dSprites, ours and the paper's."""
    cells = reproduce("locatello2019", pd.read_csv(RESULTS / "study_dsprites.csv")).table()
    cells = cells[cells["row"] == f"dsprites, {part}"]
    body = [
        ["paper, 50 seeds", *(f"{value:.0%}" for value in cells["paper"])],
        ["here, 4 seeds, expected with 50", *(f"{value:.0%}" for value in cells["ours"])],
    ]
    return table(["dSprites", *cells["column"]], body)


def network_table(name: str, shape: tuple[int, ...], latents: int) -> str:
    """Return the layers of the encoder and the decoder of a network, one per row."""
    parts = [list(layer_names(module)) for module in NETS[name](shape, latents)]
    rows = itertools.zip_longest(*parts, fillvalue="")
    size = " x ".join(map(str, shape))
    head = [f"encoder of `{name}`, from {size}", f"decoder, from {latents} latents"]
    return table(head, [list(row) for row in rows])


def layer_names(net: nn.Module) -> Iterator[str]:
    """Yield the layers with weights in order, each with the activation that follows it."""
    current = ""
    for module in getattr(net, "mean", net).modules():
        kind = layer_name(module)
        if kind is None and "LU" not in type(module).__name__ and not isinstance(module, nn.Sigmoid):
            continue
        if kind is None:
            current += f", {type(module).__name__}"
            continue
        if current:
            yield current
        current = kind
    yield current


def layer_name(module: nn.Module) -> str | None:
    """Return a layer in words, or None if it has no weights."""
    if isinstance(module, nn.Conv2d):
        return f"{module.kernel_size[0]} x {module.kernel_size[0]} conv, {module.out_channels}, stride 2"
    if isinstance(module, nn.ConvTranspose2d):
        return f"{module.kernel_size[0]} x {module.kernel_size[0]} upconv, {module.out_channels}, stride 2"
    return f"dense, {module.out_features:,}" if isinstance(module, nn.Linear) else None


def pmp_settings_table() -> str:
    """Return the hyperparameters of PMP in the study, next to those of the paper."""
    run = next(run for run in STUDIES["pmp2021"]() if run.facts()["method"] == "pmp")
    spec, method = run.spec, run.spec.method
    adam = method.adam("", spec.learning_rate)
    rows = {
        "d": ("10", spec.latents),
        "k": ("10", method.subspaces),
        "beta_1": ("0.1", f"{method.distance:g} (`--distance`) and {method.sparsity:g} (`--sparsity`)"),
        "beta_2": ("100", f"{method.consistency:g} (`--consistency`)"),
        "beta_3": ("0.0001", f"{method.regularisation:g} (`--regularisation`)"),
        "batch size": ("32", f"{spec.batch // 2} pairs (`--batch {spec.batch}`)"),
        "learning rate": ("0.0005", f"{spec.learning_rate:g}"),
        "Adam: beta1, beta2, epsilon": ("0.9, 0.99, 1e-8", f"{adam.beta1:g}, {adam.beta2:g}, {adam.epsilon:g}"),
    }
    return table(["parameter", "paper", "`unbraid study pmp2021`"], [[k, p, str(o)] for k, (p, o) in rows.items()])


def evidence_runs() -> pd.DataFrame:
    """Return the finished runs of the evidence, and those that were stopped early."""
    return pd.concat([pd.read_csv(ROOT / "evidence" / f"{name}.csv") for name in ("results", "stopped")])


def medians_table() -> str:
    """Return the medians over seeds of Ada-GVAE and PMP on dSprites and Cars3D."""
    rows = []
    for name in ("dsprites", "cars3d"):
        bench = result(f"bench_pairs_{name}")
        for method in ("ada_gvae", "pmp"):
            for kind, scores in bench["methods"][method]["scores"].items():
                values = (f"{statistics.median(scores[metric]):.3f}" for metric in METRICS)
                rows.append([name, f"`{method}`", kind, f"{bench['seeds']}", f"{bench['steps']:,}", *values])
    return table(["data", "method", "code", "seeds", "steps", *METRICS.values()], rows)


def diffusion_table() -> str:
    """Return the hyperparameters of the diffusion VAE in the study, next to those of the report."""
    runs = [run.spec for run in STUDIES["diffusion2019"]()]
    names = {"d": "latents", "beta": "beta", "L": "walk_steps", "C_min": "c_min", "C_max": "c_max"}
    paper = {"d": "10, 20", "beta": "1, 2.5, 10", "L": "5", "C_min": "0", "C_max": "15"}
    rows = []
    for label, field in names.items():
        values = (spec.latents - 1 if label == "d" else getattr(spec.method, field) for spec in runs)
        rows.append([label, paper[label], ", ".join(f"{value:g}" for value in sorted(set(values)))])
    return table(["hyperparameter", "report", "`unbraid study diffusion2019`"], rows)


def rotation_table() -> str:
    """Return the cost of noise for a decoder whose latents are rotated away from the principal axes."""
    covariance, log_noise = np.diag(VARIANCES), 0.0
    rows = []
    for degrees in (0, 15, 30, 45):
        c, s = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
        u = np.array([[c, -s], [s, c]])
        noise = best_noise(u, covariance, log_noise)
        lengths = ", ".join(f"{value:.2f}" for value in np.sqrt(np.diag(u @ covariance @ u.T)))
        rows.append([f"{degrees} degrees", lengths, f"{stochastic_loss(u, covariance, noise):.2f}"])
    return table(["rotation of the latents", "lengths of the columns of M", "smallest cost of the noise"], rows)


def primary_runs() -> Iterable[PlannedRun]:
    """Return the runs of the study at the primary strength, with the first seed and on original images."""
    runs = (run for run in STUDIES["demystifying2021"]() if run.level == PRIMARY and run.spec.seed == 0)
    return [run for run in runs if "?" not in run.spec.data]


def strengths_table() -> str:
    """Return the primary strength of each method that has one, per dataset."""
    strengths: dict[str, dict[str, str]] = {}
    for run in primary_runs():
        if run.strength:
            strengths.setdefault(run.facts()["method"], {})[run.spec.data] = f"{run.strength:g}"
    data = list(next(iter(strengths.values())))
    return table(["method", *data], [[display_name(name), *(row[d] for d in data)] for name, row in strengths.items()])


def score_table(score: str) -> str:
    """Return one score of the main training on dSprites, next to the paper's."""
    cells = reproduce("demystifying2021", pd.read_csv(RESULTS / f"{RATES['5e-4']}.csv")).table()
    cells = cells.query("kind == 'value' and runs > 0 and column == @score")
    body = []
    for method, group in cells.groupby(cells["row"].str.split(", ").str[0], sort=False):
        by_form = {row["row"].split()[-1]: row for _, row in group.iterrows()}
        body.append([display_name(method), *(beside(by_form[form]) for form in VARIANTS)])
    return table([f"{score}, dSprites", *(f"{form}: ours / paper" for form in VARIANTS)], body)
