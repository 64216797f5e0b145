"""The wheels: what they contain, and that they work in a fresh environment with their declared dependencies only."""

from __future__ import annotations

import re
import subprocess
import zipfile
from pathlib import Path

import pytest

from support.environments import PROJECTS, ROOT, build_wheel, fresh_environment, run

pytestmark = pytest.mark.slow
GUIDES = (
    "own_data", "own_methods", "own_models", "report", "several_folders", "sklearn", "notebooks", "sharing_models",
)  # fmt: skip
METRICS_SCRIPT = """
import sys
import numpy as np
import unbraid as ub

factors = np.tile(np.indices((3, 4, 5)).reshape(3, -1).T, (10, 1))
codes = factors + np.random.default_rng(0).normal(scale=0.1, size=factors.shape)
chosen = ["mig", "modularity", "mcc", "unsupervised"]  # the others compile kernels for minutes in a fresh environment
[row] = ub.score(codes=codes, factors=factors, metrics=chosen, quiet=True)
assert row["mig.discrete_mig"] > 0.9, row
assert {key.split(".")[0] for key in row} >= set(chosen)
np.save("codes.npy", codes), np.save("factors.npy", factors)
assert "torch" not in sys.modules
"""


@pytest.fixture(scope="module", params=PROJECTS)
def wheel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="building wheels needs hatchling, which the extra dev installs")
    return build_wheel(request.param, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fresh_environment(wheel, tmp_path_factory.mktemp("environment"))


def test_wheel_contains_the_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    package = {name.removeprefix("unbraid/") for name in names if name.startswith("unbraid/")} - {"LICENSE"}
    listed = subprocess.run(["git", "ls-files", "src/unbraid"], cwd=ROOT, capture_output=True, text=True, check=True)
    tracked = {name.removeprefix("src/unbraid/") for name in listed.stdout.split()}
    models = {name for name in tracked if name.startswith("zoo/models/")}
    assert any(name.endswith("weights.safetensors") for name in models)
    assert package == (tracked - models if "metrics" in wheel.name else tracked)
    assert wheel.stat().st_size < 20e6
    assert all(re.match(r"unbraid(_metrics-[\d.]+\.dist-info|-[\d.]+\.dist-info)?/", name) for name in names)
    assert any(name.endswith("LICENSE") for name in names)


@pytest.mark.parametrize("wheel", ["unbraid"], indirect=True)
def test_command_line_in_a_fresh_environment(environment: Path, tmp_path: Path) -> None:
    unbraid = str(environment / "bin" / "unbraid")
    train = ["train", "beta_vae", "--data", "sprites", "--steps", "4", "--seeds", "0-1", "--out", "runs", "--quiet"]
    run([unbraid, *train], tmp_path)
    assert "mig" in run([unbraid, "score", "runs", "--metrics", "mig", "--quiet"], tmp_path)
    run([unbraid, "report", "runs", "--metrics", "mig", "--quiet"], tmp_path)
    assert (tmp_path / "runs" / "report.html").stat().st_size > 10_000
    assert "dsprites/ada_gvae/best" in run([unbraid, "zoo", "list"], tmp_path)
    load = "import unbraid as ub; print(tuple(ub.zoo.load('dsprites/ada_gvae').sample(2).shape))"
    assert "(2, 1, 64, 64)" in run([str(environment / "bin" / "python"), "-c", load], tmp_path)


@pytest.mark.parametrize("wheel", ["unbraid"], indirect=True)
@pytest.mark.parametrize("guide", GUIDES)
def test_guides_work_in_a_fresh_environment(environment: Path, guide: str, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "guides" / f"{guide}.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert blocks
    for i, block in enumerate(blocks):
        (tmp_path / f"example{i}.py").write_text(block)
        run([str(environment / "bin" / "python"), f"example{i}.py"], tmp_path)


@pytest.mark.parametrize("wheel", ["unbraid-metrics"], indirect=True)
def test_metrics_without_torch(environment: Path, tmp_path: Path) -> None:
    python, unbraid = (str(environment / "bin" / name) for name in ("python", "unbraid"))
    run([python, "-W", "ignore", "-c", METRICS_SCRIPT], tmp_path)
    printed = run([unbraid, "score", "--codes", "codes.npy", "--factors", "factors.npy", "--metrics", "mig"], tmp_path)
    assert "a perfect code  1.000" in printed
    for command in ([unbraid, "train", "vae"], [python, "-c", "import unbraid; unbraid.train"]):
        with pytest.raises(AssertionError, match="needs PyTorch, which is not installed"):
            run(command, tmp_path)
