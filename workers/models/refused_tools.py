"""Tools whose schema a provider refuses: they are not offered to it again, so that the other tools stay.

What is known of a provider's rules is kept to before (`palaver.schemas.tool_schemas`). This is for what is not: the
provider names one tool in its refusal of the whole request. Each worker finds out for itself.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import orjson

from ..protocols import Offer

log = logging.getLogger("palaver.workers.models.refused_tools")

_MOST: Final = 1_000
"""Tools that are remembered; the oldest are forgotten, and found out about again."""


class RefusedTools:
    """The tools that providers refused, each with its schema."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, bytes], None] = {}

    def note(self, provider: str, offer: Offer) -> None:
        """The ``provider`` refused it."""
        log.warning("the tool %s is not offered to %s any more: its schema was refused", offer.name, provider)
        self._known[_key(provider, offer)] = None
        if len(self._known) > _MOST:
            del self._known[next(iter(self._known))]

    def without(self, provider: str, offers: Sequence[Offer]) -> Sequence[Offer]:
        """Return those of ``offers`` that the ``provider`` has not refused."""
        if not self._known:
            return offers
        return [offer for offer in offers if _key(provider, offer) not in self._known]


def _key(provider: str, offer: Offer) -> tuple[str, str, bytes]:
    return provider, offer.name, orjson.dumps(offer.parameters)
