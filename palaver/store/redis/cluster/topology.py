"""The masters of a cluster, and the slots that each of them has, as one of them said last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from redis.exceptions import ConnectionError, RedisError, ResponseError

from palaver.config.server_lists import HostPort
from palaver.store.redis.cluster.slots import SLOTS

_RESTS: Final = 0.1
"""Seconds between two questions for all slots, however many commands find that something has moved."""


class Topology:
    """Asks a server that answers; ``ask`` puts ``CLUSTER SLOTS`` to a server, and raises what Redis raises. Those that
    are known to be away are asked last."""

    def __init__(
        self,
        seeds: Sequence[HostPort],
        ask: Callable[[HostPort], Any],
        remapped: Mapping[HostPort, HostPort],
        is_away: Callable[[HostPort], bool],
    ) -> None:
        self._seeds = tuple(seeds)
        self._ask = ask
        self._is_away = is_away
        self._remapped = remapped
        self._slots: list[HostPort | None] = [None] * SLOTS
        self._asking: asyncio.Task[None] | None = None
        self._asked_at = float("-inf")
        self._turn = 0
        self.masters: tuple[HostPort, ...] = ()

    @property
    def known(self) -> bool:
        """True once a server has said what there is."""
        return bool(self.masters)

    def master_of(self, slot: int) -> HostPort:
        """Return the master of a slot.

        Raises:
            ConnectionError: it has none, as far as anybody knows.
        """
        if (address := self._slots[slot]) is None:
            raise ConnectionError(f"no master of the cluster has slot {slot}")
        return address

    def find_master(self, slot: int) -> HostPort | None:
        """Return the master of a slot; None if it has none, as far as anybody knows."""
        return self._slots[slot]

    def moved(self, slot: int, host: str, port: int, asked: HostPort) -> HostPort:
        """Note where a slot is now, as the server that was ``asked`` said, and return that."""
        address = self._remap(host or asked.host, port)
        self._slots[slot] = address
        if address not in self.masters:
            self.masters = (*self.masters, address)
        return address

    def asked_for(self, host: str, port: int, asked: HostPort) -> HostPort:
        """Return the address of the server to which a single command is referred."""
        return self._remap(host or asked.host, port)

    async def refresh(self) -> None:
        """Ask again, unless that was just done. One question is enough for all who want to know.

        Raises:
            ConnectionError: no server answers.
        """
        if self._asking is None:
            self._asking = asyncio.create_task(self._refresh(), name="palaver-cluster")
        asking = self._asking
        try:
            await asyncio.shield(asking)
        finally:
            if asking.done() and self._asking is asking:
                self._asking = None

    async def _refresh(self) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._asked_at + _RESTS - loop.time()))
        try:
            await self._ask_around()
        finally:
            self._asked_at = loop.time()

    async def _ask_around(self) -> None:
        last: Exception | None = None
        known = list(dict.fromkeys((*self.masters, *self._seeds)))
        # Another one each time: one that is cut off from the others goes on saying what it knew.
        self._turn = (self._turn + 1) % len(known)
        for address in sorted(known[self._turn :] + known[: self._turn], key=self._is_away):
            try:
                ranges = await self._ask(address)
            except ResponseError as error:
                if "cluster support disabled" in str(error):
                    raise
                last = error
            except (RedisError, OSError) as error:
                last = error
            else:
                self._take(ranges, address)
                return
        if isinstance(last, ResponseError):
            raise last
        raise ConnectionError(f"no server of the cluster answers: {type(last).__name__}") from last

    def _take(self, ranges: Sequence[Any], asked: HostPort) -> None:
        slots: list[HostPort | None] = [None] * SLOTS
        for part in slot_ranges(ranges, asked, self._remapped):
            slots[part.first : part.last + 1] = [part.master] * (part.last + 1 - part.first)
        self._slots = slots
        self.masters = tuple(dict.fromkeys(address for address in slots if address is not None))

    def _remap(self, host: str, port: int) -> HostPort:
        return _reached(HostPort(host, port), self._remapped)


class SlotRange(NamedTuple):
    """Slots that one master has."""

    first: int
    last: int
    master: HostPort
    """The address at which it is reached."""
    replicas: int


def slot_ranges(answer: Sequence[Any], asked: HostPort, remapped: Mapping[HostPort, HostPort]) -> Iterator[SlotRange]:
    """Read the answer to ``CLUSTER SLOTS`` of the server that was ``asked``. ``remapped`` has those servers that are
    reached at another address than the one by which they know each other."""
    for first, last, (host, port, *_), *replicas in answer:
        # A server that does not know its own name has none there.
        name = host.decode() if host else ""
        known = HostPort(name if name and name != "?" else asked.host, int(port))
        yield SlotRange(first, last, _reached(known, remapped), len(replicas))


def _reached(known: HostPort, remapped: Mapping[HostPort, HostPort]) -> HostPort:
    return remapped.get(known, known)
