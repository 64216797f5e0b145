"""One page per method: its docstring (by Sphinx), fields, training command, picture, scores and special cases."""

from __future__ import annotations

import dataclasses
import inspect
import math
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from generate import ROOT
from generate.full_length import full_length_section
from generate.markdown import autodoc, contents, result, table
from unbraid.cli.list_registries import first_line
from unbraid.methods import METHODS, Method
from unbraid.metrics import TRAITS

FOLDER = ROOT / "docs" / "methods"
DRAWS = "../guides/scores_results.md#which-draws-the-tables-of-this-documentation-use"
OVERVIEW = f"""# Methods

This page lists all methods. The page of a method has its objective, its hyperparameters, its deviations from the paper,
what it learns in a few minutes of training, and its scores after long training if the
[evidence](../guides/reproduction_results.md) has any.

The scores below are means over two seeds after a short training on `sprites`: 200 to 2,400 steps, which take one or
two minutes on two cores for most methods, scored with [disjoint draws]({DRAWS}). PCA and ICA need no training.
They show that a method works, but not which method is best. For comparisons with many seeds,
see [pairs and curved spaces](../guides/pairs_and_spaces.md), [results of VITAE](../guides/appearance_results.md) and
[results of reduced studies](../guides/analyses_results.md). `make docs` generates this page from the registry and
`benchmarks/bench_methods.py`.

"""
WITH_PAIRS = ("ada_gvae", "ada_mlvae", "group_vae", "ml_vae", "slow_vae", "pcl", "cl_ica", "pmp")
GUIDES = {  # guides that use a method
    "pairs, contrast and curved spaces": (
        "pairs_and_spaces",
        (
            "ada_gvae",
            "ada_mlvae",
            "group_vae",
            "ml_vae",
            "slow_vae",
            "pcl",
            "cl_ica",
            "ice_beem",
            "pmp",
            "diffusion_vae",
            "s_vae",
            "lsbd_vae",
            "poincare_vae",
            "commutative_vae",
            "groupified_vae",
        ),
    ),
    "how examples are drawn": (
        "drawing",
        ("ada_gvae", "ada_mlvae", "group_vae", "ml_vae", "slow_vae", "pcl", "cl_ica", "pmp"),
    ),
    "appearance and perspective": ("appearance", ("u_vitae", "c_vitae")),
    "studies": ("studies", ("ae", "beta_vae", "annealed_vae", "factor_vae", "beta_tcvae", "dip_vae_i", "dip_vae_ii")),
    "what beta means here": ("faq", ("vae", "beta_vae")),
}
IDENTITY = (
    "If the transformation of every example is the identity, the method equals a VAE that has only the appearance "
    "latents, except that the KL includes the perspective latents (`tests/methods/test_vitae.py`)."
)
ENCODER_ONLY = "It has no decoder, and no other method is a special case of it. Random guessing has a loss of log 2."
NO_SPECIAL_CASE = (
    "It has no decoder, and no other method is a special case of it. An encoder that guesses the partner of each "
    "example has a loss of log n for n pairs."
)
IN_WORDS = {
    "devae": "The loss is the sum of the losses of beta-VAEs, one for each space, whose encoders differ only in the "
    "rescalings (`tests/methods/test_devae.py`).",
    "u_vitae": IDENTITY,
    "c_vitae": IDENTITY,
    "pcl": ENCODER_ONLY,
    "cl_ica": NO_SPECIAL_CASE,
    "ice_beem": "It has no decoder, and no other method is a special case of it. An energy that does not depend on the "
    "example has a loss of 0.",
}  # cases that are not a pair of methods
SHORTER = "After a first trial, the number of steps was reduced to save time."
NOTES = {  # settings that were changed after the first results
    "diffusion_vae": "`beta` is 0.5. With 2, which was tried first, images were blurred (mean MIG 0.04).",
    "lsbd_vae": "`sprites` has no cyclic factor, so there are no labelled pairs in this training.",
    **dict.fromkeys(("factor_vae", "pcl", "pmp", "u_vitae", "c_vitae"), SHORTER),
}
WITHOUT_DECODER = ("pcl", "cl_ica", "ice_beem")
SHOWN = {"mig": "MIG", "dci": "DCI", "factor_vae": "FactorVAE score", "sap": "SAP", "modularity": "modularity"}
DEVIATIONS = "latent from -2 to 2 of its standard deviations around its mean, with the largest standard deviation first"
ON_GRID = f"{DEVIATIONS}. Before decoding, each latent is replaced by the nearest of its learned values"
MAX_ROWS = 12  # of a traversal, as in benchmarks/bench_methods.py
ROWS = {  # what a row of the traversal moves
    "ae": DEVIATIONS,
    "pca": DEVIATIONS,
    "ica": DEVIATIONS,
    "ae_ica": DEVIATIONS,
    "fsq": ON_GRID,
    "tripod": ON_GRID,
    "qlae": ON_GRID,
    "sae": f"{DEVIATIONS}. Negative activations are replaced by 0",
    "joint_vae": "latent, with the largest KL first. A continuous latent varies from -2 to 2. A categorical latent "
    "takes its values one after the other",
    "pmp": "subspace, along its first principal direction from -2 to 2 standard deviations",
    "diffusion_vae": "direction on the sphere from -2 to 2 radians",
    "s_vae": "direction on the sphere from -2 to 2 radians",
    "lsbd_vae": "circle from -2 to 2 radians, or one other latent from -2 to 2",
    "poincare_vae": "direction: the code of the example moves along it by -2 to 2 units of length",
}


def allowed_values(field: dataclasses.Field[Any], kind: Any) -> str:
    """Return the values that a field takes."""
    if get_origin(kind) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(kind))
    if kind is str:
        return "text"
    low, high = field.metadata["low"], field.metadata["high"]
    integer = "integer, " if kind is int else ""
    if high < math.inf:
        return f"{integer}{low:g} to {high:g}" if low > -math.inf else f"{integer}at most {high:g}"
    return f"{integer}at least {low:g}" if low > -math.inf else f"{integer}any"


def fields(method: type[Method]) -> str:
    """Return the table of a method's hyperparameters."""
    kinds, body = get_type_hints(method), []
    for field in dataclasses.fields(method):
        default = f"{field.default:g}" if isinstance(field.default, float) else str(field.default)
        varies = "yes" if "Tensor" in str(kinds[field.name]) else "no"
        flag = f"`--{field.name.replace('_', '-')}`"
        body.append([flag, default, allowed_values(field, kinds[field.name]), field.metadata["help"], varies])
    if not body:
        return "This method has no hyperparameters."
    note = (
        "These are the fields of the dataclass and the flags of `unbraid train`. Runs that differ only in those marked "
        "*yes* in the last column can be trained together."
    )
    return note + "\n\n" + table(["flag", "default", "values", "meaning", "can train together"], body)


def expression(method: Method) -> str:
    """Return the Python expression of a method; for a class of the tests, also what it is."""
    changed = {f.name: getattr(method, f.name) for f in dataclasses.fields(method)
               if getattr(method, f.name) != f.default}  # fmt: skip
    inside = ", ".join(f"{k}={v:g}" if isinstance(v, float) else f"{k}={v!r}" for k, v in changed.items())
    text = f"`{type(method).__name__}({inside})`"
    if type(method) in METHODS.values():
        return text
    about = (inspect.getdoc(type(method)) or "").split("\n\n")[0].replace("\n", " ").rstrip(".")
    return f"{text} ({about})"


def special_cases(name: str) -> str:
    """Return the cases in which a method equals another one."""
    from families import METHOD_FACTS

    if name in IN_WORDS:
        return IN_WORDS[name]
    lines = [f"- {expression(one)} equals {expression(other)}" for one, other in METHOD_FACTS[name].limits]
    return (
        "Each line below names two configurations that are equivalent: they have the same loss and the same update, up "
        "to rounding. A test asserts this for each line:\n\n" + "\n".join(lines)
    )


def scores(name: str, bench: dict[str, Any]) -> str:
    """Return the scores of both seeds, of an untrained encoder and of a perfect code."""
    row, untrained, ceiling = bench["methods"][name], bench["methods"]["untrained"], bench["bounds"]["perfect"]
    body = []
    for metric, shown in SHOWN.items():
        mean = sum(untrained["scores"][metric]) / len(untrained["scores"][metric])
        cells = [*row["scores"][metric], mean, ceiling[metric][TRAITS[metric].headline]]
        body.append([f"[{shown}](../metrics/{metric}.md)", *(f"{value:.3f}" for value in cells)])
    heads = ["metric", *(f"seed {seed}" for seed in bench["seeds"]), "untrained encoder", "perfect code"]
    return table(heads, body)


def measured(name: str, bench: dict[str, Any]) -> str:
    """Return the picture, the scores and how they were made."""
    row = bench["methods"].get(name)
    if row is None:
        return f"Not measured yet. Run `python benchmarks/bench_methods.py --methods {name}`, then `make docs`."
    traversal = (
        "The first row shows an example and its reconstruction. Each of the remaining rows varies one "
        f"{ROWS.get(name, 'latent from -2 to 2. The latent with the largest KL comes first')}."
        + f" Only the first {MAX_ROWS} of {row['latents']} latents are shown."
        * (row["latents"] > MAX_ROWS)
    )
    information = (
        "There is no decoder, so there is no traversal. The picture shows the information about each factor in each "
        "latent, as a fraction of the entropy of the factor."
    )
    machine = row["machine"]
    shown = (
        f"The picture shows seed {bench['seeds'][0]}, even if another seed scored higher. Metrics score the "
        f"codes called `{row['code']}`, with [disjoint draws]({DRAWS}): no row is in both the training set and "
        "the test set of a metric. "
        f"{NOTES.get(name, '')}"
    ).strip()
    origin = (
        f"The picture and the scores were made by `python benchmarks/bench_methods.py --methods {name}` at commit "
        f"`{row['commit'][:12]}`, on {machine['cores']} cores of an {machine['processor']} processor with torch "
        f"{machine['versions']['torch']}."
    )
    drawn = "Information in each latent" if name in WITHOUT_DECODER else "Traversal"
    picture = f"![{drawn} of {name} on sprites](../pictures/methods/{name}.png)"
    caption = information if name in WITHOUT_DECODER else traversal
    return "\n\n".join([picture, caption, scores(name, bench), shown, origin])


def guides(name: str) -> str:
    """Return links to the guides that use a method."""
    links = [f"[{title}](../guides/{page}.md)" for title, (page, names) in GUIDES.items() if name in names]
    return "See also: " + ", ".join([*links, "[all methods](index.md)"]) + "."


def method_page(name: str) -> str:
    """Return the page of one method."""
    bench = result("bench_methods")
    commands = [bench["methods"].get(name, {"command": f"unbraid train {name} --data sprites"})["command"]]
    commands += [f"unbraid score runs/{name}"]
    commands += [] if name in WITHOUT_DECODER else [f"unbraid traverse runs/{name}"]
    parts = [
        f"# {name}",
        autodoc("autoclass", f"unbraid.methods.{METHODS[name].__name__}"),
        guides(name),
        f"## Hyperparameters\n\n{fields(METHODS[name])}",
        "## Train it\n\n```bash\n" + "\n".join(commands) + "\n```",
        f"## What it learns\n\n{measured(name, bench)}",
        full_length_section(name),
        f"## Special cases\n\n{special_cases(name)}",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def overview() -> str:
    """Return the list of methods with their scores."""
    rows, body = result("bench_methods")["methods"], []
    for name, method in METHODS.items():
        found = rows[name]["scores"] if name in rows else {}
        means = [f"{sum(found[metric]) / len(found[metric]):.2f}" if found else "-" for metric in SHOWN]
        body.append([f"[{name}]({name}.md)", first_line(method), *means])
    listed = table(["method", "objective", *SHOWN.values()], body)
    return f"{OVERVIEW}{listed}\n\n{contents(METHODS)}\n"


def method_pages() -> dict[Path, str]:
    """Return the generated files with their texts."""
    return {FOLDER / "index.md": overview(), **{FOLDER / f"{name}.md": method_page(name) for name in METHODS}}
