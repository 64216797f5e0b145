"""The page of `unbraid explore` in a browser: the server decodes its images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from support.chromium import wait_until
from support.training import quick_train
from unbraid.reporting.page import live_page
from unbraid.reporting.server import new_token, serve

pytestmark = pytest.mark.browser


def test_the_server_decodes_for_the_browser(page: Any) -> None:
    (run,) = quick_train(data="sprites", steps=2, net="mlp")
    token = new_token()
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    with serve([run], lambda: live_page([run], token), token=token) as server:
        page.goto(server.url)
        wait_until(page, "document.querySelectorAll('#explorer input[type=range]').length >= 3")
        z = [0.5, -1.0, 2.0]
        decode = "async ([id, z]) => [...(await unbraid.source.decode(id, Float32Array.from(z)))]"
        pixels = np.asarray(page.evaluate(decode, [run.id, z]), np.float32)
        page.context.close()
    assert np.allclose(pixels, run.decode(torch.tensor([z]))[0].flatten(), atol=1e-6)
    assert any(url.startswith(f"http://127.0.0.1:{server.port}/decode?") for url in requested)
