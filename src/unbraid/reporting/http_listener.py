"""The HTTP part of the local server, which checks every request before it is answered."""

from __future__ import annotations

import contextlib
import errno
import hmac
import os
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol, cast
from urllib.parse import parse_qs

from unbraid.errors import UserError

HOST = "127.0.0.1"
# Maximum number of bytes of a rejected request that are read and discarded (see `Handler.linger`).
MAX_DISCARDED_BYTES = 1 << 20
LINGER_SECONDS = 2  # maximum time to wait for the bytes of a rejected request
IDLE_SECONDS = 30  # time after which an idle connection is closed
MAX_CONNECTIONS = 256  # maximum number of open connections, each of which has its own thread
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\nRetry-After: 1\r\n\r\n"
METHODS = {"/": ("GET", "HEAD"), "/decode": ("POST",)}
# Headers of every answer. The content security policy for scripts and styles is in the HTML of the page instead.
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


class PageApplication(Protocol):
    """The interface of the object that answers requests.

    Attributes:
        page: The HTML of the page.
        token: The secret that every request must contain.
        hosts: The accepted values of the Host header.
        max_body_bytes: The maximum size of the body of a request, in bytes.
    """

    page: bytes
    token: bytes
    hosts: set[str]
    max_body_bytes: int

    def decode(self, name: str, body: bytes) -> bytes:
        """Decode the latents in `body` with the run whose id is `name`."""
        ...


class RequestError(Exception):
    """Raised to reject a request, with an HTTP status and a sentence that states the reason."""

    def __init__(self, status: HTTPStatus, reason: str, **headers: str) -> None:
        super().__init__(reason)
        self.status, self.reason, self.headers = status, reason, headers


class Listener(ThreadingHTTPServer):
    """Accepts connections, handles each in its own thread, and keeps a set of open connections.

    At most `MAX_CONNECTIONS` are open at the same time, fewer if the system does not allow as many threads. Further
    connections get an answer that says to try again later.
    """

    owner: PageApplication
    daemon_threads = True
    request_queue_size = 128
    allow_reuse_address = os.name == "posix"  # elsewhere, this would allow two servers to use the same port

    def __init__(self, port: int) -> None:
        self.open: set[socket.socket] = set()
        self.open_lock = threading.Lock()
        super().__init__((HOST, port), Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self.open_lock:
            accepted = len(self.open) < MAX_CONNECTIONS
            if accepted:
                self.open.add(request)
        if accepted:
            try:
                super().process_request(request, client_address)
            except RuntimeError:  # the system allows no further thread
                accepted = False
        if accepted:
            return
        with contextlib.suppress(OSError):  # if the client has already closed the connection
            request.send(BUSY, socket.MSG_DONTWAIT)
        self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        with self.open_lock:
            self.open.discard(request)
        super().shutdown_request(request)

    def close_connections(self) -> None:
        """Close every open connection, which also ends the threads that handle them."""
        with self.open_lock:
            for connection in self.open:
                with contextlib.suppress(OSError):  # if the client has already closed it
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore connection errors, which occur when a client disconnects. Print all other errors, which are bugs."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def open_listener(port: int) -> Listener:
    """Return a listener on the port, or raise a UserError if the port cannot be opened."""
    try:
        return Listener(port)
    except OSError as error:
        advice = "Choose another port with --port, or omit --port to use any free port."
        if error.errno == errno.EADDRINUSE:
            raise UserError(f"Port {port} of {HOST} is in use by another program. {advice}") from error
        raise UserError(f"Port {port} of {HOST} cannot be opened: {error.strerror}. {advice}") from error


class LineRecorder:
    """A file that records the last line that was read from it. At the end of the file, the line is empty."""

    def __init__(self, file: Any) -> None:
        self.file, self.last = file, b"\n"

    def readline(self, size: int = -1) -> bytes:
        """Read a line."""
        self.last = self.file.readline(size)
        return self.last


class Handler(BaseHTTPRequestHandler):
    """Handles one connection and checks every request before it is answered."""

    server: Listener
    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS
    disable_nagle_algorithm = True

    def __getattr__(self, name: str) -> Callable[[], None]:
        """Return `answer` for all HTTP methods. The base class calls `do_GET`, `do_POST` and so on."""
        if name.startswith("do_"):
            return self.answer
        raise AttributeError(name)

    def parse_request(self) -> bool:
        """Parse the head of a request, and reject a head that does not end with an empty line.

        Otherwise, a request that is cut off would be answered without regard to the headers that are missing.
        """
        whole, self.rfile = self.rfile, LineRecorder(self.rfile)  # type: ignore[assignment]
        try:
            parsed = super().parse_request()
        finally:
            recorder, self.rfile = cast(LineRecorder, self.rfile), whole
        if parsed and recorder.last == b"":
            self.send_error(HTTPStatus.BAD_REQUEST)
            return False
        return parsed

    def answer(self) -> None:
        """Answer a request.

        If the body of the request was not read, close the connection, because the body would otherwise be parsed as the
        next request.
        """
        self.pending = "Content-Length" in self.headers or "Transfer-Encoding" in self.headers
        try:
            body, kind = self.response()
        except RequestError as error:
            self.reply(error.status, f"{error.reason}\n".encode(), "text/plain; charset=utf-8", error.headers)
        else:
            self.reply(HTTPStatus.OK, body, kind)
        if self.pending:
            self.linger()

    def response(self) -> tuple[bytes, str]:
        """Return the body of the answer and its content type."""
        self.check_sender()
        owner, (path, _, query) = self.server.owner, self.path.partition("?")
        if path not in METHODS:
            raise RequestError(HTTPStatus.NOT_FOUND, "There is no such page.")
        allowed = METHODS[path]
        if self.command not in allowed:
            raise RequestError(HTTPStatus.METHOD_NOT_ALLOWED, f"Use {' or '.join(allowed)}.", Allow=", ".join(allowed))
        parameters = self.parameters(query)
        if path == "/":
            return owner.page, "text/html; charset=utf-8"
        return owner.decode(parameters["run"], self.body()), "application/octet-stream"

    def check_sender(self) -> None:
        """Reject requests for other hosts, and requests from scripts on other pages."""
        hosts, origins = (self.headers.get_all(name, []) for name in ("Host", "Origin"))
        if len(hosts) != 1 or hosts[0].lower() not in self.server.owner.hosts:
            raise RequestError(HTTPStatus.FORBIDDEN, "The Host header must be the address of this server.")
        if origins and origins != [f"http://{hosts[0].lower()}"]:
            raise RequestError(HTTPStatus.FORBIDDEN, "Only the page of this server may send requests.")

    def parameters(self, query: str) -> Mapping[str, str]:
        """Return the parameters of a request. Reject requests without the token."""
        try:
            found = {key: values[-1] for key, values in parse_qs(query, max_num_fields=8).items()}
        except ValueError:
            raise RequestError(HTTPStatus.BAD_REQUEST, "Too many parameters.") from None
        if not hmac.compare_digest(found.get("token", "").encode(), self.server.owner.token):
            raise RequestError(
                HTTPStatus.FORBIDDEN,
                "The token does not belong to this server. Open the address that unbraid explore has printed.",
            )
        return {"run": "", **found}

    def body(self) -> bytes:
        """Read the body of the request. Reject bodies of unknown or excessive length."""
        length = self.length()
        if length is None:
            raise RequestError(HTTPStatus.LENGTH_REQUIRED, "The request needs a Content-Length.")
        if length > self.server.owner.max_body_bytes:
            raise RequestError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"The body may have at most {self.server.owner.max_body_bytes} bytes.",
            )
        content = self.rfile.read(length)
        self.pending = False
        return content

    def length(self) -> int | None:
        """Return the Content-Length.

        Return None if it is missing, repeated or not a valid number, or if there is a Transfer-Encoding.
        """
        values = self.headers.get_all("Content-Length", [])
        valid = len(values) == 1 and values[0].isascii() and values[0].isdigit() and len(values[0]) < 19
        return int(values[0]) if valid and "Transfer-Encoding" not in self.headers else None

    def reply(self, status: HTTPStatus, body: bytes, kind: str, more: Mapping[str, str] | None = None) -> None:
        """Send an answer. `HEADERS` are added to the given headers."""
        self.close_connection |= self.pending
        self.request_version = self.protocol_version  # the base class sends no headers if it could not parse a version
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
        """Read the rest of a rejected request. Closing the connection immediately could discard the answer."""
        self.connection.shutdown(socket.SHUT_WR)
        self.connection.settimeout(LINGER_SECONDS)
        left = MAX_DISCARDED_BYTES
        while left > 0 and (piece := self.connection.recv(1 << 16)):
            left -= len(piece)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a malformed request. The answer has the same headers as any other answer."""
        self.close_connection, self.pending = True, False
        status = HTTPStatus(code)
        self.reply(status, f"{status.phrase}.\n".encode(), "text/plain; charset=utf-8")

    def version_string(self) -> str:
        """Return the Server header, which does not reveal any version."""
        return "unbraid"

    def log_message(self, format: str, *arguments: Any) -> None:
        """Print nothing to the terminal."""
