"""A real HTTP server on this machine whose responses have chosen faults."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Fault:
    """The faults of one response. By default there are none."""

    cut: int | None = None  # the connection is closed after this many bytes of the response, headers included
    cut_body: int | None = None  # the same, counted from the start of the body
    length: int | None = None  # a wrong Content-Length; -1 for none
    ranges: bool = True
    if_range: bool = True  # whether If-Range is respected
    offset: int = 0  # added to the start of a requested range
    etag: str | None = '"one"'
    status: int = 200
    location: str = ""
    delay: float = 0.0  # seconds before each piece
    piece: int = 1 << 20
    silence: float = 0.0  # seconds before the response
    gate: threading.Event | None = None  # the response waits for this event
    body: bytes | None = None
    chunked: bool = False


@dataclass
class Server:
    """Contents and upcoming faults by path, and all past requests as (path, Range header)."""

    url: str
    contents: dict[str, bytes] = field(default_factory=dict)
    faults: dict[str, deque[Fault]] = field(default_factory=dict)
    default_faults: dict[str, Fault] = field(default_factory=dict)
    requests: list[tuple[str, str | None]] = field(default_factory=list)

    def add(self, path: str, content: bytes, *faults: Fault, always: Fault | None = None) -> str:
        """Serve `content`: the first responses have the given faults, all later ones `always`. Return the URL."""
        self.contents[path], self.faults[path] = content, deque(faults)
        self.default_faults[path] = always or Fault()
        return self.url + path

    def next_fault(self, path: str) -> Fault:
        upcoming = self.faults.get(path)
        return upcoming.popleft() if upcoming else self.default_faults.get(path, Fault(status=404))


@contextlib.contextmanager
def run_server() -> Iterator[Server]:
    """Run a server while the context is open."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            send_response(self, server)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    server = Server(f"http://127.0.0.1:{http.server_port}")
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


def send_response(handler: BaseHTTPRequestHandler, server: Server) -> None:
    """Send the response to a request with its fault."""
    requested_range = handler.headers.get("Range")
    server.requests.append((handler.path, requested_range))
    fault = server.next_fault(handler.path)
    time.sleep(fault.silence)
    if fault.gate:
        fault.gate.wait(60)
    head, body = compose_response(
        fault, server.contents.get(handler.path, b""), requested_range, handler.headers.get("If-Range")
    )
    response = head + body
    end = len(response)
    if fault.cut is not None:
        end = fault.cut
    if fault.cut_body is not None:
        end = min(end, len(head) + fault.cut_body)
    with contextlib.suppress(OSError):
        for start in range(0, end, fault.piece):
            time.sleep(fault.delay)
            handler.connection.sendall(response[start : min(start + fault.piece, end)])
        handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True


def compose_response(
    fault: Fault, content: bytes, requested_range: str | None, if_range: str | None
) -> tuple[bytes, bytes]:
    """Return the headers and the body of a response."""
    content = content if fault.body is None else fault.body
    lines, status, body = [], fault.status, content
    if requested_range and fault.ranges and status == 200 and (if_range in (None, fault.etag) or not fault.if_range):
        start = int(requested_range.removeprefix("bytes=").removesuffix("-")) + fault.offset
        if start >= len(content):
            status, body = 416, b""
        else:
            status, body = 206, content[start:]
            lines.append(f"Content-Range: bytes {start}-{len(content) - 1}/{len(content)}")
    if fault.etag:
        lines.append(f"ETag: {fault.etag}")
    if fault.location:
        lines.append(f"Location: {fault.location}")
    if fault.chunked:
        lines.append("Transfer-Encoding: chunked")
        body = b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in (body[:10], body[10:]) if p) + b"0\r\n\r\n"
    elif fault.length != -1:
        lines.append(f"Content-Length: {len(body) if fault.length is None else fault.length}")
    return "\r\n".join([f"HTTP/1.1 {status} Response", *lines, "\r\n"]).encode(), body
