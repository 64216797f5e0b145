"""A real HTTP server on this machine that fails as it is told to."""

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
    """What is wrong with one answer; nothing is, by default."""

    cut: int | None = None  # bytes of the whole answer, headers and all, after which the connection is closed
    cut_body: int | None = None  # the same, counted from the beginning of the body
    length: int | None = None  # a Content-Length that is not true; -1 for none
    ranges: bool = True
    if_range: bool = True  # whether If-Range is heeded
    offset: int = 0  # added to where a range begins, without being asked
    etag: str | None = '"one"'
    status: int = 200
    location: str = ""
    delay: float = 0.0  # seconds before each piece
    piece: int = 1 << 20
    silence: float = 0.0  # seconds before the answer
    gate: threading.Event | None = None  # to wait for before the answer
    body: bytes | None = None
    chunked: bool = False


@dataclass
class Server:
    """Contents and coming faults by path, and the requests so far as (path, Range header)."""

    url: str
    contents: dict[str, bytes] = field(default_factory=dict)
    faults: dict[str, deque[Fault]] = field(default_factory=dict)
    standing: dict[str, Fault] = field(default_factory=dict)
    requests: list[tuple[str, str | None]] = field(default_factory=list)

    def add(self, path: str, content: bytes, *faults: Fault, always: Fault | None = None) -> str:
        """Serve `content`, the first answers with `faults`, all further ones as `always` says; returns its URL."""
        self.contents[path], self.faults[path] = content, deque(faults)
        self.standing[path] = always or Fault()
        return self.url + path

    def fault(self, path: str) -> Fault:
        coming = self.faults.get(path)
        return coming.popleft() if coming else self.standing.get(path, Fault(status=404))


@contextlib.contextmanager
def serving() -> Iterator[Server]:
    """A server for the time of a test."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self, server)

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


def answer(handler: BaseHTTPRequestHandler, server: Server) -> None:
    """Send what the fault of this request leaves of the answer."""
    asked = handler.headers.get("Range")
    server.requests.append((handler.path, asked))
    fault = server.fault(handler.path)
    time.sleep(fault.silence)
    if fault.gate:
        fault.gate.wait(60)
    head, body = compose(fault, server.contents.get(handler.path, b""), asked, handler.headers.get("If-Range"))
    whole = head + body
    end = len(whole)
    if fault.cut is not None:
        end = fault.cut
    if fault.cut_body is not None:
        end = min(end, len(head) + fault.cut_body)
    with contextlib.suppress(OSError):
        for start in range(0, end, fault.piece):
            time.sleep(fault.delay)
            handler.connection.sendall(whole[start : min(start + fault.piece, end)])
        handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True


def compose(fault: Fault, content: bytes, asked: str | None, if_range: str | None) -> tuple[bytes, bytes]:
    """Headers and body of an answer."""
    content = content if fault.body is None else fault.body
    lines, status, body = [], fault.status, content
    if asked and fault.ranges and status == 200 and (if_range in (None, fault.etag) or not fault.if_range):
        start = int(asked.removeprefix("bytes=").removesuffix("-")) + fault.offset
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
    return "\r\n".join([f"HTTP/1.1 {status} Answer", *lines, "\r\n"]).encode(), body
