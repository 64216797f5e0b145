"""Models of the zoo in a real browser: their decoders agree with torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import unbraid as ub
from support.programs import DECODE, decode_job, scripts
from unbraid.errors import UserError
from unbraid.reporting.program import decoder_program
from unbraid.runs.prior import prior_latents
from unbraid.zoo.catalogue import ZooFacts
from unbraid.zoo.compact import write_compact

pytestmark = pytest.mark.browser
CODES = 5


def check_decoder(run: ub.Run, page: Any, least: float) -> None:
    """Check that Chromium decodes codes of a run as torch does, up to one of 255 grey levels.

    The grey levels of the images must vary with a standard deviation of at least `least` somewhere.
    """
    try:
        codes = prior_latents(run, CODES, 0)
    except UserError:  # a method without a prior
        codes = torch.randn(CODES, run.spec.latents)
    page.add_script_tag(content=scripts())
    shape = run.net.shape
    assert shape is not None
    job = decode_job(decoder_program(run.net, shape, codes.shape[1]), codes)
    expected = run.net.decode(codes)
    pixels = torch.tensor(page.evaluate(f"(job) => {{ {DECODE} }}", job)).view_as(expected)
    assert 255 * (pixels - expected).abs().max() < 1
    assert 255 * expected.std(0).max() > least, "the images depend on their codes"


def test_a_compact_model_decodes_in_the_browser(page: Any, tmp_path: Path) -> None:
    (run,) = ub.train("vae", "sprites", steps=60, learning_rate=1e-3, latents=4, out=tmp_path / "runs", quiet=True)
    write_compact(run, tmp_path / "zoo" / "sprites" / "vae" / "best", ZooFacts("best", 1, "mig.discrete_mig"))
    check_decoder(ub.zoo.load("sprites/vae", folder=tmp_path / "zoo"), page, least=3)


@pytest.mark.parametrize("name", [model.name for model in ub.zoo.list()] or [None])
def test_the_models_of_the_package_decode_in_the_browser(name: str | None, page: Any) -> None:
    if name is None:
        pytest.skip("the package contains no models")
    run = ub.zoo.load(name)
    if run.net.decoder is None:
        pytest.skip(f"{name} has no decoder")
    check_decoder(run, page, least=20)
