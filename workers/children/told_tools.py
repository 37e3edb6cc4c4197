"""The tools that a child has by now, in memory that its parent sees: the list of a server may change while both live.

What stands here was written by a process that runs tools. Such a process may tell everybody else the same itself.
"""

from __future__ import annotations

import mmap
import struct
from typing import Final

from palaver.tools import ToolSet
from palaver.vocabulary.limits import limit_of

_HEAD: Final = struct.Struct("<32sQ")
"""The digest of the set, and how many bytes it has."""


class ToldTools:
    """The set that a child told last. Made before the children are, and shared with them."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _HEAD.size + limit_of("declared_tools_bytes"))

    def tell(self, tools: ToolSet) -> None:
        """In a child: these are its tools. Two children may write at once, and the parent sees that."""
        self._memory[_HEAD.size : _HEAD.size + len(tools.text)] = tools.text
        _HEAD.pack_into(self._memory, 0, tools.digest.encode(), len(tools.text))

    def newest(self, known: ToolSet) -> ToolSet:
        """In the parent: the set that was told last, or the one that is ``known`` if there is none that is whole."""
        digest, size = _HEAD.unpack_from(self._memory, 0)
        if not size or digest.decode("ascii", "replace") == known.digest:
            return known
        told = ToolSet.having(self._memory[_HEAD.size : _HEAD.size + size])
        return told if told.digest.encode() == digest else known
