"""Decoders in a real browser: the pixels of every method, net, map and latent space are torch's."""

from __future__ import annotations

from typing import Any

import pytest

from support.programs import CASES, CODES, DECODE, job, levels, scripts
from unbraid.reporting.program import decoder_program

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("name", CASES)
def test_chromium_draws_what_torch_draws(name: str, page: Any) -> None:
    """Half precision is all that is lost: less than one grey level of 255 on images of high contrast."""
    case = CASES[name]
    net, codes = case.build(), case.codes()
    assert len(codes) == CODES >= 20
    page.add_script_tag(content=scripts())
    made = page.evaluate(f"(job) => {{ {DECODE} }}", job(decoder_program(net, case.shape, case.latents), codes))
    assert levels(net, codes, made) < 1


def test_the_large_studys_decoder_keeps_pace(page: Any) -> None:
    """`pace` counts calls a second; at least 5 is far below what any computer does."""
    case = CASES["full size"]
    made = job(decoder_program(case.build(), case.shape, case.latents), case.codes(1))
    page.add_script_tag(content=scripts())
    body = DECODE[: DECODE.index("return")] + "return unbraid.pace(decode, job.spec.latents, 0.5);"
    assert page.evaluate(f"(job) => {{ {body} }}", made) > 5
