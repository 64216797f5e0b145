"""One file from the web: mirrors in turn, resumed where it stopped, checked before it gets its name."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from email.message import Message
from pathlib import Path
from typing import Any

from unbraid.data.files.catalogue import File
from unbraid.data.files.integrity import PIECE, Meter, examine, quiet, record_of, remember
from unbraid.errors import UserError
from unbraid.runtime.files import make_folder, write_atomic
from unbraid.runtime.locks import lock
from unbraid.version import __version__

TRIES = 4  # of one source in a row that bring less than a piece
PAUSE = 1.0  # seconds before a second try, twice as many before a third
MARGIN = 1 << 24  # bytes of the disk to leave free


class Problem(Exception):
    """Why a source did not give the file; the next one may."""


class Interruption(Problem):
    """A source stopped on the way; it can be asked for the rest."""


class Stale(Problem):
    """What was there did not fit what came; it is gone, and the source can be asked for the whole."""


@dataclass(frozen=True)
class Origin:
    """Where the bytes of a partial file came from, kept beside it: only the same content may be added to them."""

    url: str
    version: str | None
    total: int | None


def say(message: str) -> None:
    """A line for the user that is no result."""
    print(f"unbraid: {message}", file=sys.stderr, flush=True)


def fetch(
    file: File, folder: Path, report: Meter = quiet, timeout: float = 30.0, tell: Callable[[str], None] = say
) -> Path:
    """The file in `folder`, fetched if it is not there yet; the same call again goes on where the last one stopped.

    It gets its name only when it is whole: until then it is called `.part`. Its size and sha256 must be the published
    ones; where no sha256 is published, its own is written to `.sha256` beside it. A second process waits for the first.
    `report` is called as `runtime.progress.progress` is, `timeout` is the longest silence of a server in seconds.
    """
    target, problems = folder / file.name, []
    if target.exists():
        return target
    make_folder(target.parent)
    waiting = f"another process is fetching into {folder}: waiting for it."
    with lock(target.parent / ".lock", on_wait=lambda: tell(waiting)):
        for url in file.urls:
            try:
                if not target.exists():
                    _try_source(file, url, target, report, timeout)
                return target
            except Problem as problem:
                problems.append(f"{url}: {problem}")
    reasons = "; ".join(problems) or "no source is known"
    raise UserError(
        f"Could not fetch {file.name} ({reasons}). Give the same command again to go on, or download it by hand and "
        f"put it at {target}."
    )


def _try_source(file: File, url: str, target: Path, meter: Meter, timeout: float) -> None:
    """Ask one source until it has given the file, or a Problem."""
    part = target.with_name(f"{target.name}.part")
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise Problem("only http and https are fetched")
    failures = stale = 0
    while True:
        before = _length(part)
        try:
            resumed = _download(file, url, part, meter, timeout)
            return _finish(file, part, target, resumed, meter)
        except Stale:
            _discard(part)
            stale += 1
            if stale > 1:
                raise
        except Interruption:
            failures = failures + 1 if _length(part) - before < PIECE else 0
            if failures == TRIES:
                raise
            time.sleep(PAUSE * failures)


def _finish(file: File, part: Path, target: Path, resumed: bool, meter: Meter) -> None:
    """Give a complete partial file its name if it is the right one, else remove it."""
    try:
        finding = examine(file, part, None, meter)
    except UserError as refusal:
        _discard(part)
        wrong = str(refusal).replace(str(part), "what it gave", 1)
        raise (Stale if resumed else Problem)(wrong) from refusal
    try:
        with part.open("rb") as content:
            os.fsync(content.fileno())
        record_of(target).unlink(missing_ok=True)
        part.replace(target)
        _origin_of(part).unlink(missing_ok=True)
    except OSError as error:
        raise _unwritable(target, error) from error
    if finding.new and finding.sha256:
        remember(target, finding.sha256)


def _download(file: File, url: str, part: Path, meter: Meter, timeout: float) -> bool:
    """Bring a partial file to its full length, from where it stands if the source allows that; whether it did."""
    origin, offset = _origin(part), _length(part)
    if origin and offset and offset == origin.total and (origin.url == url or file.sha256):
        return True
    headers = {"User-Agent": f"unbraid/{__version__}", "Accept-Encoding": "identity"}
    if origin and offset and (file.sha256 or (origin.url == url and origin.version)):
        headers["Range"] = f"bytes={offset}-"
        if origin.url == url and origin.version:
            headers["If-Range"] = origin.version
    with _opened(urllib.request.Request(url, headers=headers), timeout) as response:
        offset, total = _offset_and_total(response, offset)
        _judge(file, response, total, origin if offset else None)
        _make_room(part, offset, total)
        if not offset:
            _discard(part)  # first, for old bytes must never stand beside a new origin
        if not (offset and origin and origin.url == url):
            write_atomic(_origin_of(part), json.dumps(asdict(Origin(url, _version(response.headers), total))).encode())
        with meter(f"{file.name} (MB)", total / 1e6) if total else quiet("", 0) as report:
            _receive(response, part, offset, file.size if total is None else total, report)
        return offset > 0


def _opened(request: urllib.request.Request, timeout: float) -> Any:
    try:
        return urllib.request.build_opener(_Redirects).open(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise Stale("it no longer has the bytes that are missing here") from error
        raise Problem(f"{error.code} {error.reason}") from error
    except (urllib.error.URLError, ValueError) as error:
        raise Problem(_reason(error)) from error
    except (OSError, http.client.HTTPException) as error:
        raise Interruption(_reason(error)) from error


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows to any host, by http and https only."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if urllib.parse.urlsplit(newurl).scheme not in ("http", "https"):
            fp.close()
            raise Problem(f"it leads to {newurl}, and only http and https are fetched")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _offset_and_total(response: Any, offset: int) -> tuple[int, int | None]:
    """Where the body begins in the file, and the length of the whole file where the source says it."""
    if response.status == http.HTTPStatus.PARTIAL_CONTENT:
        kind, _, place = response.headers.get("Content-Range", "").partition(" ")
        span, _, total = place.partition("/")
        if kind == "bytes" and span.partition("-")[0] == str(offset):
            return offset, int(total) if total.isdecimal() else None
        raise Stale(f"it gave the bytes {place or 'of no place'} when asked for those from {offset}")
    length = response.headers.get("Content-Length", "")
    return 0, int(length) if length.isdecimal() else None


def _judge(file: File, response: Any, total: int | None, origin: Origin | None) -> None:
    """Refuse a body that cannot be the file, before it is written."""
    if file.size is not None and total is not None and total != file.size:
        raise Problem(f"it says the file has {total:,} bytes, not {file.size:,}")
    if origin and origin.total is not None and total is not None and total != origin.total:
        raise Stale(f"the file now has {total:,} bytes, it had {origin.total:,}")
    if total is None and file.size is None and file.sha256 is None and not getattr(response, "chunked", False):
        raise Problem("it does not say how long the file is, so an incomplete one could not be told")


def _make_room(part: Path, offset: int, total: int | None) -> None:
    free = shutil.disk_usage(part.parent).free
    if total is not None and total - offset + MARGIN > free:
        raise UserError(
            f"{part.parent} must have {total - offset + MARGIN:,} bytes free for {part.stem}. It has {free:,}. Free "
            "some space, or choose another folder with --root or UNBRAID_DATA."
        )


def _receive(response: Any, part: Path, offset: int, total: int | None, report: Callable[[float], None]) -> None:
    """Add the body to what is there."""
    with part.open("ab", buffering=0) as file:
        while True:
            try:
                piece = response.read1(PIECE)
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise Interruption(f"{_reason(error)} after {offset:,} bytes") from error
            if not piece:
                break
            with _writing(part):
                offset += _write(file, piece)
            report(offset / 1e6)
    if total is not None and offset < total:
        raise Interruption(f"the connection was cut after {offset:,} of {total:,} bytes")
    if total is not None and offset > total:
        _discard(part)
        raise Problem(f"it gave {offset:,} bytes, not the {total:,} it said")


def _write(file: Any, piece: bytes) -> int:
    """Write all of it: a disk that fills up takes a part first and complains at the next."""
    rest = memoryview(piece)
    while rest:
        rest = rest[file.write(rest) :]
    return len(piece)


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> UserError:
    return UserError(
        f"Could not write {path}: {error.strerror}. Free some space or choose another folder with --root or "
        "UNBRAID_DATA; what has come so far is kept in a .part and gone on with."
    )


def _reason(error: BaseException) -> str:
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    return "no answer in time" if isinstance(cause, TimeoutError) else f"{type(cause).__name__}: {cause}".strip(": ")


def _version(headers: Message) -> str | None:
    """What tells this content of the address from any other: a strong ETag, else the date of change."""
    tag = headers.get("ETag", "")
    return tag if tag.startswith('"') else headers.get("Last-Modified")


def _origin_of(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _origin(part: Path) -> Origin | None:
    try:
        return Origin(**json.loads(_origin_of(part).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def _length(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _discard(part: Path) -> None:
    for path in (part, _origin_of(part)):
        path.unlink(missing_ok=True)
