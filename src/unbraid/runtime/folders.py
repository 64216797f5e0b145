"""Writing a folder as a whole, so that it is either complete or absent."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from unbraid.errors import UserError
from unbraid.runtime.files import TEMPORARY_NAME, make_folder
from unbraid.runtime.locks import try_lock


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Write a new folder as a whole.

    The content is written to a temporary folder beside `path`. When the context ends, the temporary folder is renamed
    to `path`. If the context ends with an error, the temporary folder is removed. If the process is killed, the next
    call with the same `path` removes it.

    Args:
        path: The folder to write. It must be empty or not exist.

    Yields:
        The temporary folder, which is empty.

    Raises:
        UserError: If `path` is not empty, if another process writes it, or if it cannot be written.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        found = "a folder with files" if target.is_dir() else "a file"
        raise UserError(f"{path} must be an empty or new folder. Got {found} instead. Choose another folder.")
    temporary = target.with_name(f".{target.name[:TEMPORARY_NAME]}.part")
    make_folder(temporary)
    with try_lock(temporary / ".lock") as acquired:
        if not acquired:
            raise UserError(f"Another process is writing {path}. Wait until it has finished, or choose another folder.")
        content = temporary / "content"
        shutil.rmtree(content, ignore_errors=True)
        try:
            content.mkdir()
            yield content
            content.replace(target)
            shutil.rmtree(temporary, ignore_errors=True)
        except BaseException as error:
            shutil.rmtree(temporary, ignore_errors=True)
            if isinstance(error, OSError):
                raise UserError(
                    f"Could not write {path}: {error.strerror}. Nothing was written. Free some space or choose "
                    "another folder, then repeat the command."
                ) from error
            raise
