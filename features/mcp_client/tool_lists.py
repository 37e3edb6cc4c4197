"""The list of a server's tools: read page by page, within limits, and the last good one remembered on disk.

Each process of a worker needs the list when it starts. One that was read a moment ago is taken as it is; the last good
one stands in for a server that does not answer.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import orjson

from palaver.late import dataclass
from palaver.vocabulary.limits import count_exceeded, limit_of

from .connection import McpConnection
from .wire import InvalidAnswer

log = logging.getLogger("palaver.features.mcp_client.tool_lists")

_FRESH: Final = 60.0
"""Seconds for which a list is taken as it is, whatever its server says: as long as a worker with all its processes
takes to start."""
_LONGEST_FRESH: Final = 86_400.0
_LASTS: Final = 300.0
"""Seconds after which a server is asked again that does not say for how long its list is fresh."""
_LAYOUT: Final = 2


@dataclass(frozen=True, slots=True)
class OfferedList:
    """The tools that a server offered."""

    tools: tuple[Any, ...]
    """As it sent them."""
    read_at: float
    fresh: float = 0.0
    """Seconds before the next question."""
    lasts: float = 0.0
    """Seconds after which a process that lives asks again."""

    @property
    def is_fresh(self) -> bool:
        """True if it need not be asked again."""
        return 0 <= time.time() - self.read_at < self.fresh

    @property
    def is_old(self) -> bool:
        """True if a process that lives asks again."""
        return not 0 <= time.time() - self.read_at < self.lasts


async def read_list(connection: McpConnection) -> OfferedList:
    """Ask for all tools. Of more than may be, the first ones are taken.

    Raises:
        NeverSent, RequestRefused, Lost, RpcError: as ``McpConnection.ask``.
        InvalidAnswer: what came is no list.
    """
    tools: list[Any] = []
    seen: set[str] = set()
    size, fresh, cursor = 0, _LONGEST_FRESH, None
    for _ in range(limit_of("mcp_pages")):
        page = await connection.ask("tools/list", {} if cursor is None else {"cursor": cursor})
        listed = page.get("tools")
        if not isinstance(listed, list) or page.get("resultType", "complete") != "complete":
            return _broken_off(tools, fresh, "it sent what is no list of tools")
        fresh = min(fresh, _seconds(page.get("ttlMs")))
        for tool in listed:
            size += _size(tool)
            too_many, too_large = len(tools) >= limit_of("mcp_tools"), size > limit_of("mcp_list")
            if too_many or too_large:
                count_exceeded("mcp_tools" if too_many else "mcp_list")
                log.warning("a server's list is longer than may be: %d tools are taken", len(tools))
                return _read_now(tools, fresh)
            tools.append(tool)
        cursor = page.get("nextCursor")
        if cursor is None:
            return _read_now(tools, fresh)
        if not isinstance(cursor, str) or cursor in seen:
            return _broken_off(tools, fresh, "its list of tools does not go on where it says")
        seen.add(cursor)
    count_exceeded("mcp_pages")
    log.warning("a server's list has more pages than are read: %d tools are taken", len(tools))
    return _read_now(tools, fresh)


def _broken_off(tools: list[Any], fresh: float, why: str) -> OfferedList:
    """The list of a server that does not go on as it has to: with the tools of the pages before.

    Raises:
        InvalidAnswer: there are none.
    """
    if not tools:
        raise InvalidAnswer(why)
    log.warning("of a server's list %d tools are taken: %s", len(tools), why)
    return _read_now(tools, fresh)


def _size(tool: object) -> int:
    """Raises InvalidAnswer: it cannot be remembered, whatever it says."""
    try:
        # As deep as it stands in the file.
        orjson.dumps({"tools": [tool]})
        return len(orjson.dumps(tool))
    except TypeError:
        raise InvalidAnswer("a tool of its list is nested too deep") from None


def _read_now(tools: list[Any], fresh: float) -> OfferedList:
    return OfferedList(tuple(tools), time.time(), max(fresh, _FRESH), max(fresh, _FRESH) if fresh else _LASTS)


def _seconds(milliseconds: object) -> float:
    is_number = isinstance(milliseconds, int | float) and not isinstance(milliseconds, bool)
    return max(0.0, milliseconds / 1000) if is_number else 0.0  # type: ignore[operator]


class LastList:
    """The last good list of one server, in a file that no other user may write."""

    def __init__(self, folder: Path | None, label: str, identity: str) -> None:
        """``identity`` says which server is meant, and as whom it is asked: another one has another list."""
        self._folder = folder or Path(tempfile.gettempdir()) / f"palaver-tool-lists-{os.getuid()}"
        self._path = self._folder / f"{label}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.json"
        self._seen = 0
        """When the file was written that was read or written last, in nanoseconds."""

    def read(self) -> OfferedList | None:
        """It, or None."""
        try:
            if not self._is_ours():
                return None
            with self._path.open("rb") as file:
                self._seen = os.fstat(file.fileno()).st_mtime_ns
                text = file.read(2 * limit_of("mcp_list"))
            known = orjson.loads(text)
            if known["layout"] != _LAYOUT:
                return None
            read_at, fresh, lasts = (float(known[name]) for name in ("read_at", "fresh", "lasts"))
            return OfferedList(tuple(known["tools"]), read_at, fresh, lasts)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def read_if_new(self) -> OfferedList | None:
        """It, if another process has written it since it was read or written here."""
        try:
            if self._path.stat().st_mtime_ns == self._seen:
                return None
        except OSError:
            return None
        return self.read()

    @contextmanager
    def turn(self) -> Iterator[bool]:
        """Within the block no other process of this machine has its turn to ask; False if another has it."""
        try:
            lock = _private(str(self._path.with_suffix(".lock")), os.O_RDWR | os.O_CREAT) if self._is_ours() else None
        except OSError:
            lock = None
        if lock is None:
            # Nothing can be remembered there, so each process asks for itself.
            yield True
            return
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_ours = True
        except OSError:
            is_ours = False
        try:
            yield is_ours
        finally:
            os.close(lock)

    def write(self, read: OfferedList) -> None:
        """Remember this one; where that cannot be, it is not."""
        text = orjson.dumps(
            {
                "layout": _LAYOUT,
                "read_at": read.read_at,
                "fresh": read.fresh,
                "lasts": read.lasts,
                "tools": list(read.tools),
            }
        )
        fresh = self._path.with_suffix(f".{os.getpid()}.tmp")
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._is_ours():
                log.warning("%s belongs to another user: lists of tools are not remembered", self._folder)
                return
            with open(fresh, "wb", opener=_private) as file:
                file.write(text)
            self._seen = fresh.stat().st_mtime_ns
            fresh.replace(self._path)
        except OSError as error:
            log.warning("lists of tools cannot be remembered in %s: %s", self._folder, error.strerror)
            with suppress(OSError):
                fresh.unlink()

    def expire(self) -> None:
        """Let the next process that starts ask again, and those that live."""
        known = self.read()
        if known is not None:
            self.write(OfferedList(known.tools, known.read_at))

    def _is_ours(self) -> bool:
        status = self._folder.stat()
        return status.st_uid == os.getuid() and not status.st_mode & 0o022


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
