"""Pictures inside HTML."""

from __future__ import annotations

import base64
import html


def data_url(content: bytes, kind: str = "image/png") -> str:
    """Encode bytes as a data URL.

    >>> data_url(b"abc")
    'data:image/png;base64,YWJj'
    """
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def image_tag(png: bytes, alt: str) -> str:
    """Return an HTML element that contains a PNG file. `alt` describes the picture in words."""
    return f'<img alt="{html.escape(alt, quote=True)}" src="{data_url(png)}">'
