"""A client whose commands go to the masters of a cluster, each to the one that has its slot.

For each master it has a client of the kind that one server has, with a pool or a shared connection of its own. What a
cluster answers in place of an answer (MOVED, ASK, TRYAGAIN, CLUSTERDOWN, LOADING), and what comes of a failover, is
waited for: whoever asks hears of it when it has lasted for `PATIENCE`. Every command of the store bears being repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.asyncio.connection import SSLConnection
from redis.exceptions import (
    AskError,
    BusyLoadingError,
    ClusterDownError,
    ConnectionError,
    MovedError,
    ReadOnlyError,
    RedisError,
    TimeoutError,
    TryAgainError,
)

from palaver.config.clusters import cluster_of
from palaver.store.redis.cluster.channels import ClusterChannels
from palaver.store.redis.cluster.slots import slot_of, slot_of_command, slots_of_commands
from palaver.store.redis.cluster.topology import Address, Topology
from palaver.store.redis.keys import WORKERS
from palaver.store.redis.pool import Pool
from palaver.store.redis.shared_client import SharedClient

PATIENCE: Final = 5.0
"""Seconds for which a command waits for a master to be there, or for a slot to have moved; what one server has to
answer."""
_PAUSE: Final = 0.05
"""Seconds between two attempts."""
_ELSEWHERE: Final = (MovedError, ClusterDownError, ReadOnlyError, BusyLoadingError, ConnectionError, TimeoutError)
"""Errors behind which a slot may have another master."""
_PASSING: Final = (*_ELSEWHERE, AskError, TryAgainError)
HOME: Final = slot_of(WORKERS)
"""The slot at whose master commands without a key are carried out: what workers say of themselves is there."""
Stack = Sequence[tuple[tuple[Any, ...], Mapping[str, Any]]]


class ClusterClient(Redis):
    """redis-py's commands, on the masters of a cluster. For one event loop."""

    connection_pool: Pool

    def __init__(
        self,
        seeds: Sequence[Address],
        make_pool: Callable[[Address], Pool],
        *,
        shared: bool = False,
        remapped: Mapping[Address, Address] | None = None,
        patience: float = PATIENCE,
    ) -> None:
        """``seeds`` are servers that are asked for the others, and ``remapped`` has those that are known by another
        address among themselves. With ``shared``, what is asked of a master travels on one connection."""
        super().__init__(connection_pool=make_pool(seeds[0]))
        self._make_pool = make_pool
        self._shared = shared
        self._patience = patience
        self._nodes: dict[Address, Redis] = {}
        self._topology = Topology(seeds, self._ask_for_slots, remapped or {})

    @classmethod
    def of(cls, url: str, *, shared: bool = False, **options: Any) -> ClusterClient:
        """Return a client of the cluster at ``url``, whose pools have these options. It connects when it is first
        used."""
        cluster = cluster_of(url)
        security: dict[str, Any] = {"connection_class": SSLConnection, **dict(cluster.tls)} if cluster.encrypted else {}

        def make_pool(address: Address) -> Pool:
            return Pool(
                host=address.host,
                port=address.port,
                username=cluster.username,
                password=cluster.password,
                **security,
                **options,
            )

        remapped = {Address(*known): Address(*reached) for known, reached in cluster.remapped}
        return cls([Address(*place) for place in cluster.places], make_pool, shared=shared, remapped=remapped)

    # What it answers.

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Return the answer to a command, as redis-py reads it."""
        if args[0] == "SCRIPT LOAD":
            return (await self.of_each_master(*args))[0]
        slot = slot_of_command(args)
        (answer,) = await self._run(HOME if slot is None else slot, [(args, options)], transaction=False)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def of_each_master(self, *args: Any) -> list[Any]:
        """Return the answers of all masters to a command without a key. Raises the first error among them."""
        await self._know()
        return await asyncio.gather(*(self.node(master).execute_command(*args) for master in self._topology.masters))

    async def info(self, section: str | None = None, *args: str, **options: Any) -> Any:
        """Return what the master says that workers report to; of ``memory``, the one that is nearest to its limit."""
        if section != "memory":
            return await super().info(section, *args, **options)
        await self._know()
        nodes = [self.node(master) for master in self._topology.masters]
        told = await asyncio.gather(*(node.info("memory") for node in nodes), return_exceptions=True)
        known = [info for info in told if not isinstance(info, BaseException)]
        if not known:
            return await nodes[0].info("memory")
        return max(known, key=_fullness)

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Pipeline:
        """Return commands that are sent together to the master of each; as a ``transaction``, they are about one slot
        and carried out together."""
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
        if len(set(slots)) == 1:
            return await self._run(slots[0], stack, transaction=transaction)
        if transaction:
            raise ValueError("a transaction is about one slot")
        await self._know()
        groups: dict[Address | int, list[int]] = {}
        for place, slot in enumerate(slots):
            try:
                groups.setdefault(self._topology.master_of(slot), []).append(place)
            except ConnectionError:
                groups.setdefault(slot, []).append(place)
        answers: list[Any] = [None] * len(stack)
        await asyncio.gather(
            *(
                self._run_group(group, [slots[place] for place in group], [stack[place] for place in group], answers)
                for group in groups.values()
            )
        )
        if all(isinstance(answer, ConnectionError | TimeoutError) for answer in answers):
            raise answers[0]
        return answers

    # How it finds whom to ask.

    async def master(self, slot: int, *, anew: bool = False) -> Address:
        """Return the master of a slot; ``anew``, as the cluster says now.

        Raises:
            ConnectionError: nobody knows of one.
        """
        await (self._topology.refresh() if anew else self._know())
        return self._topology.master_of(slot)

    def node(self, address: Address) -> Redis:
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

    async def _ask_for_slots(self, address: Address) -> Any:
        # In two words: redis-py would read the answer, as something else.
        return await self.node(address).execute_command("CLUSTER", "SLOTS")

    async def _run_group(self, places: Sequence[int], slots: Sequence[int], stack: Stack, answers: list[Any]) -> None:
        """Put the answers of one master into their places, and repeat by slot what another one has by now."""
        if len(set(slots)) > 1:
            try:
                node = self.node(self._topology.master_of(slots[0]))
                some = await _sent(node, stack, transaction=False)
            except (ConnectionError, TimeoutError) as error:
                some = [error] * len(places)
        else:
            some = await self._settled(slots[0], stack)
            for place, answer in zip(places, some, strict=True):
                answers[place] = answer
            return
        for place, answer in zip(places, some, strict=True):
            answers[place] = answer
        again = {slot for slot, answer in zip(slots, some, strict=True) if isinstance(answer, _PASSING)}
        await asyncio.gather(*(self._repeat(slot, places, slots, stack, some, answers) for slot in again))

    async def _repeat(
        self,
        slot: int,
        places: Sequence[int],
        slots: Sequence[int],
        stack: Stack,
        some: Sequence[Any],
        answers: list[Any],
    ) -> None:
        which = [
            i
            for i, other in enumerate(slots)
            if other == slot and (isinstance(some[i], _PASSING) or slot_of_command(stack[i][0]) is None)
        ]
        again = await self._settled(slot, [stack[i] for i in which])
        for i, answer in zip(which, again, strict=True):
            answers[places[i]] = answer

    async def _settled(self, slot: int, stack: Stack) -> list[Any]:
        """Return as `_run`, with the error in each place if there is no answer."""
        try:
            return await self._run(slot, stack, transaction=False)
        except (ConnectionError, TimeoutError) as error:
            return [error] * len(stack)

    async def _run(self, slot: int, stack: Stack, *, transaction: bool) -> list[Any]:
        """Return the answers to commands about one slot, errors among them; wait for its master.

        Raises what Redis raises if that takes too long.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + self._patience
        answers: list[Any] = [None] * len(stack)
        left = list(range(len(stack)))
        asking: Address | None = None
        anew = False
        while True:
            failed: Exception
            try:
                address = asking or await self.master(slot, anew=anew)
                some = await _sent(
                    self.node(address), [stack[i] for i in left], transaction=transaction, asking=asking is not None
                )
            except _PASSING as error:
                # Of a transaction, what its commands were answered.
                failed, some = error, []
            else:
                for i, answer in zip(left, some, strict=True):
                    answers[i] = answer
                passing = [answer for answer in some if isinstance(answer, _PASSING)]
                if not passing:
                    return answers
                failed = passing[0]
                left = [
                    i
                    for i, answer in zip(left, some, strict=True)
                    if isinstance(answer, _PASSING) or slot_of_command(stack[i][0]) is None
                ]
            if loop.time() >= until:
                if some:
                    return answers
                raise failed
            asking, anew = None, False
            if isinstance(failed, MovedError):
                self._topology.moved(slot, failed.host, failed.port, address)
            elif isinstance(failed, AskError):
                asking = self._topology.asked_for(failed.host, failed.port, address)
            else:
                anew = not isinstance(failed, TryAgainError)
                await asyncio.sleep(_PAUSE)


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
