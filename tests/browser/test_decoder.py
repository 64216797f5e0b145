"""Decoders in a real browser: for all methods, networks, maps and latent spaces they agree with torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from support.operators import DECODERS, LATENTS, decoder_net, largest_errors
from support.programs import CASES, CODES, DECODE, decode_job, grey_level_error, scripts
from unbraid.reporting.program import decoder_program

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("name", CASES)
def test_chromium_decodes_like_torch(name: str, page: Any) -> None:
    """Half precision is the only error: less than one of 255 grey levels on images of high contrast."""
    case = CASES[name]
    net, codes = case.build(), case.codes()
    assert len(codes) == CODES >= 20
    page.add_script_tag(content=scripts())
    pixels = page.evaluate(
        f"(job) => {{ {DECODE} }}", decode_job(decoder_program(net, case.shape, case.latents), codes)
    )
    assert grey_level_error(net, codes, pixels) < 1


def test_the_decoder_of_the_large_study_is_fast_enough(page: Any) -> None:
    """`pace` counts calls per second; any computer does far more than 5."""
    case = CASES["full size"]
    job = decode_job(decoder_program(case.build(), case.shape, case.latents), case.codes(1))
    page.add_script_tag(content=scripts())
    body = DECODE[: DECODE.index("return")] + "return unbraid.pace(decode, job.spec.latents, 0.5);"
    assert page.evaluate(f"(job) => {{ {body} }}", job) > 5


@pytest.mark.parametrize("name", DECODERS)
def test_chromium_runs_every_operator_like_torch(name: str, page: Any) -> None:
    """Weights are rounded to half precision before, so only the rounding of float32 remains as an error."""
    net, shape = decoder_net(DECODERS[name])
    codes = torch.randn(3, LATENTS)
    page.add_script_tag(content=scripts())
    outputs = page.evaluate(f"(job) => {{ {DECODE} }}", decode_job(decoder_program(net, shape, LATENTS), codes))
    errors = largest_errors(DECODERS[name], codes, outputs)
    assert not {name: error for name, error in errors.items() if not error < 1}
