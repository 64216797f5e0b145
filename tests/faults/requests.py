"""Part "requests": malformed, oversized, slow and foreign requests to the server of `unbraid explore`."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

from faults.jobs import TINY
from faults.parts import Outcome, Part
from faults.processes import Process, run, start

LATENTS = 2
ANSWER_SECONDS = 300.0  # within which a request must be answered or its connection closed
MEMORY_GROWTH = 300 * 2**20  # bytes by which the server may grow
AT_ONCE = 200
METHODS = (
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "DELETE",
    "OPTIONS",
    "TRACE",
    "CONNECT",
    "PATCH",
    "get",
    "G\0T",
    "",
    "X" * 70_000,
)
PATHS = (
    "/", "/decode", "//", "/../etc/passwd", "/..%2f..%2fetc/passwd", "", "*", "http://evil.example/", "/é", "/%00",
    "/decode/", "/Decode", "/decode?run", "/" + "a" * 70_000, "/decode;a", "/.", "/index.html", "\\", "/\x7f",
)  # fmt: skip
QUERIES = (
    "", "?", "?token={token}", "?token=", "?token=wrong", "?token={token}x", "?token={token}&token=wrong",
    "?run={run}&token={token}", "?run={run}", "?run=../..&token={token}", "?run=&token={token}",
    "?run=%00&token={token}", "?run={run}&token=%ff%fe", "?" + "a=1&" * 100 + "token={token}", "?token[]={token}",
    "?token={token}#x", "?TOKEN={token}", "?token=%E2%82%AC",
)  # fmt: skip
VERSIONS = (
    "HTTP/1.1",
    "HTTP/1.1",
    "HTTP/1.1",
    "HTTP/1.0",
    "HTTP/0.9",
    "HTTP/2",
    "HTTP/9.9",
    "",
    "HTTP/1.1 x",
    "HTTP/a.b",
)
HOSTS = (
    "{host}", "{host}", "{host}", "localhost:{port}", "", "evil.example", "evil.example:{port}", "127.0.0.1",
    "127.0.0.2:{port}", "{host}, {host}", "{host}.evil.example", "[::1]:{port}", "é", "{host}\r\nHost: {host}", None,
)  # fmt: skip
ORIGINS = (
    None, None, None, "http://{host}", "http://{host}", "https://{host}", "null", "http://evil.example", "", "file://",
    "http://{host}/", "http://{host}\r\nOrigin: http://evil.example",
)  # fmt: skip
LENGTHS = (None, "{size}", "{size}", "0", "-1", "+8", "8,8", "8\r\nContent-Length: 9", "1e3", "٣", "9" * 20,
           str(2**16 + 1), str(2**40), "0x8", "7", "9")  # fmt: skip
BODIES = {
    "latents": struct.pack("<2f", 0.5, -1.0), "empty": b"", "short": b"\0" * 7, "long": b"\0" * 9,
    "nan": struct.pack("<2f", float("nan"), 0.0), "inf": struct.pack("<2f", float("inf"), 0.0),
    "huge": struct.pack("<2f", 3e38, -3e38), "large": b"\0" * 70_000, "chunked": b"8\r\n" + bytes(8) + b"\r\n0\r\n\r\n",
    "request": b"GET / HTTP/1.1\r\n\r\n",
}  # fmt: skip
EXTRA = (
    "", "", "", "Transfer-Encoding: chunked\r\n", "Expect: 100-continue\r\n", "Connection: keep-alive\r\n",
    "a" * 70_000, "X: y\r\n" * 150, "no colon\r\n", ": empty\r\n", " folded\r\n", "X:\0\r\n", "Upgrade: websocket\r\n",
    "Content-Type: multipart/form-data\r\n", "Range: bytes=0-1\r\n", "Access-Control-Request-Method: POST\r\n",
)  # fmt: skip
WAYS = ("half", "bytes", "cut", "held", "at once")
HELD = 50  # connections with half a request that stay open while other requests are answered


@dataclass(frozen=True)
class RequestCase:
    """A request and the way it is sent: whole, in two halves, in single bytes, cut, held, or 200 times at once."""

    method: str
    path: str
    query: str
    version: str
    host: str | None
    origin: str | None
    length: str | None
    body: str
    extra: str
    way: str

    @property
    def allowed(self) -> bool:
        """Whether the sender has the token, the right host and the right origin, so it may have page and pixels."""
        token = self.query in ("?token={token}", "?run={run}&token={token}", "?run=&token={token}",
                               "?run=../..&token={token}", "?run=%00&token={token}")  # fmt: skip
        return token and self.host in ("{host}", "localhost:{port}") and self.origin in (None, "http://{host}")


VALID = RequestCase("GET", "/", "?token={token}", "HTTP/1.1", "{host}", None, None, "empty", "", "whole")


class Requests(Part):
    """Part "requests" of the campaign."""

    name = "requests"
    weight = 0.1
    unit = "requests"

    def prepare(self, folder: Path) -> None:
        """Train a run and start the server in a process of its own."""
        self.folder = folder
        self.held: list[socket.socket] = []
        trained = run(("train", "vae", *TINY, "--steps", "2", "--out", "runs"), folder)
        assert trained.status == 0, trained.output
        self.identity = next(folder.glob("runs/*/run.json")).parent.name
        self.start_server()

    def start_server(self) -> None:
        """Start `unbraid explore` and read its address."""
        readable, writable = os.pipe()
        self.process: Process = start(("explore", "runs"), self.folder, output=writable)
        os.close(writable)
        with os.fdopen(readable) as lines:
            address = urlsplit(lines.readline().split()[0])
        assert address.port is not None
        self.port, self.token = address.port, address.query.partition("=")[2]
        self.page = answer_body(self.exchange(self.encode(VALID)))
        assert b"<html" in self.page
        self.memory = self.used_memory()

    def used_memory(self) -> int:
        """Return the memory of the server in bytes."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * resource.getpagesize()

    def make_case(self, random: Random) -> RequestCase:
        """Generate a request with a few wrong parts."""
        decode = RequestCase("POST", "/decode", "?run={run}&token={token}", "HTTP/1.1", "{host}", "http://{host}",
                             "{size}", "latents", "", "whole")  # fmt: skip
        case = random.choice([VALID, decode, decode])
        values = {"method": METHODS, "path": PATHS, "query": QUERIES, "version": VERSIONS, "host": HOSTS,
                  "origin": ORIGINS, "length": LENGTHS, "body": tuple(BODIES), "extra": EXTRA}  # fmt: skip
        for name in random.sample(list(values), random.choice([0, 1, 1, 1, 2, 2, 3, 5])):
            case = replace(case, **{name: random.choice(values[name])})
        return replace(case, way=random.choice(WAYS) if random.random() < 0.08 else "whole")

    def encode(self, case: RequestCase) -> bytes:
        """Return the bytes of a request."""
        body = BODIES[case.body]
        names = {"host": f"127.0.0.1:{self.port}", "port": self.port, "token": self.token, "run": self.identity,
                 "size": len(body)}  # fmt: skip
        headers = {"Host": case.host, "Origin": case.origin, "Content-Length": case.length}
        lines = [f"{case.method} {case.path}{case.query} {case.version}".rstrip()]
        lines += [f"{name}: {value}" for name, value in headers.items() if value is not None]
        text = "\r\n".join(lines) + "\r\n" + case.extra.removesuffix("\r\n") + "\r\n" * bool(case.extra) + "\r\n"
        for name, value in names.items():
            text = text.replace(f"{{{name}}}", str(value))
        return text.encode() + body

    def run(self, case: RequestCase) -> Outcome:
        """Send a request, judge the answers, and check that the server still answers a valid request."""
        content = self.encode(case)
        count = AT_ONCE if case.way == "at once" else 1
        try:
            answers = self.send_case(content, case.way)
            fault = next(filter(None, (self.judge(case, answer) for answer in answers)), "")
            fault = fault or self.check_server()
        except (OSError, TimeoutError) as error:
            answers, fault = [], f"no answer: {error!r}"
        return Outcome(fault, b"".join(answers)[:300].decode(errors="replace") + self.process.output, count)

    def send_case(self, content: bytes, way: str) -> list[bytes]:
        """Send a request and return the answers."""
        if way == "at once":
            return self.exchange_many(content)
        if way == "held":
            self.hold(content)
            return []
        return [self.exchange(content, way)]

    def hold(self, content: bytes) -> None:
        """Send half a request and keep its connection open. At most 50 such connections are open."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=ANSWER_SECONDS)
        connection.sendall(content[: len(content) // 2])
        self.held.append(connection)
        if len(self.held) > HELD:
            self.held.pop(0).close()

    def judge(self, case: RequestCase, answer: bytes) -> str:
        """Return what is wrong with an answer, or an empty text. A connection may be closed without an answer."""
        if not answer:
            return ""
        status = answer[9:12]
        if not answer.startswith(b"HTTP/1.") or not status.isdigit():
            return "an answer that is not HTTP"
        if not case.allowed and (self.page[:2000] in answer or status == b"200"):
            return "an answer for a sender without permission"
        if status[:1] == b"5" and status not in (b"501", b"503", b"505"):
            return f"status {status.decode()}"
        return "" if b"Traceback" not in answer else "traceback in the answer"

    def check_server(self) -> str:
        """Return what is wrong with the server after a request, or an empty text."""
        if self.process.poll() is not None:
            status = self.process.status
            self.start_server()
            return f"the server ended with status {status}"
        if "Traceback" in self.process.output:
            self.process.written = b""
            return "traceback"
        if self.used_memory() - self.memory > MEMORY_GROWTH:
            return "the server has grown by more than 300 MB"
        valid = self.exchange(self.encode(replace(VALID, method="HEAD")))
        return "" if valid.startswith(b"HTTP/1.1 200") else "a valid request is not answered"

    def exchange(self, content: bytes, way: str = "whole") -> bytes:
        """Send a request and return the answer until the connection is closed or idle for a moment."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=ANSWER_SECONDS) as connection:
            send_and_end(connection, content, way)
            return receive(connection)

    def exchange_many(self, content: bytes) -> list[bytes]:
        """Send a request on 200 connections that are all open at the same time, and return the answers."""
        connections = [
            socket.create_connection(("127.0.0.1", self.port), timeout=ANSWER_SECONDS) for _ in range(AT_ONCE)
        ]
        try:
            for connection in connections:
                send_and_end(connection, content, "whole")
            return [receive(connection) for connection in connections]
        finally:
            for connection in connections:
                connection.close()

    def simpler(self, case: RequestCase) -> Iterator[RequestCase]:
        """Generate cases in which one more part of the request is valid."""
        for name in ("way", "extra", "origin", "host", "version", "length", "body", "query", "path", "method"):
            if getattr(case, name) != getattr(VALID, name):
                yield replace(case, **{name: getattr(VALID, name)})

    def close(self) -> None:
        """Stop the server with Ctrl-C."""
        for connection in self.held:
            connection.close()
        self.process.send(signal.SIGINT)
        self.process.wait()
        shutil.rmtree(self.folder / "runs")


def send(connection: socket.socket, content: bytes, way: str) -> None:
    """Send a request whole, in two halves, its first bytes one by one, or cut."""
    if way == "bytes":
        for i in range(min(40, len(content))):
            connection.sendall(content[i : i + 1])
            time.sleep(0.002)
        connection.sendall(content[40:])
    elif way == "half":
        middle = len(content) // 2
        connection.sendall(content[:middle])
        time.sleep(0.1)
        connection.sendall(content[middle:])
    else:
        connection.sendall(content[: len(content) // 2] if way == "cut" else content)


def send_and_end(connection: socket.socket, content: bytes, way: str) -> None:
    """Send a request and say that nothing follows. The server may close the connection before it has read all."""
    try:
        send(connection, content, way)
        connection.shutdown(socket.SHUT_WR)
    except OSError as error:
        if isinstance(error, TimeoutError):
            raise


def receive(connection: socket.socket) -> bytes:
    """Return everything that a server sends until it closes the connection."""
    pieces = []
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(1 << 16):
            pieces.append(piece)
    return b"".join(pieces)


def answer_body(answer: bytes) -> bytes:
    """Return the body of an answer."""
    return answer.partition(b"\r\n\r\n")[2]
