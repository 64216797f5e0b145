"""True images as a browser renders them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from unbraid import data as datasets
from unbraid import reporting
from unbraid.noise import Noise
from unbraid.reporting.truth import SCRIPTS, renderer_spec

pytestmark = pytest.mark.browser
ASSETS = Path(reporting.__file__).parent / "assets"
LEVELS = {"sprites": 0.0, "dsprites": 0.0, "color_dsprites": 0.0, "noisy_dsprites": 0.0, "shapes3d_rendered": 1.01}


@pytest.mark.parametrize("name", LEVELS)
def test_a_browser_renders_the_true_images(name: str, page: Any) -> None:
    data = datasets.load(name)
    index = data.draw(Noise(torch.tensor(7)), 12)
    for script in SCRIPTS:
        page.add_script_tag(path=ASSETS / script)
    draw = (
        "([spec, rows]) => { const render = unbraid.truth(spec); return rows.map((row) => Array.from(render(row))); }"
    )
    images = np.asarray(page.evaluate(draw, [renderer_spec(data), data.factors(index).tolist()]), np.float32)
    true = data.images(index).numpy().astype(np.float32) / np.float32(255)
    assert 255 * np.abs(images.reshape(true.shape) - true).max() <= LEVELS[name]
