"""Text that is safe to print on a terminal."""

from __future__ import annotations

import re
from typing import Any, TextIO

# Control characters except the tab and the line feed, and characters that change the direction of text.
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    r"""Return a text with control characters replaced by escapes such as ``\x1b``.

    Names in files and folders may come from anyone. If control characters in a name were printed unchanged, they could
    move the cursor, change the title of a window, or make one text look like another.

    >>> printable("a\x1b[31mb\u202ec\td")
    'a\\x1b[31mb\\u202ec\td'
    """
    return CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class PrintableStream:
    """Writes text to a stream, with control characters replaced. All other attributes are those of the stream."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write a text and return its length."""
        self.stream.write(printable(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the stream."""
        return getattr(self.stream, name)
