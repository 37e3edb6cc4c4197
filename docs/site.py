"""Hooks of MkDocs, which mkdocs.yml names (`make docs`): the pages at the top of the repository belong to the site,
links between all pages lead on in it, and nothing is loaded from elsewhere.
"""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import normpath, relpath
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
TOP: Final = ("README.md", "ARCHITECTURE.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md")
"""Pages at the top of the repository; in the site they are below `project/`."""
_LINK: Final = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
_ITEM: Final = re.compile(r" *(?:[-*+]|\d+[.)]) +")
_CODE: Final = re.compile(r"^( *)```.*?^\1```$|`[^`\n]*`", re.DOTALL | re.MULTILINE)
_LOADS: Final = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?https?:|<link\b[^>]*\brel=[\"']?(?:stylesheet|preconnect|preload)"
    r"[^>]*\bhref=[\"']?https?:|@import[^;]*https?:|url\([\"']?https?:"
)
_CDN: Final = re.compile(r"https://(?:unpkg\.com|cdn\.jsdelivr\.net|fonts\.(?:googleapis|gstatic)\.com)[^\"'`\s]*")
"""Addresses from which the theme's program would load what draws diagrams (they stay texts here), and what old browsers
lack."""


def slug(heading: str, separator: str) -> str:
    """The anchor of a heading, spelled as GitHub spells it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)


def on_files(files: Any, config: Any, **_: object) -> Any:
    """Add the pages of the top."""
    from mkdocs.structure.files import File

    for name in TOP:
        files.append(File.generated(config, f"project/{name}", content=(ROOT / name).read_text()))
    for file in files.documentation_pages():
        if re.match(r"adr/\d", file.src_uri):
            file.inclusion = file.inclusion.NOT_IN_NAV
    return files


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Have each link lead to the page in the site; one that leads to no page becomes its text."""
    here = place(page.file.src_uri)
    if here.startswith("docs/adr/"):
        # Who searches wants to use something; why it is so comes behind that.
        page.meta["search"] = {"boost": 0.01}

    def led(found: re.Match[str]) -> str:
        image, text, link = found.groups()
        path, _, anchor = link.partition("#")
        if not path or re.match(r"[a-z]+:", link):
            return found[0]
        target = normpath(f"{here.rpartition('/')[0]}/{path}".lstrip("/"))
        source = source_of(target)
        if source is None:
            return text
        way = relpath(source, page.file.src_uri.rpartition("/")[0] or ".")
        return f"{image}[{text}]({way}{'#' + anchor if anchor else ''})"

    kept: list[str] = []  # code, in which nothing is a link

    def hold(found: re.Match[str]) -> str:
        kept.append(found[0])
        return f"\0{len(kept) - 1}\0"

    prose = _LINK.sub(led, _CODE.sub(hold, markdown))
    return indented(re.sub(r"\0(\d+)\0", lambda found: kept[int(found[1])], prose))


def indented(markdown: str) -> str:
    """The same lists in the words of MkDocs' reader: it wants an empty line before a list, and what belongs to an item
    four blanks further in, where others go by the item's own text."""
    lines: list[str] = []
    items: list[int] = []  # where the text of each open list item begins
    shift, fence = 0, ""
    for line in markdown.splitlines():
        indent = len(line) - len(line.lstrip())
        if fence or not line.strip():
            lines.append(_shifted(line, shift) if fence else line)
            fence = "" if fence and line.strip() == fence else fence
            continue
        items = [begin for begin in items if begin <= indent]
        shift = 4 * len(items) - (items[-1] if items else 0)
        if item := _ITEM.match(line):
            if not items and lines and lines[-1].strip() and not _in_list(lines[-1]):
                lines.append("")
            items.append(item.end())
        lines.append(_shifted(line, shift))
        fence = opening[1] if (opening := re.match(r"\s*(```+)", line)) else ""
    return "\n".join(lines) + "\n"


def _shifted(line: str, by: int) -> str:
    return " " * by + line if by >= 0 else line[-by:]


def _in_list(line: str) -> bool:
    return line.startswith("  ") or _ITEM.match(line) is not None


def place(source: str) -> str:
    """Where a page of the site is in the repository."""
    return source.removeprefix("project/") if source.startswith("project/") else f"docs/{source}"


def source_of(target: str) -> str | None:
    """The page of the site that a file of the repository is; None for what is no page."""
    if target in TOP:
        return f"project/{target}"
    return target.removeprefix("docs/") if target.startswith("docs/") and target.endswith(".md") else None


def on_post_build(config: Any, **_: object) -> None:
    """See that no page loads anything from elsewhere.

    Raises:
        PluginError: one does.
    """
    from mkdocs.exceptions import PluginError

    for file in sorted(Path(config.site_dir).rglob("*")):
        if file.suffix == ".map":
            file.unlink()
        elif file.suffix == ".js" and _CDN.search(text := file.read_text()):
            file.write_text(_CDN.sub("", text))
        elif file.suffix in (".html", ".css") and (found := _LOADS.search(file.read_text())):
            raise PluginError(f"{file} loads something from elsewhere: {found[0]}")
