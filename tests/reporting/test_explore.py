"""The server of `explore` over real sockets: correct answers, and no answers for other hosts and pages."""

from __future__ import annotations

import contextlib
import copy
import http.client
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
import torch

import unbraid as ub
from support.meshes import spheres, untrained_run
from support.server import LATENTS, decode_path, decoded_example
from support.training import quick_train
from unbraid.errors import UserError
from unbraid.pictures.examples import decoded_images, mesh_images
from unbraid.reporting import http_listener
from unbraid.reporting.content import picture_shape
from unbraid.reporting.server import MAX_BODY_BYTES, Server, serve

PAGE = "<!doctype html><title>a page</title>ä".encode()
TOKEN = "a token"
HOME = "/?token=a%20token"


@pytest.fixture(scope="module")
def runs() -> list[ub.Run]:
    return quick_train(seeds=[0, 1])


@pytest.fixture(scope="module")
def server(runs: list[ub.Run]) -> Iterator[Server]:
    with serve(runs, PAGE, token=TOKEN) as running:
        yield running


def request(server: Server, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any, bytes]:
    """Status, headers and body of one request; an underscore in a header's name stands for a dash."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        connection.request(method, path, body, {key.replace("_", "-"): value for key, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def send_raw(server: Server, text: bytes) -> bytes:
    """Send raw bytes and return the whole answer."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as line:
        line.sendall(text)
        line.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: line.recv(1 << 16), b""))


def test_the_page_is_sent_unchanged(server: Server) -> None:
    status, headers, body = request(server, "GET", HOME)
    assert (status, body) == (200, PAGE)
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    status, headers, body = request(server, "HEAD", f"{HOME}&anything")
    assert (status, body, headers["Content-Length"]) == (200, b"", str(len(PAGE)))


@pytest.mark.parametrize("path", ["/", "/?token=", "/?token=another", "/?token=a%20toke", "/?token=a%20token&token=b"])
def test_the_page_needs_the_token(path: str, server: Server) -> None:
    for method in ("GET", "HEAD"):
        status, _, body = request(server, method, path)
        assert status == 403
        assert PAGE not in body


def test_the_number_of_connections_is_limited(runs: list[ub.Run], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_listener, "MAX_CONNECTIONS", 5)
    with serve(runs, PAGE, token=TOKEN) as server, contextlib.ExitStack() as connections:
        before = set(threading.enumerate())  # threads of earlier tests may end meanwhile
        address = ("127.0.0.1", server.port)
        lines = [connections.enter_context(socket.create_connection(address, timeout=20)) for _ in range(12)]
        deadline = time.monotonic() + 20
        while len(refused := select.select(lines, [], [], 0.5)[0]) < 7 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(refused) == 7
        assert all(line.recv(1 << 16).startswith(b"HTTP/1.1 503 ") for line in refused)
        assert len(set(threading.enumerate()) - before) == 5
        for line in lines:
            line.close()
        deadline = time.monotonic() + 20
        while (status := request(server, "GET", HOME)[0]) == 503 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert status == 200


def test_a_connection_without_a_thread_is_refused(
    runs: list[ub.Run], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with serve(runs, PAGE, token=TOKEN) as server:
        with monkeypatch.context() as changed:
            changed.setattr(http_listener.ThreadingHTTPServer, "process_request", fail)
            assert request(server, "GET", HOME)[0] == 503
        assert request(server, "GET", HOME)[0] == 200
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("method", "path"), [("GET", "/"), ("GET", "/nothing"), ("PUT", "/"), ("POST", "/decode")])
def test_every_answer_has_the_security_headers(method: str, path: str, server: Server) -> None:
    _, headers, _ = request(server, method, path)
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert "connect-src 'self'" in headers["Content-Security-Policy"]
    assert headers["Cache-Control"] == "no-store"
    assert "Access-Control-Allow-Origin" not in headers
    assert "Python" not in headers["Server"]


def test_each_run_decodes(server: Server, runs: list[ub.Run]) -> None:
    assert len(runs) == 2
    for run in runs:
        status, headers, body = request(server, "POST", decode_path(run.id), LATENTS.tobytes())
        assert (status, headers["Content-Type"]) == (200, "application/octet-stream")
        assert np.allclose(np.frombuffer(body, "<f4"), decoded_example(run, LATENTS), atol=1e-6)


def test_one_connection_serves_many_requests(server: Server, runs: list[ub.Run]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    for k in range(5):
        connection.request("POST", decode_path(runs[0].id), (k * LATENTS).tobytes())
        line = connection.sock
        assert np.allclose(
            np.frombuffer(connection.getresponse().read(), "<f4"), decoded_example(runs[0], k * LATENTS), atol=1e-6
        )
        assert connection.sock is line
    connection.close()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", b"12 bytes"),
        (LATENTS.tobytes()[:-1], b"12 bytes"),
        (2 * LATENTS.tobytes(), b"12 bytes"),
        (struct.pack("<3f", 0, float("nan"), 0), b"finite"),
        (struct.pack("<3f", 0, 0, float("-inf")), b"finite"),
    ],
    ids=["nothing", "short", "long", "nan", "infinite"],
)
def test_latents_must_be_those_of_the_run(body: bytes, reason: bytes, server: Server, runs: list[ub.Run]) -> None:
    status, _, answer = request(server, "POST", decode_path(runs[0].id), body)
    assert status == 400
    assert reason in answer


def test_a_run_must_be_on_the_page(server: Server) -> None:
    assert request(server, "POST", decode_path("../../etc/passwd"), LATENTS.tobytes())[0] == 404
    assert request(server, "POST", "/decode?token=a%20token", LATENTS.tobytes())[0] == 404


@pytest.mark.parametrize("query", ["", "&token=", "&token=other", "&token=a%20token%00", "&token=%ff"])
def test_decoding_needs_the_token(query: str, server: Server, runs: list[ub.Run]) -> None:
    status, _, body = request(server, "POST", f"/decode?run={runs[0].id}{query}", LATENTS.tobytes())
    assert status == 403
    assert TOKEN.encode() not in body


def test_a_token_is_made_by_default(runs: list[ub.Run]) -> None:
    with serve(runs, PAGE) as one, serve(runs, PAGE) as other:
        assert len(one.token) >= 32
        assert one.token != other.token
        assert request(one, "POST", decode_path(runs[0].id, ""), LATENTS.tobytes())[0] == 403
        assert request(one, "POST", decode_path(runs[0].id, one.token.decode()), LATENTS.tobytes())[0] == 200


def test_too_many_parameters_are_rejected(server: Server) -> None:
    assert request(server, "POST", "/decode?" + "&a=1" * 50, LATENTS.tobytes())[0] == 400


@pytest.mark.parametrize("size", [MAX_BODY_BYTES + 1, 1_000_000])
def test_large_bodies_are_rejected(size: int, server: Server, runs: list[ub.Run]) -> None:
    status, headers, _ = request(server, "POST", decode_path(runs[0].id), bytes(size))
    assert (status, headers["Connection"]) == (413, "close")


def test_a_body_needs_a_content_length(server: Server, runs: list[ub.Run]) -> None:
    head = f"POST {decode_path(runs[0].id)} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n".encode()
    twice, chunked = b"Content-Length: 12\r\n" * 2, b"Transfer-Encoding: chunked\r\nContent-Length: 12\r\n"
    odd = [b"Content-Length: -1\r\n", b"Content-Length: x\r\n", "Content-Length: ١٢\r\n".encode()]
    for length in (b"", *odd, twice, chunked):
        assert send_raw(server, head + length + b"\r\n" + LATENTS.tobytes()).startswith(b"HTTP/1.1 411 "), length
    assert send_raw(server, head + b"Content-Length: 999999999999\r\n\r\n").startswith(b"HTTP/1.1 413 ")
    assert send_raw(server, head + b"Content-Length: 12\r\n\r\n" + LATENTS.tobytes()[:5]).startswith(b"HTTP/1.1 400 ")


def test_an_unread_body_is_not_taken_for_a_request(server: Server) -> None:
    head = f"Host: 127.0.0.1:{server.port}\r\n".encode()
    hidden = b"GET / HTTP/1.1\r\n" + head + b"\r\n"
    length = f"Content-Length: {len(hidden)}\r\n\r\n".encode()
    for first in (b"GET / HTTP/1.1\r\n", b"POST /nothing HTTP/1.1\r\n"):
        assert send_raw(server, first + head + length + hidden).count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize(
    "path",
    ["/favicon.ico", "/decode/", "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/..", "/index.html",
     "*", "/\\..\\secret", "/%00"],
)  # fmt: skip
def test_other_paths_are_not_found(path: str, server: Server) -> None:
    for method in ("GET", "POST"):
        assert request(server, method, path)[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "NONSENSE"])
def test_the_page_allows_only_get(method: str, server: Server) -> None:
    status, headers, _ = request(server, method, "/")
    assert (status, headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "OPTIONS"])
def test_decoding_allows_only_post(method: str, server: Server, runs: list[ub.Run]) -> None:
    status, headers, _ = request(server, method, decode_path(runs[0].id))
    assert (status, headers["Allow"]) == (405, "POST")


def test_other_host_names_are_rejected(server: Server, runs: list[ub.Run]) -> None:
    own = [f"127.0.0.1:{server.port}", f"localhost:{server.port}", f"LocalHost:{server.port}"]
    other = ["evil.example", f"evil.example:{server.port}", "127.0.0.1", "127.0.0.1:1", f"127.0.0.1.evil:{server.port}",
             f"[::1]:{server.port}", ""]  # fmt: skip
    for host in own:
        assert request(server, "GET", HOME, Host=host)[0] == 200, host
    for host in other:
        assert request(server, "GET", HOME, Host=host)[0] == 403, host
        assert request(server, "POST", decode_path(runs[0].id), LATENTS.tobytes(), Host=host)[0] == 403, host
    named = f"Host: {own[0]}\r\n".encode()
    assert send_raw(server, b"GET / HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 403 ")
    absolute = f"GET http://evil.example/ HTTP/1.1\r\nHost: {own[0]}\r\n\r\n".encode()
    assert send_raw(server, absolute).startswith(b"HTTP/1.1 404 ")
    assert send_raw(server, b"GET / HTTP/1.1\r\n" + 2 * named + b"\r\n").startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize("end", ["", "Origin: http://evil", "Origin: http://evil.example\r\n"])
def test_requests_that_are_cut_off_are_rejected(server: Server, end: str) -> None:
    """Headers that are missing could have forbidden the answer."""
    head = f"GET {HOME} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
    assert send_raw(server, f"{head}\r\n".encode()).startswith(b"HTTP/1.1 200 ")
    assert send_raw(server, f"{head}{end}".encode()).startswith(b"HTTP/1.1 400 ")


def test_other_origins_are_rejected(server: Server, runs: list[ub.Run]) -> None:
    own = f"http://127.0.0.1:{server.port}"
    assert request(server, "POST", decode_path(runs[0].id), LATENTS.tobytes(), Origin=own)[0] == 200
    for origin in (
        "null",
        "http://evil.example",
        f"https://127.0.0.1:{server.port}",
        "http://127.0.0.1:1",
        own + ".evil",
    ):
        assert request(server, "POST", decode_path(runs[0].id), LATENTS.tobytes(), Origin=origin)[0] == 403, origin
    assert request(server, "GET", HOME, Origin="http://evil.example")[0] == 403


def test_only_this_machine_can_connect(server: Server) -> None:
    assert server.http.socket.getsockname()[0] == "127.0.0.1"
    assert server.url == f"http://127.0.0.1:{server.port}{HOME}"


def test_fifty_clients_at_once_receive_their_own_answers(server: Server, runs: list[ub.Run]) -> None:
    start, failed = threading.Barrier(50), []

    def client(k: int) -> None:
        latents = np.random.default_rng(k).normal(size=(8, 3)).astype("<f4")
        run = runs[k % 2]
        start.wait()
        for z in latents:
            status, _, body = request(server, "POST", decode_path(run.id), z.tobytes())
            if status != 200 or not np.allclose(np.frombuffer(body, "<f4"), decoded_example(run, z), atol=1e-6):
                failed.append((k, status))

    threads = [threading.Thread(target=client, args=(k,)) for k in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    assert failed == []


def test_meshes_are_served_as_pictures() -> None:
    data = spheres()
    run = untrained_run(data)
    with serve([run], PAGE, token=TOKEN, draw=lambda _, example: decoded_images(example, data)[0]) as server:
        status, _, body = request(server, "POST", decode_path(run.id), np.zeros(4, "<f4").tobytes())
    (picture,) = mesh_images(run.decode(torch.zeros(1, 4)), data)
    assert status == 200
    assert list(picture.shape) == picture_shape(data)
    assert np.array_equal(np.frombuffer(body, "<f4"), picture.numpy().ravel())


def test_a_failing_decoder_gives_an_error_status(runs: list[ub.Run]) -> None:
    headless = copy.deepcopy(runs[0])
    headless.net.decoder = None
    with serve([headless, runs[1]], PAGE, token=TOKEN) as server:
        status, _, body = request(server, "POST", decode_path(headless.id), LATENTS.tobytes())
        assert status == 500
        assert b"no decoder" in body
        assert request(server, "POST", decode_path(runs[1].id), LATENTS.tobytes())[0] == 200


def test_nothing_is_printed(runs: list[ub.Run], capfd: pytest.CaptureFixture[str]) -> None:
    with serve(runs, PAGE, token=TOKEN) as server:
        request(server, "GET", HOME)
        request(server, "GET", "/nothing")
        for text in (
            b"",
            b"nonsense\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            b"\x16\x03\x01\x02\x00",
            b"GET /" + b"a" * 70_000,
        ):
            send_raw(server, text)
        for text in (b"GET /", b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nab"):
            line = socket.create_connection(("127.0.0.1", server.port))
            line.sendall(text)
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # gone without goodbye
            line.close()
        assert request(server, "GET", HOME)[0] == 200
    assert capfd.readouterr() == ("", "")


def test_closing_frees_the_port_and_closes_connections(runs: list[ub.Run]) -> None:
    server = serve(runs, PAGE, token=TOKEN)
    line = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    line.sendall(f"GET {HOME} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
    assert line.recv(20).startswith(b"HTTP/1.1 200 ")
    server.close()
    server.close()
    server.wait()
    while line.recv(1 << 16):
        pass
    line.close()
    with pytest.raises(ConnectionRefusedError):
        request(server, "GET", HOME)
    with serve(runs, PAGE, server.port) as again:
        assert request(again, "GET", urlsplit(again.url)._replace(scheme="", netloc="").geturl())[0] == 200


def test_a_used_port_raises_before_the_page_is_made(server: Server, runs: list[ub.Run]) -> None:
    with pytest.raises(UserError, match=f"Port {server.port} of 127.0.0.1 is in use by another program"):
        serve(runs, lambda: pytest.fail("the page must not be made"), server.port)
    for port in (-1, 65_536):
        with pytest.raises(ValueError, match=r"between 0 \(any free port\) and 65535"):
            serve(runs, PAGE, port)


def test_a_page_that_fails_leaves_the_port_free(runs: list[ub.Run]) -> None:
    def fails() -> bytes:
        raise UserError("no page")

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(UserError, match="no page"):
        serve(runs, fails, port)
    serve(runs, PAGE, port).close()
