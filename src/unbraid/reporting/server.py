"""A local server for one page. It runs the decoders of that page, which may be too large to be part of the page.

It answers GET /?token=TOKEN with the page. The body of POST /decode?run=ID&token=TOKEN contains latents, and the answer
contains pixels. Latents and pixels are little-endian float32. The server binds to 127.0.0.1 and reads no files. Pages
of other origins can neither read from it nor use its decoders, because the Host header must be the address of this
server (which prevents DNS rebinding), an Origin header must match this address, and every request needs the token.
Other users of this machine do not know the token either.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import numpy as np
from torch import Tensor

from unbraid.errors import UserError
from unbraid.reporting.http_listener import HOST, Listener, RequestError, open_listener
from unbraid.runs.run import Run

MAX_BODY_BYTES = 1 << 16  # maximum size of the body of a request, unless the latents of a run need more

Latents = np.ndarray[Any, np.dtype[np.float32]]
Draw = Callable[[Run, Tensor], Tensor]


class Server:
    """A running server. `close` or the end of a ``with`` block stops it.

    Attributes:
        url: The address of the page, with its token.
        port: The port on 127.0.0.1.
    """

    def __init__(self, http: Listener, runs: Sequence[Run], page: bytes, token: str, draw: Draw | None) -> None:
        self.http, self.page, self.token, self.draw = http, page, token.encode(), draw
        self.http.owner = self
        self.runs = {run.id: run for run in runs}
        self.max_body_bytes = max([MAX_BODY_BYTES, *(4 * run.spec.latents for run in runs)])
        # One thread does all decoding, because torch creates a pool of threads for every thread that calls it.
        self.decoding = ThreadPoolExecutor(1, "unbraid-decode")
        self.port: int = self.http.server_address[1]
        self.hosts = {f"{HOST}:{self.port}", f"localhost:{self.port}"}
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.1,), daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        """The address of the page, with its token."""
        return f"http://{HOST}:{self.port}/?token={quote(self.token, safe='')}"

    def wait(self) -> None:
        """Block until the server is closed. Ctrl-C raises KeyboardInterrupt."""
        while self.thread.is_alive():
            self.thread.join(0.5)

    def close(self) -> None:
        """Stop the server, close open connections and release the port. Further calls have no effect."""
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
        """Decode latents with the run whose id is `name`. Latents and pixels are little-endian float32."""
        if name not in self.runs:
            raise RequestError(HTTPStatus.NOT_FOUND, "This page has no such run.")
        run = self.runs[name]
        d = run.spec.latents
        if len(body) != 4 * d:
            raise RequestError(
                HTTPStatus.BAD_REQUEST, f"Latents must be {d} float32 numbers ({4 * d} bytes). Got {len(body)} bytes."
            )
        z = np.frombuffer(body, "<f4").astype(np.float32)
        if not np.isfinite(z).all():
            raise RequestError(HTTPStatus.BAD_REQUEST, "Latents must be finite.")
        try:
            pixels = self.decoding.submit(self.decode_picture, run, z).result()
        except (CancelledError, RuntimeError, ValueError, UserError) as error:
            raise RequestError(
                HTTPStatus.INTERNAL_SERVER_ERROR, f"The run could not decode the latents: {error}"
            ) from error
        return pixels.cpu().numpy().astype("<f4").tobytes()

    def decode_picture(self, run: Run, z: Latents) -> Tensor:
        """Return the decoded example, or a picture of it if the server has a function that draws examples."""
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
        page: The HTML of the page, or a function that returns it. The function is called after the port is opened.
        port: The port. 0 chooses any free port.
        token: A secret that is part of the address of the page and of each request to decode. None creates a new one.
        draw: A function that draws a decoded example (1, ...) of a run as a picture (c, h, w). If it is
            None, the server sends the decoded example itself.

    Returns:
        The running server.

    Raises:
        UserError: If the port is invalid or cannot be opened.
    """
    if not 0 <= port < 1 << 16:
        raise UserError(f"The port must be between 0 (any free port) and 65535. Got {port} instead.")
    listener = open_listener(port)
    try:
        return Server(listener, runs, page() if callable(page) else page, token or new_token(), draw)
    except BaseException:
        listener.server_close()
        raise


def new_token() -> str:
    """Return a random secret."""
    return secrets.token_urlsafe(24)
