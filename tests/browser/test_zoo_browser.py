"""Models of the zoo in a real browser: their decoders agree with torch, and the documentation shows one of them."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import unbraid as ub
from support.chromium import wait_until
from support.programs import DECODE, decode_job, scripts
from support.sites import built_site
from unbraid.errors import UserError
from unbraid.exporting.plain_network import plain_copy
from unbraid.reporting.program import decoder_program
from unbraid.runs.prior import prior_latents
from unbraid.zoo.catalogue import ZooFacts
from unbraid.zoo.compact import write_compact

pytestmark = pytest.mark.browser
CODES = 5


def check_decoder(run: ub.Run, page: Any, least: float) -> None:
    """Check that Chromium decodes codes of a run as torch does in 32 bits, up to one of 255 grey levels.

    The decoder of a run that was trained in bf16 computes in bf16, which changes images by a few levels.
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
    expected = plain_copy(run.net).decode(codes)
    pixels = torch.tensor(page.evaluate(f"(job) => {{ {DECODE} }}", job)).view_as(expected)
    assert 255 * (pixels - expected).abs().max() < 1
    assert 255 * expected.std(0).max() > least, "the images depend on their codes"


def test_a_compact_model_decodes_in_the_browser(page: Any, tmp_path: Path) -> None:
    (run,) = ub.train("vae", "sprites", steps=60, learning_rate=1e-3, latents=4, out=tmp_path / "runs", quiet=True)
    write_compact(run, tmp_path / "zoo" / "sprites" / "vae" / "best", ZooFacts("best", 1, "mig.discrete_mig"))
    check_decoder(ub.zoo.load("sprites/vae", folder=tmp_path / "zoo"), page, least=3)


@pytest.mark.parametrize("name", [model.name for model in ub.zoo.list()])
def test_the_models_of_the_package_decode_in_the_browser(name: str, page: Any) -> None:
    run = ub.zoo.load(name)
    if run.net.decoder is None:
        pytest.skip(f"{name} has no decoder")
    check_decoder(run, page, least=20)


def live_model(page: Any, name: str) -> Any:
    """Open the home page of the documentation, and return the frame of a live model when it has drawn an image."""
    page.goto((built_site() / "index.html").as_uri())
    page.locator(f"iframe.live-model[src$='{name}.html']").scroll_into_view_if_needed()
    frame = page.frame(url=f"**/live/{name}.html")
    wait_until(frame, "unbraid.panels && unbraid.panels.first && !unbraid.panels.first.busy")
    return frame


def drag_latent(page: Any, frame: Any, latent: int, kind: str = "latent") -> None:
    """Drag the slider of a latent from left to right."""
    slider = frame.locator(".card[data-panel] .slider", has_text=re.compile(rf"{kind} {latent}\b"))
    drag(page, slider.locator("input").bounding_box(), 0.05, 0.95)


def test_a_latent_of_the_first_model_on_the_home_page_is_dragged(page: Any) -> None:
    """Dragging latent 8 changes the wall, whose pixels are in the middle of the upper half, and not the floor."""
    frame = live_model(page, "shapes3d_rendered_beta_vae")
    before = decoded_pixels(frame)
    drag_latent(page, frame, 8)
    changes = (decoded_pixels(frame) - before).abs().amax(2)
    assert changes[24:30, 28:36].mean() > 0.3, "the wall has another hue"
    assert changes[56:62, 28:36].mean() < 0.1, "the floor has the same hue"


def test_a_latent_of_the_second_model_on_the_home_page_is_dragged(page: Any) -> None:
    """Dragging latent 2 moves the shape to the left."""
    frame = live_model(page, "dsprites_slow_vae")
    before = bright_columns(frame)
    drag_latent(page, frame, 2)
    after = bright_columns(frame)
    assert before.max() > 0.5, "a shape is drawn"
    assert after.max() > 0.5
    assert (before - after).abs().max() > 0.3, "the picture has changed"
    assert centre(after) < centre(before) - 10


def test_the_perspective_of_a_digit_on_the_home_page_is_dragged(page: Any) -> None:
    """The images to choose from are drawn by the model. Dragging latent 2, of the perspective, moves the digit down."""
    frame = live_model(page, "mnist_c_vitae")
    before = decoded_pixels(frame)[..., :3].amax(2).sum(1)
    drag_latent(page, frame, 2, "perspective")
    after = decoded_pixels(frame)[..., :3].amax(2).sum(1)
    assert before.max() > 1, "a digit is drawn"
    assert after.max() > 1
    assert centre(after) > centre(before) + 1


def drag(page: Any, box: dict[str, float], start: float, end: float) -> None:
    """Drag the mouse horizontally inside a box, between two fractions of its width."""
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + start * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], y, steps=8)
    page.mouse.up()


def bright_columns(frame: Any) -> torch.Tensor:
    """Return the brightest value of each column of the decoded image, between 0 and 1."""
    return decoded_pixels(frame)[..., 0].amax(0)


def decoded_pixels(frame: Any) -> torch.Tensor:
    """Return the decoded square image, (h, w, 4), between 0 and 1."""
    wait_until(frame, "!unbraid.panels.first.busy && !unbraid.panels.first.dirty")
    script = """(() => { const canvas = document.querySelector(".card canvas.image");
        return [...canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data]; })()"""
    values = torch.tensor(frame.evaluate(script))
    side = math.isqrt(len(values) // 4)
    return values.view(side, side, 4) / 255


def centre(columns: torch.Tensor) -> float:
    """Return the mean position of bright columns, or rows, in pixels."""
    return float((columns * torch.arange(len(columns))).sum() / columns.sum())
