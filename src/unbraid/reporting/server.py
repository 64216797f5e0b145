"""A local server for one page, which decodes for that page: for decoders that are too large for a page.

It answers GET / with the page, and POST /decode?run=ID&token=TOKEN, whose body is the latents, with pixels; both are
little-endian float32. It binds to 127.0.0.1 and reads no files. Pages of other origins can neither read from it nor
make it work: the Host header must be that of this server (against DNS rebinding), an Origin header must match it, and
decoding needs the token of the page.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from http import HTTPStatus
from typing import Any

import numpy as np
from torch import Tensor

from unbraid.errors import UserError
from unbraid.reporting.http_listener import HOST, Listener, RequestError, open_listener
from unbraid.runs.run import Run

MAX_BODY_BYTES = 1 << 16  # largest body of a request, unless a run has more latents

Latents = np.ndarray[Any, np.dtype[np.float32]]
Draw = Callable[[Run, Tensor], Tensor]


class Server:
    """A running server. `close`, or the end of a ``with`` block, stops it.

    Attributes:
        url: The address of the page.
        port: The port of 127.0.0.1.
    """

    def __init__(self, http: Listener, runs: Sequence[Run], page: bytes, token: str, draw: Draw | None) -> None:
        self.http, self.page, self.token, self.draw = http, page, token.encode(), draw
        self.http.owner = self
        self.runs = {run.id: run for run in runs}
        self.limit = max([MAX_BODY_BYTES, *(4 * run.spec.latents for run in runs)])
        # One thread does all decoding, because torch creates a pool of threads for every thread that calls it.
        self.decoding = ThreadPoolExecutor(1, "unbraid-decode")
        self.port: int = self.http.server_address[1]
        self.hosts = {f"{HOST}:{self.port}", f"localhost:{self.port}"}
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.1,), daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://{HOST}:{self.port}/"

    def wait(self) -> None:
        """Block until the server is closed. Ctrl-C raises KeyboardInterrupt."""
        while self.thread.is_alive():
            self.thread.join(0.5)

    def close(self) -> None:
        """Stop the server: close open connections and free the port. Further calls do nothing."""
        self.http.shutdown()
        self.http.server_close()
        self.http.close_connections()
        self.thread.join()
        self.decoding.shutdown(cancel_futures=True)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def decode(self, name: str, body: bytes) -> bytes:
        """Decode latents to pixels, both as little-endian float32."""
        if name not in self.runs:
            raise RequestError(HTTPStatus.NOT_FOUND, "This page has no such run.")
        run = self.runs[name]
        d = run.spec.latents
        if len(body) != 4 * d:
            raise RequestError(
                HTTPStatus.BAD_REQUEST, f"Latents must be {d} float32 ({4 * d} bytes). Got {len(body)} bytes."
            )
        z = np.frombuffer(body, "<f4").astype(np.float32)
        if not np.isfinite(z).all():
            raise RequestError(HTTPStatus.BAD_REQUEST, "Latents must be finite.")
        try:
            pixels = self.decoding.submit(self.decode_picture, run, z).result()
        except (CancelledError, RuntimeError, ValueError, UserError) as error:
            raise RequestError(HTTPStatus.INTERNAL_SERVER_ERROR, f"The run could not decode: {error}") from error
        return pixels.cpu().numpy().astype("<f4").tobytes()

    def decode_picture(self, run: Run, z: Latents) -> Tensor:
        """The decoded example, or a picture of it if there is a function that draws examples."""
        example = run.decode(z[None])
        return example[0] if self.draw is None else self.draw(run, example)


def serve(
    runs: Sequence[Run],
    page: bytes | Callable[[], bytes],
    port: int = 0,
    token: str | None = None,
    draw: Draw | None = None,
) -> Server:
    """Serve a page and the decoders of runs on 127.0.0.1 until the server is closed.

    Args:
        runs: The runs whose decoders the page may use.
        page: The HTML of the page, or a function that makes it. The function is called once the port is open.
        port: The port; 0 chooses any free one.
        token: A secret that the page sends with each request to decode; by default a new one.
        draw: Makes a picture (c, h, w) of a decoded example (1, ...) of a run.

    Returns:
        The running server.

    Raises:
        UserError: If the port is invalid or cannot be opened.
    """
    if not 0 <= port < 1 << 16:
        raise UserError(f"The port must be between 0 (any free one) and 65535. Got {port} instead.")
    listener = open_listener(port)
    try:
        return Server(listener, runs, page() if callable(page) else page, token or new_token(), draw)
    except BaseException:
        listener.server_close()
        raise


def new_token() -> str:
    """A random secret."""
    return secrets.token_urlsafe(24)
