"""Every study of the registry runs and is analysed by its two commands, on a small scale."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.meshes import write_faust
from unbraid.cli.dispatch import main
from unbraid.runs.results import load_results
from unbraid.studies.published import STUDIES

QUICK = ["--seeds", "0-1", "--steps", "2", "--metrics", "mig,sap,active,information", "--samples", "200",
         "--jobs", "1", "--quiet"]  # fmt: skip
GENERAL = {"scores", "distributions", "strengths", "variance"}
REDUCED: dict[str, tuple[list[str], set[str]]] = {
    "locatello2019": (
        ["--data", "toy", "--data", "toy?subset=900", "--only", "method=beta_vae,annealed_vae", "--only", "level=0,5"],
        {"transfer", "capacity"},
    ),
    "locatello2020_weak": (["--data", "toy", "--only", "level=0,5"], {"agreement"}),
    "pmp2021": (["--data", "toy", "--data", "toy?correlate=a:b:9"], {"transfer", "pmp_comparison", "pmp_ablation"}),
    "pmp_meshes": (["--only", "variant=,without sparsity"], {"pmp_ablation"}),
    "diffusion2019": (["--data", "toy", "--likelihood", "gaussian"], {"agreement", "challenge"}),
    "demystifying2021": (
        [
            "--data",
            "sprites",
            "--data",
            "sprites?noise=0.1",
            "--data",
            "toy",
            "--data",
            "toy?subset=900",
            "--only",
            "method=ae,beta_vae",
            "--only",
            "level=1,2",
        ],
        {"manipulated", "manipulated_strengths", "manipulated_spread"},
    ),
    "beyond2026": (
        ["--data", "toy", "--only", "method=ae,vae,ada_gvae,s_vae,u_vitae"],
        {"method_ranking", "ranking_agreement"},
    ),
    "small": (["--only", "data=toy", "--only", "method=beta_vae,dip_vae_i"], {"agreement"}),
    "lin2020": (["--data", "sprites", "--only", "level=0,1"], set()),
    "dubois2019": (["--data", "sprites", "--only", "method=vae,beta_vae"], set()),
    "klindt2021": (["--data", "sprites", "--seeds", "0-2"], set()),
    "locatello2020_labels": (["--data", "sprites", "--only", "method=beta_vae,semi_vae"], set()),
    "roth2023": (["--data", "sprites?correlate=x:y:0.2", "--only", "level=0,1"], set()),
    "hsu2024": (["--data", "sprites", "--only", "method=ae,ae_ica,qlae"], set()),
    "vitae_mnist": (["--data", "sprites", "--only", "method=vae,u_vitae,c_vitae"], set()),
    "vitae_bodies": (["--data", "sprites", "--only", "method=vae,c_vitae"], set()),
    "vitae_celeba": (["--data", "sprites", "--only", "method=vae,c_vitae"], set()),
    "vitae_stability": (["--data", "sprites", "--only", "level=0,1"], {"stability"}),
}  # for each study, how it is reduced, and which analyses must be answered in addition to the general ones


def test_every_study_is_reduced() -> None:
    assert set(REDUCED) == set(STUDIES)


@pytest.mark.slow
@pytest.mark.parametrize("name", REDUCED)
@pytest.mark.filterwarnings("ignore:A capacity c_m.* is out of reach:RuntimeWarning")
def test_a_study_is_analysed_by_the_next_command(
    name: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    flags, wanted = REDUCED[name]
    if name == "pmp_meshes":
        flags = [*flags, "--root", str(write_faust(tmp_path_factory.mktemp("data")))]
    assert main(["study", name, *QUICK, *flags, "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert f"unbraid analyse {tmp_path}" in printed
    assert set(load_results(tmp_path)["status"]) == {"done"}
    assert main(["analyse", str(tmp_path), "--metrics", "mig,sap"]) == 0
    printed = capsys.readouterr().out
    answered = {path.stem for path in (tmp_path / "analyses").glob("*.csv")}
    assert answered >= GENERAL | wanted, printed
    assert all(f"{analysis}: " in printed for analysis in answered)
