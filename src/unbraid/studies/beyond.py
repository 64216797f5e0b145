"""The study of all methods of the library on three datasets."""

from __future__ import annotations

from collections.abc import Iterator

from unbraid.methods import METHODS
from unbraid.methods.curved import CurvedMethod
from unbraid.studies.planned import PlannedRun, Setting, grid

DATASETS = ("dsprites", "shapes3d_rendered", "cars3d")
PAIRS = ("ada_gvae", "ada_mlvae", "group_vae", "ml_vae", "slow_vae", "pcl", "cl_ica", "pmp")
LABELS = ("semi_vae", "ivae", "ice_beem", "triplet_vae", "ada_tvae", "lsbd_vae")
DIMENSIONS, SEEDS, STEPS, BATCH = 10, 5, 300_000, 64


def supervision(method: str) -> str:
    """Return what a method learns from: "images", "pairs" of images, or "labels" (labels, or distances between them).

    Methods are ranked within these classes. A method that is in neither `PAIRS` nor `LABELS` learns from images.

    >>> supervision("beta_vae"), supervision("slow_vae"), supervision("semi_vae")
    ('images', 'pairs', 'labels')
    """
    return "pairs" if method in PAIRS else "labels" if method in LABELS else "images"


def default_settings() -> list[Setting]:
    """Return one setting for each built-in method, with the defaults of the method, in the order of `METHODS`.

    A curved latent space of 10 dimensions has 11 coordinates. All other methods have 10 latents.
    """
    methods = [make() for make in METHODS.values()]
    latents = [DIMENSIONS + 1 if isinstance(method, CurvedMethod) else DIMENSIONS for method in methods]
    return [Setting(method, 0.0, 0, {"latents": n}) for method, n in zip(methods, latents, strict=True)]


def beyond2026() -> Iterator[PlannedRun]:
    """Yield runs of every method of the library with equal budgets: 3 datasets x all methods x 5 seeds.

    Each run has 10 latent dimensions and is trained for 300,000 steps with batches of 64, with the networks and the
    likelihood of `locatello2019`. The learning rate and all other settings are the defaults of each method. Methods
    that are added to the library become part of the study. A method that cannot be trained on a dataset is left out
    for this dataset, and a message gives the reason.

    Limitations: Each method has only one strength (the value of its main hyperparameter), which was not tuned. Methods
    differ in their supervision: none, pairs of examples, or labels. A step of a method with pairs or several networks
    takes longer than that of a VAE.

    Reference: none; the study is our own. Networks, steps and batches are those of Locatello et al. (2019),
    arXiv:1811.12359. The analyses `method_ranking` and `ranking_agreement` summarise the results.
    """
    yield from grid(DATASETS, default_settings(), SEEDS, steps=STEPS, batch=BATCH)
