"""The generations of OpenHands' client: what one of them does not know, it refuses, so each is told what it knows."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Self


class Generation(StrEnum):
    """Which fields and kinds of events a client takes."""

    OLDER = "1.7"
    """SDK 1.7.3 and those near it."""
    NEWER = "1.58"
    """SDK 1.58.2 and those near it."""

    @classmethod
    def of_fields(cls, names: Collection[str]) -> Self:
        """That of the client which sends these to begin a conversation: newer ones always send two of them."""
        return cls.NEWER if "client_tools" in names or "tags" in names else cls.OLDER
