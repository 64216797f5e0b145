"""Download one file.

Several addresses are tried in order, and interrupted downloads are resumed. A file gets its final name only after it
has been checked.
"""

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
from unbraid.data.files.integrity import (
    CHUNK_BYTES,
    ProgressDisplay,
    check_file,
    sha256_record_path,
    write_sha256_record,
)
from unbraid.errors import UserError
from unbraid.runtime.files import make_folder, write_atomic
from unbraid.runtime.locks import lock
from unbraid.runtime.progress import no_progress
from unbraid.version import __version__

MAX_FAILURES = 4  # maximum number of consecutive attempts at one address that receive fewer than CHUNK_BYTES bytes
RETRY_SECONDS = 1.0  # pause after the first failed attempt; the n-th pause is n times as long
MIN_FREE_BYTES = 1 << 24  # disk space to leave free


class DownloadError(Exception):
    """An address does not provide the file. The next address is tried."""


class InterruptedDownload(DownloadError):
    """A download stopped before the end. The rest can be requested from the same address."""


class StalePartialFile(DownloadError):
    """The partial file does not match the content at the address. It is deleted, and the download starts again."""


@dataclass(frozen=True)
class Origin:
    """The origin of the bytes of a partial file. It is stored in a file beside the partial file.

    More bytes may be appended to a partial file only if they belong to the same content.

    Attributes:
        url: The address.
        version: Identifies the content at the address; see `_content_version`. None if the server does not state it.
        total: Length of the whole file in bytes. None if the server does not state it.
    """

    url: str
    version: str | None
    total: int | None


def print_status(message: str) -> None:
    """Print a status line to stderr."""
    print(f"unbraid: {message}", file=sys.stderr, flush=True)


def download_file(
    file: File,
    folder: Path,
    display: ProgressDisplay = no_progress,
    timeout: float = 30.0,
) -> Path:
    """Download a file to `folder`, unless it is already there, and return its path.

    An interrupted download is kept as a .part file, and the next call resumes it. The file gets its final name only
    when it is complete and its size and SHA-256 equal the published ones. If no SHA-256 is published, the SHA-256 of
    the download is written to a .sha256 file beside it. If two processes download the same file, the second one waits
    for the first.

    Args:
        file: File to download.
        folder: Folder of the dataset.
        display: Shows progress.
        timeout: Maximum time in seconds during which a server may send nothing.

    Returns:
        The path of the complete file.

    Raises:
        UserError: If no address provides the file, or if the folder cannot be written.
    """
    target, problems = folder / file.name, []
    if target.exists():
        return target
    make_folder(target.parent)
    waiting = f"another process is downloading to {folder}. Waiting for it to finish."
    with lock(target.parent / ".lock", on_wait=lambda: print_status(waiting)):
        for url in file.urls:
            try:
                if not target.exists():
                    _download_with_retries(file, url, target, display, timeout)
                return target
            except DownloadError as problem:
                problems.append(f"{url}: {problem}")
    reasons = "; ".join(problems) or "no address is known"
    raise UserError(
        f"Could not download {file.name} ({reasons}). Run the same command again to resume, or download the file "
        f"yourself and put it at {target}."
    )


def _download_with_retries(file: File, url: str, target: Path, display: ProgressDisplay, timeout: float) -> None:
    """Download the file from one address. Retry after interruptions, and raise a DownloadError if all attempts fail."""
    part = target.with_name(f"{target.name}.part")
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise DownloadError("only http and https are supported")
    failures = stale_files = 0
    while True:
        before = _file_length(part)
        try:
            resumed = _download(file, url, part, display, timeout)
            return _finish_download(file, part, target, resumed, display)
        except StalePartialFile:
            _delete_partial_file(part)
            stale_files += 1
            if stale_files > 1:
                raise
        except InterruptedDownload:
            failures = failures + 1 if _file_length(part) - before < CHUNK_BYTES else 0
            if failures == MAX_FAILURES:
                raise
            time.sleep(RETRY_SECONDS * failures)


def _finish_download(file: File, part: Path, target: Path, resumed: bool, display: ProgressDisplay) -> None:
    """Check a completed .part file. Give it its final name if it is correct, and delete it otherwise."""
    try:
        result = check_file(file, part, None, display)
    except UserError as error:
        _delete_partial_file(part)
        reason = str(error).replace(str(part), "the downloaded file", 1)
        raise (StalePartialFile if resumed else DownloadError)(reason) from error
    try:
        with part.open("rb") as content:
            os.fsync(content.fileno())
        sha256_record_path(target).unlink(missing_ok=True)
        part.replace(target)
        _origin_path(part).unlink(missing_ok=True)
    except OSError as error:
        raise _write_error(target, error) from error
    if result.new and result.sha256:
        write_sha256_record(target, result.sha256)


def _download(file: File, url: str, part: Path, display: ProgressDisplay, timeout: float) -> bool:
    """Download the missing bytes of a partial file.

    Return True if an earlier download was resumed, and False if the whole file was downloaded.
    """
    origin, offset = _read_origin(part), _file_length(part)
    if origin and offset and offset == origin.total and (origin.url == url or file.sha256):
        return True
    headers = {"User-Agent": f"unbraid/{__version__}", "Accept-Encoding": "identity"}
    if origin and offset and (file.sha256 or (origin.url == url and origin.version)):
        headers["Range"] = f"bytes={offset}-"
        if origin.url == url and origin.version:
            headers["If-Range"] = origin.version
    with _open_url(urllib.request.Request(url, headers=headers), timeout) as response:
        offset, total = _offset_and_total(response, offset)
        _check_response(file, response, total, origin if offset else None)
        _check_free_space(part, offset, total)
        if not offset:
            # Delete the old bytes before the new origin is written, because they come from a different origin.
            _delete_partial_file(part)
        if not (offset and origin and origin.url == url):
            new_origin = Origin(url, _content_version(response.headers), total)
            write_atomic(_origin_path(part), json.dumps(asdict(new_origin)).encode())
        with display(f"{file.name} (MB)", total / 1e6) if total else no_progress("", 0) as show_progress:
            _receive_body(response, part, offset, file.size if total is None else total, show_progress)
        return offset > 0


def _open_url(request: urllib.request.Request, timeout: float) -> Any:
    try:
        return urllib.request.build_opener(_Redirects).open(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise StalePartialFile("the server no longer has the missing bytes") from error
        raise DownloadError(f"{error.code} {error.reason}") from error
    except (urllib.error.URLError, ValueError) as error:
        raise DownloadError(_describe_error(error)) from error
    except (OSError, http.client.HTTPException) as error:
        raise InterruptedDownload(_describe_error(error)) from error


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Redirect handler that follows redirects to any host, but only over http and https."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if urllib.parse.urlsplit(newurl).scheme not in ("http", "https"):
            fp.close()
            raise DownloadError(f"the server redirects to {newurl}, but only http and https are supported")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _offset_and_total(response: Any, offset: int) -> tuple[int, int | None]:
    """Return the position in the file at which the response body starts, and the length of the whole file.

    The length is None if the server does not state it.
    """
    if response.status == http.HTTPStatus.PARTIAL_CONTENT:
        kind, _, content_range = response.headers.get("Content-Range", "").partition(" ")
        span, _, total = content_range.partition("/")
        if kind == "bytes" and span.partition("-")[0] == str(offset):
            return offset, int(total) if total.isdecimal() else None
        raise StalePartialFile(
            f"the server sent {content_range or 'no Content-Range'} when asked for the bytes from {offset}"
        )
    length = response.headers.get("Content-Length", "")
    return 0, int(length) if length.isdecimal() else None


def _check_response(file: File, response: Any, total: int | None, origin: Origin | None) -> None:
    """Raise an error if the headers of the response show that it does not contain the file.

    This check is made before anything is written.
    """
    if file.size is not None and total is not None and total != file.size:
        raise DownloadError(f"the server says that the file has {total:,} bytes instead of {file.size:,}")
    if origin and origin.total is not None and total is not None and total != origin.total:
        raise StalePartialFile(f"the file now has {total:,} bytes, but had {origin.total:,} before")
    if total is None and file.size is None and file.sha256 is None and not getattr(response, "chunked", False):
        raise DownloadError(
            "the server does not state the length of the file, so an incomplete file would not be detected"
        )


def _check_free_space(part: Path, offset: int, total: int | None) -> None:
    free = shutil.disk_usage(part.parent).free
    if total is not None and total - offset + MIN_FREE_BYTES > free:
        raise UserError(
            f"{part.parent} must have {total - offset + MIN_FREE_BYTES:,} bytes free for {part.stem}. Got {free:,} "
            "instead. Free some space, or choose a different folder with --root or UNBRAID_DATA."
        )


def _receive_body(
    response: Any, part: Path, offset: int, total: int | None, show_progress: Callable[[float], None]
) -> None:
    """Append the response body to the partial file."""
    with part.open("ab", buffering=0) as file:
        while True:
            try:
                piece = response.read1(CHUNK_BYTES)
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise InterruptedDownload(f"{_describe_error(error)} after {offset:,} bytes") from error
            if not piece:
                break
            if total is not None and offset + len(piece) > total:
                _delete_partial_file(part)
                raise DownloadError(f"the server sent more than the {total:,} bytes that the file has")
            if total is None:
                _check_free_space(part, 0, len(piece))
            with _convert_write_errors(part):
                offset += _write_all(file, piece)
            show_progress(offset / 1e6)
    if total is not None and offset < total:
        raise InterruptedDownload(f"the connection was closed after {offset:,} of {total:,} bytes")


def _write_all(file: Any, piece: bytes) -> int:
    """Write all bytes, and return how many there are.

    An unbuffered file may write only some of them at a time. When the disk is full, the next write raises an error.
    """
    rest = memoryview(piece)
    while rest:
        rest = rest[file.write(rest) :]
    return len(piece)


@contextlib.contextmanager
def _convert_write_errors(path: Path) -> Iterator[None]:
    """Turn an OSError into a UserError about `path`."""
    try:
        yield
    except OSError as error:
        raise _write_error(path, error) from error


def _write_error(path: Path, error: OSError) -> UserError:
    return UserError(
        f"Could not write {path}: {error.strerror}. Free some space, or choose a different folder with --root or "
        "UNBRAID_DATA. The downloaded bytes are kept in a .part file, and the next download resumes from it."
    )


def _describe_error(error: BaseException) -> str:
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    return "no response in time" if isinstance(cause, TimeoutError) else f"{type(cause).__name__}: {cause}".strip(": ")


def _content_version(headers: Message) -> str | None:
    """Return a strong ETag or else the modification date. Either one identifies the current content of an address."""
    tag = headers.get("ETag", "")
    return tag if tag.startswith('"') else headers.get("Last-Modified")


def _origin_path(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _read_origin(part: Path) -> Origin | None:
    try:
        return Origin(**json.loads(_origin_path(part).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def _file_length(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _delete_partial_file(part: Path) -> None:
    for path in (part, _origin_path(part)):
        path.unlink(missing_ok=True)
