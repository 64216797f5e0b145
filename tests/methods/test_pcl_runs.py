"""Training, scoring and loading of PCL runs, which have no decoder, and the recovery of the sources of mixed data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import unbraid as ub
from support.training import assert_same_run, quick_train
from unbraid.data import known_sources
from unbraid.data.dataset import FactorData
from unbraid.data.in_memory import Labelled
from unbraid.errors import UserError
from unbraid.methods.method import Method
from unbraid.methods.pcl import PCL
from unbraid.methods.slow_vae import SlowVAE
from unbraid.metrics.mcc import absolute_correlations, best_assignment_mean
from unbraid.runs.run import Run
from unbraid.scoring.selection import select


@pytest.fixture(scope="module")
def pcl_runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    out = tmp_path_factory.mktemp("pcl")
    return ub.train(PCL(), "sprites", steps=5, batch=16, latents=4, seeds=[0, 1], out=out, quiet=True)


def file_contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def parent_folder(run: Run) -> Path:
    assert run.path is not None
    return run.path.parent


def test_runs_have_no_decoder(pcl_runs: list[Run], sprites: FactorData) -> None:
    run = pcl_runs[0]
    assert run.net.decoder is None
    assert {name.split(".")[0] for name in run.net.state_dict()} == {"encoder", "regression"}
    assert {"loss", "accuracy", "step"} == set(run.log[-1])
    assert run.encode(sprites.images([0, 5])).shape == (2, 4)
    with pytest.raises(UserError, match="only an encoder"):
        run.decode(torch.zeros(1, 4))


def test_runs_can_be_loaded(pcl_runs: list[Run], sprites: FactorData) -> None:
    loaded = ub.load_runs(parent_folder(pcl_runs[0]))
    for a, b in zip(sorted(pcl_runs, key=lambda r: r.spec.seed), loaded, strict=True):
        assert a.spec == b.spec
        assert torch.equal(a.encode(sprites.images([3, 4])), b.encode(sprites.images([3, 4])))
    out = parent_folder(pcl_runs[0])
    again = ub.train(PCL(), "sprites", steps=5, batch=16, latents=4, seeds=[0], out=out, add=True, quiet=True)
    assert_same_run(again[0], pcl_runs[0])


def test_scores_are_of_means_only(pcl_runs: list[Run]) -> None:
    rows = ub.score(pcl_runs, ["mig", "mcc", "unsupervised"], jobs=1, quiet=True)
    assert {"mig.discrete_mig", "mcc.mcc_pearson", "unsupervised.gaussian_total_correlation"} <= set(rows[0])
    assert not any(key.endswith(".sampled") for row in rows for key in row)
    assert all(0 <= row["mcc.mcc_pearson"] <= 1 for row in rows)
    with pytest.raises(ValueError, match="must be among mean"):
        ub.score(pcl_runs, ["mig"], codes=["sampled"], quiet=True)


def test_runs_can_be_ranked(pcl_runs: list[Run]) -> None:
    rows = select(pcl_runs, examples=500, quiet=True)
    assert len(rows) == 2
    assert all(0 <= row["udr"] <= 1 for row in rows)


def test_traversal_raises_before_anything_is_written(pcl_runs: list[Run], tmp_path: Path) -> None:
    before = file_contents(parent_folder(pcl_runs[0]))
    with pytest.raises(UserError, match=r"needs a decoder.*encoder only.*score"):
        ub.traverse(pcl_runs[0])
    with pytest.raises(UserError, match="needs a decoder"):
        ub.traverse(pcl_runs[0], "no such data", out=tmp_path / "pictures")
    assert file_contents(parent_folder(pcl_runs[0])) == before
    assert not (tmp_path / "pictures").exists()


class SingleExample(Labelled):
    """Data with one example that are marked as a grid."""

    gridded = True

    def __len__(self) -> int:
        return 1


@pytest.mark.parametrize(
    ("change", "message"),
    [({"batch": 7}, "even batch of at least 4.*Got 7"), ({"batch": 2}, "even batch of at least 4.*Got 2")],
)
def test_invalid_batch_sizes_raise(change: dict[str, int], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        quick_train(tmp_path / "r", PCL(), **change)
    assert not (tmp_path / "r").exists()


def test_data_from_which_no_pairs_can_be_drawn_raise() -> None:
    points, none = torch.randn(20, 3), torch.zeros(20, 0, dtype=torch.int64)
    with pytest.raises(UserError, match=r"full grid of factors. points is not.*pairs='consecutive'"):
        ub.train(PCL(), Labelled("points", (), (), points, none), steps=1, quiet=True)
    constant = SingleExample("constant", ("a",), (1,), points[:1], none[:1, :0].new_zeros(1, 1))
    kinds = SingleExample("kinds", ("a",), (3,), points[:1], none[:1, :0].new_zeros(1, 1))
    kinds.categorical = ("a",)
    for method, data in ((PCL(), constant), (PCL(pairs="walk"), kinds), (PCL(), kinds)):
        with pytest.raises(UserError, match="a factor that can change"):
            method.check(data, 8, 2)
    PCL(pairs="uniform").check(kinds, 8, 2)


@pytest.mark.parametrize(
    "method", [PCL(pairs="consecutive"), SlowVAE(pairs="consecutive")], ids=lambda m: type(m).__name__
)
def test_data_that_are_not_a_time_series_raise(method: Method) -> None:
    """Fewer than four rows raise an error, and so does a subset. Four rows without labels are enough."""
    name = type(method).__name__
    with pytest.raises(UserError, match=f"{name} with consecutive pairs needs at least 4 rows. Got arrays with 3"):
        ub.train(method, ub.data.from_arrays(torch.randn(3, 2)), steps=1, batch=8, quiet=True)
    with pytest.raises(UserError, match=rf"{name} with consecutive pairs draws all rows.*Got toy\?subset=50.*Remove"):
        ub.train(method, "toy?subset=50", steps=1, batch=8, quiet=True)
    ub.train(method, ub.data.from_arrays(torch.randn(4, 2)), steps=1, batch=8, latents=2, quiet=True)


@pytest.mark.parametrize("batch", [7, 2])
def test_invalid_batch_sizes_of_a_time_series_raise(batch: int) -> None:
    with pytest.raises(ValueError, match=f"even batch of at least 4.*Got {batch}"):
        ub.train(PCL(pairs="consecutive"), known_sources.mixed_time_series(20)[0], steps=1, batch=batch, quiet=True)


def build_linear_net(shape: tuple[int, ...], latents: int) -> tuple[nn.Module, nn.Module]:
    return nn.Linear(shape[0], 2 * latents), nn.Linear(latents, shape[0])


def correlation_with_sources(
    method: PCL, net: str | Callable[..., Any], points: int, steps: int, rate: float
) -> tuple[float, float, float]:
    """Return the mean correlation of sources and codes before training and after it, and the final loss."""
    data, s = known_sources.mixed_time_series(points)
    settings: dict[str, Any] = {"batch": 512, "learning_rate": rate, "latents": 5, "net": net, "quiet": True}
    correlations = []
    for length in (0, steps):
        (run,) = ub.train(method, data, steps=length, **settings)
        correlations.append(
            best_assignment_mean(absolute_correlations(run.encode(data.table).double().numpy(), s.numpy()))
        )
    return correlations[0], correlations[1], run.log[-1]["loss"]


def test_short_training_recovers_sources_approximately() -> None:
    before, after, loss = correlation_with_sources(PCL(pairs="consecutive"), build_linear_net, 2**12, 700, 1e-2)
    assert loss < 0.69
    assert after > max(0.9, before + 0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "net", "steps", "rate"),
    [
        (PCL(pairs="consecutive"), build_linear_net, 6_000, 3e-3),
        (PCL(pairs="consecutive", a="fixed"), build_linear_net, 6_000, 3e-3),
        (PCL(pairs="consecutive"), "mlp", 4_000, 1e-3),
        (PCL(pairs="consecutive", regression="mlp", width=16), "mlp", 4_000, 1e-3),
    ],
    ids=["linear", "linear, a fixed", "mlp", "mlp, component networks"],
)
def test_recovers_sources(method: PCL, net: str | Callable[..., Any], steps: int, rate: float) -> None:
    """The data are 2^15 linear mixtures of five sources. Each latent becomes one source, with an MCC above 0.95."""
    before, after, loss = correlation_with_sources(method, net, 2**15, steps, rate)
    print(f"MCC {before:.4f} untrained, {after:.4f} trained, loss {loss:.4f}")
    assert after > 0.95 > before
    assert loss < 0.5


@pytest.mark.slow
def test_codes_of_images_are_disentangled() -> None:
    """After training on pairs of sprites, the MIG is far above that of an untrained encoder."""
    settings: dict[str, Any] = {"learning_rate": 1e-3, "latents": 6, "precision": "fp32", "quiet": True}
    runs = [ub.train(PCL(), "sprites", steps=steps, **settings)[0] for steps in (0, 1_500)]
    chance, learned = (row["mig.discrete_mig"] for row in ub.score(runs, ["mig"], jobs=1, quiet=True))
    print(f"MIG {chance:.3f} untrained, {learned:.3f} trained")
    assert learned > 0.1 > 2 * chance
