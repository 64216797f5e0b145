"""A small server for one page on this machine, which decodes for it: for decoders too large for a page.

It answers GET / with the page and POST /decode?run=ID&token=TOKEN, little-endian float32 latents in and pixels out. It
binds to 127.0.0.1 and reads no files. A page of another origin can neither read from it nor make it work: the Host
header must be this server's (against DNS rebinding), an Origin must match it, and decoding takes the page's token.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import os
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import numpy as np
from torch import Tensor

from unbraid.errors import UserError
from unbraid.runs.run import Run

HOST = "127.0.0.1"
MOST_BODY_BYTES = 1 << 16  # bytes of a request that are read, or more where a run has more latents
MOST_DISCARDED_BYTES = 1 << 20  # bytes of a refused request that are read and dropped, so that its sender gets to see the answer
LINGER_SECONDS = 2  # seconds to wait for those
IDLE_SECONDS = 30  # seconds that a connection may be silent
METHODS = {"/": ("GET", "HEAD"), "/decode": ("POST",)}
# Which scripts and styles may run is in the page; these hold whatever the page is.
HEADERS = {
    "Content-Security-Policy": "connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


Latents = np.ndarray[Any, np.dtype[np.float32]]
Draw = Callable[[Run, Tensor], Tensor]


class RequestError(Exception):
    """A refusal: a status and a sentence that says why."""

    def __init__(self, status: HTTPStatus, reason: str, **headers: str) -> None:
        super().__init__(reason)
        self.status, self.reason, self.headers = status, reason, headers


class Server:
    """A running server; `close` ends it, as does leaving a `with`."""

    def __init__(self, http: Listener, runs: Sequence[Run], page: bytes, token: str, draw: Draw | None) -> None:
        self.http, self.page, self.token, self.draw = http, page, token.encode(), draw
        self.http.owner = self
        self.runs = {run.id: run for run in runs}
        self.limit = max([MOST_BODY_BYTES, *(4 * run.spec.latents for run in runs)])
        # One thread for all decoding: torch keeps a team of threads for every thread that calls it.
        self.decoding = ThreadPoolExecutor(1, "unbraid-decode")
        self.port: int = self.http.server_address[1]
        self.hosts = {f"{HOST}:{self.port}", f"localhost:{self.port}"}
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.1,), daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        """What to open in a browser."""
        return f"http://{HOST}:{self.port}/"

    def wait(self) -> None:
        """Return when the server is closed; Ctrl-C comes through."""
        while self.thread.is_alive():
            self.thread.join(0.5)

    def close(self) -> None:
        """Take no more requests, end open connections and free the port; a second time changes nothing."""
        self.http.shutdown()
        self.http.server_close()
        self.http.hang_up()
        self.thread.join()
        self.decoding.shutdown(cancel_futures=True)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def decode(self, name: str, body: bytes) -> bytes:
        """Pixels of latents, both little-endian float32."""
        if name not in self.runs:
            raise RequestError(HTTPStatus.NOT_FOUND, "There is no such run on this page.")
        run = self.runs[name]
        d = run.spec.latents
        if len(body) != 4 * d:
            raise RequestError(HTTPStatus.BAD_REQUEST, f"Latents must be {d} float32 ({4 * d} bytes). Got {len(body)} bytes.")
        z = np.frombuffer(body, "<f4").astype(np.float32)
        if not np.isfinite(z).all():
            raise RequestError(HTTPStatus.BAD_REQUEST, "Latents must be finite.")
        try:
            pixels = self.decoding.submit(self.made, run, z).result()
        except (CancelledError, RuntimeError, ValueError, UserError) as error:
            raise RequestError(HTTPStatus.INTERNAL_SERVER_ERROR, f"The run could not decode: {error}") from error
        return pixels.cpu().numpy().astype("<f4").tobytes()

    def made(self, run: Run, z: Latents) -> Tensor:
        """What a run decodes, drawn where it is no picture by itself."""
        example = run.decode(z[None])
        return example[0] if self.draw is None else self.draw(run, example)


def serve(
    runs: Sequence[Run],
    page: bytes | Callable[[], bytes],
    port: int = 0,
    token: str | None = None,
    draw: Draw | None = None,
) -> Server:
    """Serve `page` and the decoders of `runs` on a port of 127.0.0.1 (0: any that is free) until closed.

    `token` is what the page sends along when it asks for an image; nobody can decode without it. A page that takes long
    to make is better given as a function: it is called when the port is known to be free. `draw` makes a picture
    (c, h, w) of a decoded example (1, ...) of a run.
    """
    if not 0 <= port < 1 << 16:
        raise UserError(f"The port must be between 0 (any free one) and 65535. Got {port} instead.")
    http = open_listener(port)
    try:
        return Server(http, runs, page() if callable(page) else page, token or new_token(), draw)
    except BaseException:
        http.server_close()
        raise


def new_token() -> str:
    """A secret that nobody guesses."""
    return secrets.token_urlsafe(24)


class Listener(ThreadingHTTPServer):
    """Accepts connections, a thread each, and knows those that are open."""

    owner: Server
    daemon_threads = True
    request_queue_size = 128
    allow_reuse_address = os.name == "posix"  # elsewhere it would let two servers share a port

    def __init__(self, port: int) -> None:
        self.open: set[socket.socket] = set()
        self.guard = threading.Lock()
        super().__init__((HOST, port), Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self.guard:
            self.open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self.guard:
            self.open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """End every open connection; the threads that serve them then end by themselves."""
        with self.guard:
            for connection in self.open:
                with contextlib.suppress(OSError):  # the other side was first
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay silent where a client went away; anything else is a fault of this program and shown."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def open_listener(port: int) -> Listener:
    """A listener on the port, or a refusal that says why not."""
    try:
        return Listener(port)
    except OSError as error:
        other = "Choose another with --port, or leave it out for any free one."
        if error.errno == errno.EADDRINUSE:
            raise UserError(f"Port {port} of {HOST} is taken by another program. {other}") from error
        raise UserError(f"Port {port} of {HOST} cannot be opened: {error.strerror}. {other}") from error


class Handler(BaseHTTPRequestHandler):
    """One connection: every request is checked before anything is done for it."""

    server: Listener
    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS
    disable_nagle_algorithm = True

    def __getattr__(self, name: str) -> Callable[[], None]:
        """Every method of HTTP, also unknown ones, comes to `answer`: the base class looks for do_GET and so on."""
        if name.startswith("do_"):
            return self.answer
        raise AttributeError(name)

    def answer(self) -> None:
        """Do what is asked, or say why not; a body left unread ends the connection, lest it pass for a request."""
        self.pending = "Content-Length" in self.headers or "Transfer-Encoding" in self.headers
        try:
            body, kind = self.made()
        except RequestError as refusal:
            self.reply(refusal.status, f"{refusal.reason}\n".encode(), "text/plain; charset=utf-8", refusal.headers)
        else:
            self.reply(HTTPStatus.OK, body, kind)
        if self.pending:
            self.linger()

    def made(self) -> tuple[bytes, str]:
        """The body of the answer and its type."""
        self.check_sender()
        owner, (path, _, query) = self.server.owner, self.path.partition("?")
        if path not in METHODS:
            raise RequestError(HTTPStatus.NOT_FOUND, "There is nothing here.")
        allowed = METHODS[path]
        if self.command not in allowed:
            raise RequestError(HTTPStatus.METHOD_NOT_ALLOWED, f"Use {' or '.join(allowed)}.", Allow=", ".join(allowed))
        if path == "/":
            return owner.page, "text/html; charset=utf-8"
        asked = self.asked(query)
        return owner.decode(asked["run"], self.body()), "application/octet-stream"

    def check_sender(self) -> None:
        """Refuse what was meant for another host, and scripts of other pages."""
        hosts, origins = (self.headers.get_all(name, []) for name in ("Host", "Origin"))
        if len(hosts) != 1 or hosts[0].lower() not in self.server.owner.hosts:
            raise RequestError(HTTPStatus.FORBIDDEN, "This server is for its own address only.")
        if origins and origins != [f"http://{hosts[0].lower()}"]:
            raise RequestError(HTTPStatus.FORBIDDEN, "Only this server's own page may ask.")

    def asked(self, query: str) -> Mapping[str, str]:
        """The parameters of a request that carries the token."""
        try:
            found = {key: values[-1] for key, values in parse_qs(query, max_num_fields=8).items()}
        except ValueError:
            raise RequestError(HTTPStatus.BAD_REQUEST, "Too many parameters.") from None
        if not hmac.compare_digest(found.get("token", "").encode(), self.server.owner.token):
            raise RequestError(HTTPStatus.FORBIDDEN, "The token is not that of this server. Load its page anew.")
        return {"run": "", **found}

    def body(self) -> bytes:
        """The bytes of the request, as many as it says, within limits."""
        length = self.length()
        if length is None:
            raise RequestError(HTTPStatus.LENGTH_REQUIRED, "Say how long the body is (Content-Length).")
        if length > self.server.owner.limit:
            raise RequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"At most {self.server.owner.limit} bytes.")
        content = self.rfile.read(length)
        self.pending = False
        return content

    def length(self) -> int | None:
        """What Content-Length says, if it is there once, says a number, and nothing else says otherwise."""
        said = self.headers.get_all("Content-Length", [])
        plain = len(said) == 1 and said[0].isascii() and said[0].isdigit() and len(said[0]) < 19
        return int(said[0]) if plain and "Transfer-Encoding" not in self.headers else None

    def reply(self, status: HTTPStatus, body: bytes, kind: str, more: Mapping[str, str] | None = None) -> None:
        """Send an answer with the headers that all have."""
        self.close_connection |= self.pending
        self.send_response(status)
        own = {"Content-Type": kind, "Content-Length": str(len(body)), **(more or {})}
        if self.close_connection:
            own["Connection"] = "close"
        for name, value in {**HEADERS, **own}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def linger(self) -> None:
        """Read on for a while after the last answer: closing at once would throw it away with what is unread."""
        self.connection.shutdown(socket.SHUT_WR)
        self.connection.settimeout(LINGER_SECONDS)
        left = MOST_DISCARDED_BYTES
        while left > 0 and (piece := self.connection.recv(1 << 16)):
            left -= len(piece)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What is no proper request is answered like all else."""
        self.close_connection, self.pending = True, False
        status = HTTPStatus(code)
        self.reply(status, f"{status.phrase}.\n".encode(), "text/plain; charset=utf-8")

    def version_string(self) -> str:
        """Who answers; which versions run here is nobody's business."""
        return "unbraid"

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing goes to the terminal."""
