"""One page a method: its docstring, fields, limits, the command that trains it, a picture and its scores."""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from metric_pages import ROOT, markdown, result, rows

from unbraid.cli.list_registries import first_line
from unbraid.methods import METHODS, Method
from unbraid.metrics import TRAITS

OVERVIEW = """# Methods

Made from the registry and `benchmarks/bench_methods.py` by `make docs`. Each method has a page with its equation,
fields, limits, deviations from the paper and a picture of what it learns. Scores are means of two seeds after a short
training on `sprites` (1,000 to 2,400 steps, a minute or two on two cores): they show that a method works and what its
page's command gives, not which method is best. For comparisons with many seeds see
[pairs and curved spaces](pairs_and_spaces.md), [appearance and perspective](appearance.md) and [studies](studies.md).

"""
GUIDES = {  # where a method is put to use
    "pairs, contrast and curved spaces": (
        "pairs_and_spaces",
        ("ada_gvae", "ada_mlvae", "slow_vae", "pcl", "pmp", "diffusion_vae"),
    ),
    "how examples are drawn": ("drawing", ("ada_gvae", "ada_mlvae", "slow_vae", "pcl", "pmp")),
    "appearance and perspective": ("appearance", ("u_vitae", "c_vitae")),
    "studies": ("studies", ("ae", "beta_vae", "annealed_vae", "factor_vae", "beta_tcvae", "dip_vae_i", "dip_vae_ii")),
    "what beta means here": ("faq", ("vae", "beta_vae")),
}
WARPED = (
    "Where every perspective is the identity it is a VAE of the appearance alone, with the KL of all latents "
    "(`tests/test_vitae.py::test_without_perspective_it_is_a_vae_of_the_appearance`)."
)
ALONE = "It has no decoder and reduces to none of the others; chance has the loss log 2 (`tests/test_pcl.py`)."
IN_WORDS = {"u_vitae": WARPED, "c_vitae": WARPED, "pcl": ALONE}  # limits that are no pair of methods
CHOSEN = {  # settings that were changed after a look at what they gave
    "diffusion_vae": "`beta` is .5 because 2, tried first, gave blurred images (mean MIG .04).",
    "factor_vae": "Its steps were cut to save time.",
    "pcl": "Its steps were cut to save time.",
    "pmp": "Its steps were cut to save time.",
    "u_vitae": "Its steps were cut to save time.",
    "c_vitae": "Its steps were cut to save time.",
}
ENCODERS = ("pcl",)  # methods without a decoder
SHOWN = {"mig": "MIG", "dci": "DCI", "factor_vae": "FactorVAE score", "sap": "SAP", "modularity": "modularity"}


def parts(thing: type[Method]) -> tuple[str, str, str]:
    """A docstring's account, its deviations and its reference."""
    found: dict[str, list[str]] = {"account": [], "deviations": [], "reference": []}
    place = "account"
    for line in markdown(thing).splitlines():
        if re.match(r"Deviations?\b", line):
            place = "deviations"
        elif line.startswith("Reference:"):
            place = "reference"
        found[place].append(line)
    account, deviations, cited = ("\n".join(lines).strip() for lines in found.values())
    return account, deviations, cited


def untitled(deviations: str) -> str:
    """Without the word that is the heading now."""
    text = re.sub(r"^Deviations?[:,]? ", "", deviations)
    return text[:1].upper() + text[1:]


def allowed(field: dataclasses.Field[Any], kind: Any) -> str:
    """The values a field may have."""
    if get_origin(kind) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(kind))
    low, high = field.metadata["low"], field.metadata["high"]
    whole = "whole, " if kind is int else ""
    if high < math.inf:
        return f"{whole}{low:g} to {high:g}"
    return f"{whole}at least {low:g}" if low > -math.inf else f"{whole}any"


def fields(thing: type[Method]) -> str:
    """A method's hyperparameters, each a flag of the command."""
    kinds = get_type_hints(thing)
    body = []
    for field in dataclasses.fields(thing):
        shown = f"{field.default:g}" if isinstance(field.default, float) else str(field.default)
        swept = "yes" if "Tensor" in str(kinds[field.name]) else "no"
        flag = f"`--{field.name.replace('_', '-')}`"
        body.append([flag, shown, allowed(field, kinds[field.name]), field.metadata["help"], swept])
    if not body:
        return "It has none."
    note = (
        "Fields of the dataclass and flags of the command are the same. Runs that differ in a field with *yes* in the "
        "last column ride in one stack."
    )
    return note + "\n\n" + rows(["flag", "default", "values", "what it is", "stacks"], body)


def called(method: Method) -> str:
    """A method as one would write it; one made for a test by what it is."""
    changed = [(f.name, getattr(method, f.name)) for f in dataclasses.fields(method)
               if getattr(method, f.name) != f.default]  # fmt: skip
    name, inside = (
        type(method).__name__,
        ", ".join(f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in changed),
    )
    text = f"`{name}({inside})`"
    if type(method) in METHODS.values():
        return text
    about = (inspect.getdoc(type(method)) or "").split("\n\n")[0].replace("\n", " ").rstrip(".")
    return f"{text} ({about[0].lower() + about[1:] if about[:3] != 'Ada' else about})"


def limits(name: str) -> str:
    """Where the method is another one."""
    from families import FAMILY

    if name in IN_WORDS:
        return IN_WORDS[name]
    lines = [f"- {called(one)} is {called(other)}" for one, other in FAMILY[name].limits]
    return "Same loss and same update, to rounding (`tests/test_methods.py::test_limit`):\n\n" + "\n".join(lines)


def scores(name: str, bench: dict[str, Any]) -> str:
    """The scores of both seeds between those of an untrained encoder and of a perfect code."""
    row, untrained, ceiling = bench["methods"][name], bench["methods"]["untrained"], bench["bounds"]["perfect"]
    body = []
    for metric, shown in SHOWN.items():
        mean = sum(untrained["scores"][metric]) / len(untrained["scores"][metric])
        cells = [*row["scores"][metric], mean, ceiling[metric][TRAITS[metric].headline]]
        body.append([f"[{shown}](../metrics/{metric}.md)", *(f"{value:.3f}" for value in cells)])
    seeds = [f"seed {seed}" for seed in bench["seeds"]]
    return rows(["metric", *seeds, "untrained", "a perfect code"], body)


def learned(name: str, bench: dict[str, Any]) -> str:
    """The picture and the scores, with how they came about."""
    row = bench["methods"].get(name)
    if row is None:
        return f"Not measured yet: `python benchmarks/bench_methods.py --methods {name}`, then `make docs`."
    moved = (
        f"First the example and its reconstruction; then a row for each {mover(name)}, moved from one end to the other."
    )
    told = "There is no decoder to traverse. Instead: the share of each factor's entropy that each code tells."
    drawn = told if name in ENCODERS else moved
    machine = row["machine"]
    made = (
        f"Both by `python benchmarks/bench_methods.py --methods {name}` at commit `{row['commit'][:12]}` on "
        f"{machine['processor']}, {machine['cores']} cores, torch {machine['versions']['torch']}. The picture is of "
        f"seed {bench['seeds'][0]}, not of the best one. Scores are of the codes called `{row['code']}`, "
        "10,000 points to learn from and 5,000 to test on."
    )
    if name in CHOSEN:
        made = f"{made} {CHOSEN[name]}"
    seen = f"![what {name} learned on sprites](../pictures/methods/{name}.png)"
    return f"{seen}\n\n{drawn}\n\n{scores(name, bench)}\n\n{made}"


def mover(name: str) -> str:
    """What a row of the traversal moves."""
    others = {
        "ae": "latent, from -2 to 2 standard deviations of its codes about their mean, the widest first",
        "pmp": "subspace, moved along its first principal direction from -2 to 2 standard deviations",
        "diffusion_vae": "direction on the sphere, from -2 to 2 radians",
    }
    return others.get(name, "latent, from -2 to 2, sorted by how many nats it carries")


def guides(name: str) -> str:
    """Pages that put the method to use."""
    links = [f"[{title}](../{page}.md)" for title, (page, names) in GUIDES.items() if name in names]
    return "See also " + ", ".join([*links, "[all methods](../methods.md)"]) + "."


def method_page(name: str) -> str:
    """Everything about one method."""
    account, deviations, cited = parts(METHODS[name])
    bench = result("bench_methods")
    row = bench["methods"].get(name, {"command": f"unbraid train {name} --data sprites"})
    commands = [row["command"], f"unbraid score runs/{name}"]
    commands += [] if name in ENCODERS else [f"unbraid traverse runs/{name}"]
    pieces = [
        f"# {name}\n\nMade from the docstring, the law tables and `benchmarks/bench_methods.py` by `make docs`.",
        account,
        f"In Python it is `unbraid.methods.{METHODS[name].__name__}`. {guides(name)}",
        f"## Fields\n\n{fields(METHODS[name])}",
        "## Train it\n\n```\n" + "\n".join(commands) + "\n```",
        f"## What it learns\n\n{learned(name, bench)}",
        f"## Where it reduces to something known\n\n{limits(name)}",
        *([f"## Deviations\n\n{untitled(deviations)}"] if deviations else []),
        f"## Reference\n\n{cited.removeprefix('Reference:').strip()}",
    ]
    return "\n\n".join(pieces) + "\n"


def overview() -> str:
    """The list of methods with their scores."""
    measured, body = result("bench_methods")["methods"], []
    for name, thing in METHODS.items():
        found = measured[name]["scores"] if name in measured else {}
        means = [f"{sum(found[metric]) / len(found[metric]):.2f}" if found else "-" for metric in SHOWN]
        body.append([f"[{name}](methods/{name}.md)", first_line(thing), *means])
    return OVERVIEW + rows(["method", "what it is", *SHOWN.values()], body) + "\n"


def method_pages() -> dict[Path, str]:
    """The generated files and what they should hold."""
    docs = ROOT / "docs"
    return {docs / "methods.md": overview(), **{docs / "methods" / f"{n}.md": method_page(n) for n in METHODS}}
