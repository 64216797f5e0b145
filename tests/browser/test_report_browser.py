"""The report page in a real browser: it opens from disk, its sliders change the decoded image, nothing is loaded."""

from __future__ import annotations

import base64
import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import unbraid as ub
from support.chromium import wait_until
from unbraid.reporting.content import Content
from unbraid.reporting.page import page_html, report
from unbraid.runs.run import Run, load_runs

pytestmark = pytest.mark.browser

METHODS = [ub.methods.BetaVAE(beta=2.0), ub.methods.BetaTCVAE(beta=2.0), ub.methods.UVITAE()]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three methods after a short training on sprites, with their report."""
    where = tmp_path_factory.mktemp("page") / "runs"
    ub.train(METHODS, data="sprites", steps=60, latents=4, learning_rate=1e-3, precision="fp32", out=where, quiet=True)
    report(where, metrics=["mig", "modularity"], quiet=True)
    return where


@pytest.fixture
def opened(page: Any, folder: Path) -> Any:
    page.goto((folder / "report.html").as_uri())
    wait_until(page, "unbraid.panels && unbraid.panels.first && !unbraid.panels.first.busy")
    return page


def pixels(page: Any, place: str = ".card canvas.image") -> np.ndarray[Any, Any]:
    """The pixels of a canvas, (h, w, 4)."""
    wait_until(page, "!unbraid.panels.first.busy && !unbraid.panels.first.dirty")
    w, h, values = page.evaluate(
        """(place) => {
        const canvas = document.querySelector(place), { width, height } = canvas;
        return [width, height, Array.from(canvas.getContext("2d").getImageData(0, 0, width, height).data)]; }""",
        place,
    )
    return np.array(values).reshape(h, w, 4)


def current_code(page: Any, folder: Path) -> tuple[Run, torch.Tensor]:
    """The run that is shown and the code of its sliders."""
    name, z = page.evaluate("[unbraid.panels.first.run.id, Array.from(unbraid.panels.first.z)]")
    return next(run for run in load_runs(folder) if run.id == name), torch.tensor(z)


def assert_decoded(page: Any, folder: Path) -> None:
    """Assert that the canvas shows what torch decodes from the same code, within 2 of 255 grey levels."""
    run, z = current_code(page, folder)
    expected = run.decode(z[None])[0, 0].numpy() * 255
    assert np.abs(pixels(page)[..., 0] - expected).max() <= 2.0


def test_the_page_opens_with_all_its_sections(opened: Any) -> None:
    titles = opened.locator("main > section > h2").all_inner_texts()
    assert titles == ["Explore", "Scores", "What the run has learned", "Training"]
    assert opened.locator("#scores tbody tr").count() == 3
    assert opened.locator("#scores tfoot tr").count() == 2
    assert opened.locator("table.heat").count() == 2
    assert opened.locator("table.heat tr.floor").count() == 1
    assert opened.locator("svg.curve path.line").count() == 3
    for image in opened.locator("img").all():
        assert image.get_attribute("alt") is not None


@pytest.mark.parametrize("which", range(3))
def test_sliders_change_the_decoded_image(opened: Any, folder: Path, which: int) -> None:
    opened.locator("#explorer select").first.select_option(index=which)
    assert_decoded(opened, folder)
    before = pixels(opened)
    opened.evaluate("""() => { for (const slider of document.querySelectorAll('.card[data-panel] .slider input')) {
        slider.value = 1.7; slider.dispatchEvent(new Event('input', {bubbles: true})); } }""")
    assert_decoded(opened, folder)
    assert (pixels(opened) != before).any()


def test_sliders_start_from_examples(opened: Any, folder: Path) -> None:
    opened.locator(".starts button").nth(5).click()
    facts = json.loads(opened.locator("#report").text_content())
    index = facts["data"]["sprites"]["examples"][5]["index"]
    run, z = current_code(opened, folder)
    torch.testing.assert_close(z, run.encode(ub.data.load("sprites").images([index]))[0], atol=1e-4, rtol=0)
    assert_decoded(opened, folder)


def test_the_true_image_follows_the_factors(opened: Any) -> None:
    data = ub.data.load("sprites")
    for j, size in enumerate(data.sizes):
        opened.locator("#truth input").nth(j).fill(str(size - 1))
    expected = data.images(data.index([[size - 1 for size in data.sizes]]))[0, 0].numpy()
    assert (pixels(opened, "#truth canvas")[..., 0] == expected).all()


def test_the_keyboard_moves_sliders_and_pad_and_sorts(opened: Any, folder: Path) -> None:
    slider = opened.locator(".card[data-panel] .slider input").first
    before = float(slider.input_value())
    slider.focus()
    opened.keyboard.press("ArrowLeft")
    assert float(slider.input_value()) < before
    opened.locator("summary", has_text="Two sliders at once").focus()
    opened.keyboard.press("Enter")
    opened.locator(".pad").focus()
    code = current_code(opened, folder)[1]
    opened.keyboard.press("ArrowRight")
    opened.keyboard.press("ArrowUp")
    assert ((current_code(opened, folder)[1] - code).abs() > 1e-6).sum() == 2
    assert_decoded(opened, folder)
    opened.locator("#scores thead button", has_text="mig").focus()
    values = opened.locator("#scores tbody td.score:nth-child(2)").all_inner_texts()
    opened.keyboard.press("Enter")
    assert opened.locator("#scores tbody td.score:nth-child(2)").all_inner_texts() == values[::-1]
    assert opened.locator("#scores th[aria-sort=ascending]").inner_text() == "mig"


def test_the_pad_shows_a_grid_of_decoded_images(opened: Any, folder: Path) -> None:
    opened.locator("summary", has_text="Two sliders at once").click()
    wait_until(opened, "unbraid.panels.first.pad.drawn")
    run, z = current_code(opened, folder)
    across, down, low, high = opened.evaluate(
        "(() => { const p = unbraid.panels.first; return [p.pad.across, p.pad.down, p.spec.low, p.spec.high]; })()"
    )
    z[across], z[down] = high[across], low[down]  # the upper right corner
    corner = pixels(opened, ".pad canvas")[:32, -32:, 0]
    assert np.abs(corner - run.decode(z[None])[0, 0].numpy() * 255).max() <= 2.0


def test_two_runs_are_shown_side_by_side(opened: Any) -> None:
    opened.locator("#explorer select").nth(1).select_option(index=2)
    assert opened.locator(".card[data-panel]").count() == 2
    opened.locator("#explorer select").nth(1).select_option(index=0)
    assert opened.locator(".card[data-panel]").count() == 1


def test_runs_on_two_datasets_open_side_by_side(page: Any, folder: Path, tmp_path: Path) -> None:
    """The best run is beside the best run on other data, and each starts from examples of its own data."""
    model = ub.zoo.copy("dsprites/ada_gvae", tmp_path / "zoo")
    report([folder, model], tmp_path / "report.html", scoring=False, quiet=True)
    page.goto((tmp_path / "report.html").as_uri())
    wait_until(page, "unbraid.panels && unbraid.panels.second && !unbraid.panels.second.busy")
    shown = page.evaluate("[unbraid.panels.first.run.data, unbraid.panels.second.run.data]")
    assert sorted(shown) == ["dsprites", "sprites"]
    labels = page.evaluate("[unbraid.panels.first.run.id, unbraid.panels.second.run.id]")
    chosen = [page.locator("#explorer > .row select").nth(i).input_value() for i in range(2)]
    assert chosen == labels
    titles = page.locator("#explorer .card h3").all_inner_texts()
    assert [text.split()[-1] for text in titles] == [*shown, shown[0]], "titles name the data"


def test_the_code_is_copied(opened: Any, folder: Path) -> None:
    opened.context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened.locator("button", has_text="Copy latents").first.click()
    opened.locator("text=copied").wait_for()
    copied = json.loads(opened.evaluate("navigator.clipboard.readText()"))
    torch.testing.assert_close(torch.tensor(copied), current_code(opened, folder)[1])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_readable_on_a_phone_in_both_colour_schemes(opened: Any, scheme: str) -> None:
    opened.emulate_media(color_scheme=scheme)
    opened.set_viewport_size({"width": 390, "height": 844})
    assert opened.evaluate("document.documentElement.scrollWidth") <= 390
    paper, ink = opened.evaluate(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    )
    assert contrast(paper, ink) > 7


def test_axes_are_readable_on_a_phone(opened: Any) -> None:
    opened.set_viewport_size({"width": 390, "height": 844})
    wait_until(opened, "document.querySelector('svg.curve').clientWidth <= 390")
    heights = "[...document.querySelectorAll('svg.curve text')].map((t) => t.getBoundingClientRect().height)"
    wait_until(opened, f"Math.min(...{heights}) >= 12")  # the axes are drawn again a little after the page is resized
    assert min(opened.evaluate(heights)) >= 12
    boxes = opened.evaluate(
        """[...document.querySelectorAll('svg.curve text[text-anchor=middle]')].slice(0, -1)
        .map((text) => { const box = text.getBoundingClientRect(); return [box.left, box.right]; })"""
    )
    assert all(right < left for (_, right), (left, _) in itertools.pairwise(boxes)), "labels of steps do not overlap"


def test_each_dataset_has_a_chart_of_its_own(page: Any, tmp_path: Path) -> None:
    """The steps of one dataset do not shorten the axis of another, and the last label is inside of the chart."""
    for data, steps in (("sprites", 20), ("toy", 2_000)):
        ub.train("vae", data=data, steps=steps, latents=2, batch=8, net="mlp", out=tmp_path / data, quiet=True)
    path = report([tmp_path / "sprites", tmp_path / "toy"], tmp_path / "two.html", metrics=["mig"], quiet=True)
    page.goto(path.as_uri())
    page.locator("svg.curve").nth(1).wait_for()
    assert sorted(page.locator("#training h3").all_inner_texts()) == ["sprites", "toy"]
    charts = page.evaluate("""[...document.querySelectorAll("svg.curve")].map((chart) => [
        chart.querySelectorAll("path.line").length, chart.querySelector("path.line").getBBox().width,
        Math.max(...[...chart.querySelectorAll("text")].map((one) => one.getBoundingClientRect().right))
            - chart.getBoundingClientRect().right])""")
    assert [lines for lines, _, _ in charts] == [1, 1]
    assert min(width for _, width, _ in charts) > 400
    assert max(beyond for _, _, beyond in charts) <= 0


def test_a_table_that_scrolls_says_so(opened: Any) -> None:
    hint = opened.locator("#scores .hint")
    assert hint.is_hidden()
    opened.set_viewport_size({"width": 240, "height": 844})
    hint.wait_for(state="visible")
    assert "sideways" in hint.inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_curves_can_be_told_apart(opened: Any, scheme: str) -> None:
    """Any two of 36 curves differ in their dashes or clearly in colour, and all contrast with the page."""
    opened.emulate_media(color_scheme=scheme)
    looks = opened.evaluate("""Array.from({ length: 36 }, (_, i) => {
        const look = unbraid.curveLook(i), path = unbraid.make("svg:path", look);
        document.querySelector("svg.curve").append(path);
        const colour = getComputedStyle(path).stroke, canvas = document.createElement("canvas").getContext("2d");
        canvas.fillStyle = colour;
        canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data.slice(0, 3), look["stroke-dasharray"]]; })""")
    paper = opened.evaluate("getComputedStyle(document.body).backgroundColor")
    assert len({tuple(look) for look in looks}) == 36
    for *first, dashes in looks:
        assert contrast(paper, f"rgb({', '.join(map(str, first))})") > 3
        others = [other for *other, pattern in looks if pattern == dashes and other != first]
        assert min(np.linalg.norm(np.subtract(first, other)) for other in others) > 40


def contrast(*colours: str) -> float:
    """The contrast ratio of WCAG 2.2 of two computed colours."""
    light = []
    for colour in colours:
        channels = np.array([int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]) / 255
        linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
        light.append(float(linear @ [0.2126, 0.7152, 0.0722]))
    return (max(light) + 0.05) / (min(light) + 0.05)


def test_the_page_can_be_printed(opened: Any, tmp_path: Path) -> None:
    opened.emulate_media(media="print")
    assert opened.locator("nav").is_hidden()
    opened.pdf(path=str(tmp_path / "page.pdf"))
    assert (tmp_path / "page.pdf").stat().st_size > 10_000


def test_markup_in_names_is_shown_as_text(page: Any, folder: Path, tmp_path: Path) -> None:
    evil = '<img src=x onerror="window.stolen=1"></script><script>window.stolen=1</script>'
    text = (folder / "report.html").read_text()
    facts = json.loads(re.findall(r'<script type="application/json" id="report">(.*?)</script>', text, re.DOTALL)[0])
    weights = re.findall(r'<script type="text/plain" data-weights="(\w+)">(.*?)</script>', text)
    facts["title"] = facts["runs"][0]["label"] = facts["data"]["sprites"]["names"][0] = evil
    detail = facts["runs"][0]["detail"]
    detail["factors"][0] = detail["traversals"][0]["alt"] = detail["controls"]["names"][0] = evil
    content = Content(facts, {name: base64.b64decode(text) for name, text in weights})
    (tmp_path / "evil.html").write_bytes(page_html(content))
    page.goto((tmp_path / "evil.html").as_uri())
    wait_until(page, "unbraid.panels && unbraid.panels.first")
    assert page.evaluate("window.stolen") is None
    assert evil in page.locator("#learned").inner_text()
    assert page.title().startswith(evil)


def test_labels_of_an_axis_have_enough_digits(page: Any, folder: Path, tmp_path: Path) -> None:
    text = (folder / "report.html").read_text()
    facts = json.loads(re.findall(r'<script type="application/json" id="report">(.*?)</script>', text, re.DOTALL)[0])
    for run in facts["runs"]:
        run.pop("detail", None)
    for curve in facts["curves"]:
        count = len(curve["step"])
        curve["terms"] = {"loss": {"mean": np.linspace(12345.1, 12346.9, count).tolist()}}
    (tmp_path / "ticks.html").write_bytes(page_html(Content(facts)))
    page.goto((tmp_path / "ticks.html").as_uri())
    labels = page.locator("svg.curve").first.locator("text[text-anchor=end]")
    values = [float(label) for label in labels.all_text_contents()]
    heights = [float(label.get_attribute("y")) for label in labels.all()]
    assert len(values) >= 3
    assert np.ptp(np.diff(heights)) < 1e-6
    np.testing.assert_allclose(np.diff(values), values[1] - values[0], rtol=1e-6)
