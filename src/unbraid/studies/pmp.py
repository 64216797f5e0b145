"""The studies of product manifold projection (PMP) on images and on meshes.

On images, PMP is compared with Ada-GVAE. Both studies include ablations of PMP.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from unbraid.data.files.locate import locate_files
from unbraid.data.readers.cars3d import AZIMUTHS, ELEVATIONS, OBJECTS
from unbraid.data.readers.shapes3d import SIZES as SHAPES3D_SIZES
from unbraid.data.readers.smallnorb import GRID_NAME as SMALLNORB
from unbraid.data.readers.smallnorb import SIZES as SMALLNORB_SIZES
from unbraid.data.rendered.dsprites import SIZES as DSPRITES_SIZES
from unbraid.errors import UserError
from unbraid.methods import PMP, AdaGVAE
from unbraid.studies.planned import PlannedRun, Setting, grid, number_runs

EXAMPLES = {
    "dsprites": math.prod(DSPRITES_SIZES),
    "shapes3d": math.prod(SHAPES3D_SIZES),
    "cars3d": ELEVATIONS * AZIMUTHS * OBJECTS,
    SMALLNORB: math.prod(SMALLNORB_SIZES),
}  # number of examples of each dataset
EPOCHS, PAIRS = 30, 32  # number of epochs, and number of pairs per step
TERMS = ("distance", "sparsity", "consistency", "regularisation")


def steps_of_epochs(epochs: int, examples: int, per_step: int) -> int:
    """Return the number of training steps of a number of epochs.

    The number of steps per epoch is rounded up, because in the paper the last step of an epoch may have fewer examples
    than the others.

    Args:
        epochs: The number of epochs.
        examples: The number of examples, or of pairs, of one epoch.
        per_step: The number of examples, or of pairs, of one step.

    >>> steps_of_epochs(30, 17_568, 32)
    16470
    """
    return epochs * math.ceil(examples / per_step)


def pmp_settings(data: str) -> list[Setting]:
    """Return the settings of Ada-GVAE, of PMP, and of PMP without each of its terms, for a dataset in `EXAMPLES`."""
    steps = steps_of_epochs(EPOCHS, EXAMPLES[data], PAIRS)
    likelihood = "bernoulli" if data == "dsprites" else "gaussian"
    spec: dict[str, Any] = {"net": "fumero", "likelihood": likelihood, "steps": steps, "batch": 2 * PAIRS}
    return [Setting(AdaGVAE(), 1.0, 0), *with_ablations(PMP(), spec)]


def with_ablations(method: PMP, spec: dict[str, Any]) -> list[Setting]:
    """Return the settings of PMP, and of PMP without each of its terms, with the given fields of `RunSpec`."""
    ablations: dict[str, dict[str, Any]] = {"": {}} | {f"without {term}": {term: 0.0} for term in TERMS}
    methods = {variant: replace(method, **weight) for variant, weight in ablations.items()}
    return [Setting(one, one.strength, 0, spec, variant) for variant, one in methods.items()]


def pmp2021() -> Iterator[PlannedRun]:
    """Yield 120 runs of Ada-GVAE, PMP, and PMP without one of its terms: 4 datasets x 6 settings x 5 seeds.

    PMP is trained for 30 epochs with 32 pairs per step at learning rate 5e-4, where an epoch has as many pairs as the
    dataset has examples: 691,200 steps on dSprites, 450,000 on Shapes3D, 16,470 on Cars3D and 45,570 on small NORB.
    Its network is that of the supplement. The reconstruction error is the cross-entropy on dSprites and the squared
    error on the other datasets. The four ablations are variants of PMP with names such as "without sparsity". Ada-GVAE
    has the settings of its own paper: beta 1, 300,000 steps, learning rate 1e-4, Bernoulli pixels and the network of
    `locatello2019`.

    Deviations: the number of epochs is that of the authors' example for Cars3D. Small NORB has the instance as a
    factor, because pairs need a full grid. A batch of Ada-GVAE has 64 images, which are 32 pairs as for PMP. The batch
    size in the code of its authors is the number of pairs.
    Reference: Fumero et al. (2021), arXiv:2103.01638, tables 1 to 4, and tables 1 and 4 of its supplement.
    """
    yield from number_runs(run for data in EXAMPLES for run in grid([data], pmp_settings(data), 5))


def mesh_data() -> str:
    """Return "faust" if its files are in the data folder, and "bodies" otherwise."""
    try:
        locate_files("faust")
    except UserError:
        return "bodies"
    return "faust"


def pmp_meshes() -> Iterator[PlannedRun]:
    """Yield 25 runs of PMP, and of PMP without one of its terms, on meshes of bodies: 5 settings x 5 seeds.

    The data are FAUST if its files are in the data folder, and the built-in `bodies` otherwise. Both have 10 people in
    10 poses. The encoder is a PointNet, the decoder is an MLP, and the reconstruction error is the squared error of
    vertices. Weights, learning rate, number of latents and number of pairs per step are those of `pmp2021`.

    Deviations: the supplement describes the network for FAUST but not the training. We use k = 2 subspaces, one for
    the person and one for the pose, and pairs that share one of the two factors. The number of steps is that of
    `pmp2021` on Cars3D, because 30 epochs of 100 meshes would be 120 steps.
    Reference: Fumero et al. (2021), arXiv:2103.01638, tables 2 to 4 of its supplement.
    """
    steps = steps_of_epochs(EPOCHS, EXAMPLES["cars3d"], PAIRS)
    spec: dict[str, Any] = {"net": "pointnet", "likelihood": "gaussian", "steps": steps, "batch": 2 * PAIRS}
    yield from grid([mesh_data()], with_ablations(PMP(pairs="sharing", subspaces=2), spec), 5)
