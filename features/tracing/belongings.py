"""Records for traces in erasures of tenants: those that were not sent yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from palaver.store.redis.keys import Key
from palaver.store.sides import StoreSide

from . import tracing_keys


class _Tracing(StoreSide):
    def streams_in(self, shard: str) -> Sequence[Key]:
        return (tracing_keys.spans(shard),)


STORE_SIDE: Final = _Tracing()
