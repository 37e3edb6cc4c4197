"""A client whose commands go to the masters of a cluster, each to the one that has its slot.

For each master it has a client of the kind that one server has, with a pool or a shared connection of its own. What a
cluster answers in place of an answer (MOVED, ASK, TRYAGAIN, CLUSTERDOWN, LOADING), and what comes of a failover, is
waited for: the caller hears of it when it has lasted for `PATIENCE`, and who comes later hears it at once. Every
command of the store bears being repeated.
"""

from __future__ import annotations

import asyncio
import builtins
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.asyncio.connection import SSLConnection
from redis.exceptions import ConnectionError, RedisError, ResponseError, TimeoutError, TryAgainError

from palaver.config.clusters import cluster_of
from palaver.config.server_lists import HostPort
from palaver.store.redis.cluster.absences import Absences
from palaver.store.redis.cluster.channels import ClusterChannels
from palaver.store.redis.cluster.dispatch import PASSING, WAITS, WITHOUT_MASTER, Dispatch, Stack, Target, least
from palaver.store.redis.cluster.slots import SLOTS, slot_of, slot_of_command, slots_of_commands
from palaver.store.redis.cluster.topology import Topology
from palaver.store.redis.fleet_keys import WORKERS
from palaver.store.redis.pool import Pool
from palaver.store.redis.shared_client import SharedClient

PATIENCE: Final = 5.0
"""Seconds for which a command waits for a master to be there, or for a slot to have moved; what one server has to
answer."""
_PAUSE: Final = 0.05
"""Seconds between two attempts."""
_TURNS: Final = 3
"""Rounds after which referrals are not followed at once any more: two servers may send to each other."""
_GLANCE: Final = 1.0
"""Seconds that a master has to tell its memory, if another one tells its own."""
_ANYWHERE: Final = frozenset(("PING", "TIME"))
"""Commands without a key that any master may answer while that of `HOME` is away."""
_EVERYWHERE: Final = frozenset(("SCRIPT LOAD", *WAITS))
"""Commands without a key that are for all masters."""
HOME: Final = slot_of(WORKERS)
"""The slot at whose master commands without a key are carried out: what workers say of themselves is there."""


class ClusterClient(Redis):
    """redis-py's commands, on the masters of a cluster. For one event loop."""

    connection_pool: Pool

    def __init__(
        self,
        seeds: Sequence[HostPort],
        make_pool: Callable[[HostPort], Pool],
        *,
        shared: bool = False,
        remapped: Mapping[HostPort, HostPort] | None = None,
        patience: float = PATIENCE,
    ) -> None:
        """``seeds`` are servers that are asked for the others, and ``remapped`` has those that are known by another
        address among themselves. With ``shared``, what is asked of a master travels on one connection."""
        super().__init__(connection_pool=make_pool(seeds[0]))
        self._make_pool = make_pool
        self._shared = shared
        self._patience = patience
        self._nodes: dict[HostPort, Redis] = {}
        self._absences = Absences(patience, time.monotonic)
        self._topology = Topology(seeds, self._ask_for_slots, remapped or {}, self._absences.is_away)

    @classmethod
    def of(cls, url: str, *, shared: bool = False, **options: Any) -> ClusterClient:
        """Return a client of the cluster at ``url``, whose pools have these options. It connects when it is first
        used."""
        cluster = cluster_of(url)
        security: dict[str, Any] = {"connection_class": SSLConnection} if cluster.encrypted else {}

        def make_pool(place: HostPort) -> Pool:
            return Pool(**cluster.options(place), **security, **options)

        return cls(cluster.places, make_pool, shared=shared, remapped=dict(cluster.remapped))

    # What it answers.

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Return the answer to a command, as redis-py reads it."""
        if args[0] in _EVERYWHERE:
            answers = await self.of_each_master(*args)
            return least(answers) if args[0] in WAITS else answers[0]
        slot = slot_of_command(args)
        (answer,) = await self._carried_out([(args, options)], [HOME if slot is None else slot], transaction=False)
        if args[0] in _ANYWHERE and isinstance(answer, ConnectionError | TimeoutError):
            return (await self.of_each_master(*args, **options))[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def of_each_master(self, *args: Any, **options: Any) -> list[Any]:
        """Return the answers of the masters that answer a command without a key.

        Raises what one of them refuses it with; or that no server answers.
        """
        await self._know()
        masters = [master for master in self._topology.masters if self._absences.may_ask(master)]
        answers = await asyncio.gather(
            *(self.node(master).execute_command(*args, **options) for master in masters), return_exceptions=True
        )
        there = []
        for master, answer in zip(masters, answers, strict=True):
            if isinstance(answer, ConnectionError | TimeoutError):
                self._absences.note(master)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                self._absences.forget(master)
                there.append(answer)
        if not there:
            raise ConnectionError("no master of the cluster answers")
        return there

    async def info(self, section: str | None = None, *args: str, **options: Any) -> Any:
        """Return what the master says that workers report to; of ``memory``, the one that is nearest to its limit."""
        if section != "memory":
            return await super().info(section, *args, **options)
        await self._know()
        known = await self._memories(_GLANCE) or await self._memories(self._patience)
        if not known:
            raise ConnectionError("no master of the cluster tells its memory")
        return max(known, key=_fullness)

    async def _memories(self, within: float) -> Sequence[Mapping[str, Any]]:
        """Return what the masters say that answer within so many seconds."""
        told = await asyncio.gather(*(self._memory_of(master, within) for master in self._topology.masters))
        return [info for info in told if info is not None]

    async def _memory_of(self, master: HostPort, within: float) -> Mapping[str, Any] | None:
        """Return what a master says; None if it says nothing at present."""
        if not self._absences.may_ask(master):
            return None
        try:
            async with asyncio.timeout(within):
                told: Mapping[str, Any] = await self.node(master).info("memory")
        except (RedisError, OSError, builtins.TimeoutError) as error:
            if isinstance(error, ResponseError):
                raise
            self._absences.note(master)
            return None
        self._absences.forget(master)
        return told

    def is_away(self, key: str) -> bool:
        """Tell whether the master of a key did not answer the last time."""
        slot = slot_of(key)
        return self._topology.known and self._absences.is_away(self._topology.find_master(slot) or slot)

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Pipeline:
        """Return a pipeline that sends each command to the master of its key. Those of a ``transaction`` are about one
        slot, and are carried out together."""
        return _ClusterPipeline(self, transaction, shard_hint)

    def pubsub(self, **options: Any) -> Any:
        """Return what hears channels."""
        return self.channels()

    def channels(self) -> ClusterChannels:
        """Return what hears channels, on a connection to each master that has some of them."""
        return ClusterChannels(self.master, lambda address: self.node(address).connection_pool.make_connection, HOME)

    async def run_stack(self, stack: Stack, *, transaction: bool) -> list[Any]:
        """Return the answers to commands, in their order, and errors in the places of those that failed.

        Raises what Redis raises if no master answers any of them.
        """
        slots = slots_of_commands([args for args, _ in stack], HOME)
        if transaction and len(set(slots)) > 1:
            raise ValueError("a transaction is about one slot")
        answers = await self._carried_out(stack, slots, transaction=transaction)
        if all(isinstance(answer, ConnectionError | TimeoutError) for answer in answers):
            raise answers[0]
        return answers

    # How it finds whom to ask.

    async def master(self, slot: int, *, anew: bool = False) -> HostPort:
        """Return the master of a slot; ``anew``, as the cluster says now.

        Raises:
            ConnectionError: none is known.
        """
        await (self._topology.refresh() if anew else self._know())
        return self._topology.master_of(slot)

    async def masters(self) -> list[Redis]:
        """Return the clients of all masters, as the cluster says now.

        Raises:
            ConnectionError: no server answers, or some slots have no master.
        """
        await self._topology.refresh()
        for slot in range(SLOTS):
            self._topology.master_of(slot)
        return [self.node(address) for address in self._topology.masters]

    def node(self, address: HostPort) -> Redis:
        """Return the client of a server."""
        if (node := self._nodes.get(address)) is None:
            node = (SharedClient if self._shared else Redis)(connection_pool=self._make_pool(address))
            self._nodes[address] = node
        return node

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        """Give the connections back."""
        for node in self._nodes.values():
            await node.aclose()
            await node.connection_pool.disconnect()
        await super().aclose(close_connection_pool)

    async def _know(self) -> None:
        if not self._topology.known:
            await self._topology.refresh()

    async def _ask_for_slots(self, address: HostPort) -> Any:
        # In two words: redis-py would read the answer, as something else.
        return await self.node(address).execute_command("CLUSTER", "SLOTS")

    async def _carried_out(self, stack: Stack, slots: Sequence[int], *, transaction: bool) -> list[Any]:
        """Return the answers to commands, errors among them, waiting for their masters.

        Raises what Redis raises if no master is known.
        """
        await self._know()
        dispatch, until, turns = Dispatch(stack, slots), time.monotonic() + self._patience, 0
        while True:
            targets = dispatch.targets(self._topology)
            sending = (self._send(dispatch, target, places, transaction) for target, places in targets.items())
            anew = any([await each for each in sending] if len(targets) == 1 else await asyncio.gather(*sending))
            if dispatch.over or time.monotonic() >= until:
                return dispatch.answers()
            turns += 1
            if anew or turns > _TURNS:
                await asyncio.sleep(_PAUSE)
            if anew:
                with suppress(ConnectionError, TimeoutError):
                    await self._topology.refresh()
            dispatch.give_up_on(
                (target.master for target in targets if self._absences.is_lasting(target.master)), self._topology
            )
            if dispatch.over:
                return dispatch.answers()

    async def _send(self, dispatch: Dispatch, target: Target, places: Sequence[int], transaction: bool) -> bool:
        """Send some commands to a master. Tell whether all slots should be asked for, before anything is sent again."""
        master = target.master
        if not target.asking and not self._absences.may_ask(master):
            dispatch.give_up(places, ConnectionError(f"{_named(master)} does not answer"))
            return False
        commands = dispatch.commands(places)
        answers: Sequence[Any]
        if isinstance(master, int):
            answers = [ConnectionError(f"no master of the cluster has slot {master}")] * len(commands)
        else:
            try:
                answers = await _sent(self.node(master), commands, transaction=transaction, asking=target.asking)
            except PASSING as error:
                # Of a transaction, what its commands were answered.
                answers = [error] * len(commands)
        if all(isinstance(answer, WITHOUT_MASTER) for answer in answers):
            self._absences.note(master)
        else:
            self._absences.forget(master)
        return dispatch.take(target, places, answers, self._topology)


def _named(master: HostPort | int) -> str:
    return f"the master of slot {master}" if isinstance(master, int) else f"the master {master}"


def _fullness(memory: Mapping[str, Any]) -> float:
    return int(memory.get("used_memory", 0)) / (int(memory.get("maxmemory", 0)) or 1 << 60)


async def _sent(node: Redis, stack: Stack, *, transaction: bool, asking: bool = False) -> list[Any]:
    """Return the answers of a server to commands, errors among them. With ``asking``, it is one that is about to have
    their slot. Raises what Redis raises where there is no answer."""
    if len(stack) == 1 and not transaction and not asking:
        args, options = stack[0]
        try:
            return [await node.execute_command(*args, **options)]
        except (ConnectionError, TimeoutError):
            raise
        except RedisError as error:
            return [error]
    pipeline = node.pipeline(transaction=transaction)
    if not asking:
        pipeline.command_stack.extend(stack)
        return await pipeline.execute(raise_on_error=False)
    if transaction:
        # ASKING is about the next command alone.
        raise TryAgainError("a transaction waits until its slot has moved")
    for args, options in stack:
        pipeline.command_stack += [(("ASKING",), {}), (args, options)]
    return (await pipeline.execute(raise_on_error=False))[1::2]


class _ClusterPipeline(Pipeline):
    """Commands that are sent together."""

    def __init__(self, client: ClusterClient, transaction: bool, shard_hint: str | None) -> None:
        super().__init__(client.connection_pool, client.response_callbacks, transaction, shard_hint)
        self._client = client

    async def execute(self, raise_on_error: bool = True) -> list[Any]:
        """Return the answers. Raises the first error among them if it should, and any if no master answers."""
        stack, self.command_stack = self.command_stack, []
        if not stack:
            return []
        answers = await self._client.run_stack(stack, transaction=self.is_transaction)
        if raise_on_error:
            self.raise_first_error(stack, answers)
            # redis-py raises errors that a server answered, and no others are among its answers.
            if (away := next((answer for answer in answers if isinstance(answer, Exception)), None)) is not None:
                raise away
        return answers
