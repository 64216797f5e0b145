"""Markdown to HTML for the documentation site: tables, equations, coloured code, anchors, links between pages."""

from __future__ import annotations

import html
import posixpath
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from site_math import svg

INLINE = re.compile(r"\$(?=\S)([^$]+?)(?<=\S)\$")
COMMAND = re.compile(r"(unbraid|make|pip|python|ray|npm) ")
RELATIVE = re.compile(r"^(?![a-z]+:|#|//)")


@dataclass
class Page:
    """A page in HTML: its title, its headings (level, anchor, words), and its plain text by anchor, for the search."""

    title: str
    body: str
    headings: list[tuple[int, str, str]] = field(default_factory=list)
    texts: list[tuple[str, str, str]] = field(default_factory=list)


def inline_math(state: StateInline, silent: bool) -> bool:
    """`$...$` without space inside the marks."""
    if state.src[state.pos] != "$" or not (found := INLINE.match(state.src, state.pos)):
        return False
    if not silent:
        state.push("math", "", 0).content = found[1]
    state.pos = found.end()
    return True


def block_math(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Lines between `$$` and `$$`."""
    lines = [state.getLines(i, i + 1, state.blkIndent, False).strip() for i in range(start, end)]
    if not lines or lines[0] != "$$" or "$$" not in lines[1:]:
        return False
    if not silent:
        close = lines.index("$$", 1)
        token = state.push("math_block", "", 0)
        token.content, token.map = "\n".join(lines[1:close]), [start, start + close + 1]
        state.line = start + close + 1
    return True


def coloured(code: str, language: str, _: str) -> str:
    """A block of code with classes for its words; commands wrap, and only their comments have a colour."""
    if not language and COMMAND.match(code):
        body = re.sub(r"(?m)(^|\s)(#.*)$", r'\1<span class="c1">\2</span>', html.escape(code, quote=False))
        body = re.sub(r"(?<=\s)(--[\w-]+(?: [^\s#-]\S*)?)", r'<span class="flag">\1</span>', body)
        return f'<pre class="code commands"><code>{body}</code></pre>\n'
    name = language or ("pycon" if code.startswith(">>> ") else "text")
    body = highlight(code, get_lexer_by_name(name), HtmlFormatter(nowrap=True))
    return f'<pre class="code" tabindex="0"><code>{body}</code></pre>\n'


def parser() -> MarkdownIt:
    """CommonMark with tables and equations; raw HTML is text, but for line breaks and comments."""
    made = MarkdownIt("commonmark", {"highlight": coloured}).enable("table")
    made.inline.ruler.before("escape", "math", inline_math)
    made.block.ruler.before("paragraph", "math_block", block_math, {"alt": ["paragraph", "list", "blockquote"]})
    made.add_render_rule("math", lambda _, tokens, i, *__: svg(tokens[i].content))
    made.add_render_rule(
        "math_block", lambda _, tokens, i, *__: f'<div class="equation">{svg(tokens[i].content, True)}</div>\n'
    )
    made.add_render_rule("table_open", lambda _, tokens, i, *__: table(tokens[i:]))
    made.add_render_rule("table_close", lambda *_: "</table></div>\n")
    return made


def table(tokens: Sequence[Token]) -> str:
    """The beginning of a table, which scrolls by itself; one of many columns never shrinks to the width of a phone."""
    kinds = [token.type for token in tokens]
    columns = kinds[: kinds.index("thead_close")].count("th_open")
    width = " wide many" if columns > 6 else " wide" if columns > 4 else ""
    return f'<div class="table{width}" tabindex="0"><table>\n'


def words(tokens: Sequence[Token] | None) -> str:
    """The text of inline tokens, without marks."""
    return "".join(t.content if t.type != "softbreak" else " " for t in tokens or [] if t.type != "image")


def slug(text: str, taken: set[str]) -> str:
    """An anchor that no other heading of the page has."""
    base = re.sub(r"[^a-z0-9_]+", "-", text.lower()).strip("-") or "section"
    name, i = base, 1
    while name in taken:
        i, name = i + 1, f"{base}-{i + 1}"
    taken.add(name)
    return name


def headed(tokens: list[Token], page: Page) -> None:
    """Give headings their anchors, and note them and the text below each."""
    taken: set[str] = set()
    anchor, title = "", ""
    for i, token in enumerate(tokens):
        if token.type == "heading_open":
            title = words(tokens[i + 1].children)
            level, anchor = int(token.tag[1]), slug(title, taken)
            token.attrSet("id", anchor)
            page.headings.append((level, anchor, title))
            page.texts.append((anchor, title, ""))
            if level > 1:
                link = Token(
                    "html_inline",
                    "",
                    0,
                    content=f' <a class="anchor" href="#{anchor}" aria-label="link to this section">#</a>',
                )
                tokens[i + 1].children = [*(tokens[i + 1].children or []), link]
        elif token.type in ("inline", "fence", "code_block") and page.texts and tokens[i - 1].type != "heading_open":
            text = words(token.children) if token.type == "inline" else token.content
            page.texts[-1] = (anchor, title, f"{page.texts[-1][2]} {text}".strip())


def linked(tokens: Sequence[Token], link: Callable[[str], str]) -> None:
    """Rewrite what links and images refer to."""
    for token in tokens:
        for child in token.children or []:
            for name in ("href", "src"):
                target = child.attrGet(name)
                if isinstance(target, str) and RELATIVE.match(target):
                    child.attrSet(name, link(target))
            if child.type == "image":
                child.attrSet("loading", "lazy")


def relative(target: str, source: str) -> str:
    """A place in the site as seen from a page."""
    return posixpath.relpath(target, posixpath.dirname(source) or ".")


def render(text: str, link: Callable[[str], str] = lambda target: target) -> Page:
    """A page from its Markdown; `link` says where a relative address leads in the site."""
    made, env = parser(), dict[str, Any]()
    tokens = [token for token in made.parse(text, env) if not comment(token)]
    page = Page("", "")
    headed(tokens, page)
    linked(tokens, link)
    page.title = next((title for level, _, title in page.headings if level == 1), "")
    page.body = made.renderer.render(tokens, made.options, env)
    return page


def comment(token: Token) -> bool:
    """Whether a block is a mark of the generated tables."""
    return token.type == "html_block" and token.content.lstrip().startswith("<!--")
