"""The publisher of an event loop: takes deliveries without waiting, and sends together what comes together.

What follows once a script has changed a run is here, too. The API and the workers share this code.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

from palaver.config.brokers import is_redis
from palaver.processes.failpoints import failpoint
from palaver.steps.leases import Delivery, Settled
from palaver.steps.wire import in_redis
from palaver.store import Store
from palaver.store.fleet.queue_lists import QueueLists
from palaver.store.steps.due_items import DueItem
from palaver.vocabulary.step_kinds import RECOVERED

Publish = Callable[[Sequence[Delivery]], object]
"""Sends deliveries to the workers. The sweeper sends lost ones again."""

log = logging.getLogger("palaver.delivery.publishing")

_BACKLOG: Final = 10_000
"""Deliveries that may wait for a broker that does not answer; the rest is left to the sweeper."""
_TOGETHER: Final = 100
"""Deliveries that travel together: more would hold the others up for longer than a round trip saves."""
_CLOSING: Final = 5.0
"""Seconds to send the last ones in."""


async def follow_up(store: Store, publish: Publish, moved: Sequence[Settled]) -> None:
    """Publish what is due now, start the runs whose turn in their conversations has come, wake parents and children.

    Such a run may end as it starts, and then the next one has the turn, so this loops until no run is left. If the
    process dies meanwhile, or Redis is away, the sweeper does the rest.
    """
    while moved:
        publish([delivery for settled in moved for delivery in settled.deliveries])
        due = [DueItem.of(entry) for settled in moved for entry in settled.due_now]
        moved = await store.due.sweep(due) if due else ()


async def deliver_now(
    store: Store, publish: Publish, postponed: Sequence[tuple[str, str, str]]
) -> Sequence[Settled | None]:
    """Deliver postponed steps now, with all that follows; None for one that is no longer waiting. Raises as
    `Steps.promote`."""
    promoted = await store.steps.promote(postponed)
    await follow_up(store, publish, [moved for moved in promoted if moved is not None])
    return promoted


class LoopPublisher:
    """Sends deliveries to the broker at ``url``, for one event loop; connects when first used.

    Each is tried once: if it is lost, the sweeper sends it again. To a Redis all that was handed over in a turn of the
    loop, or while others were on their way, is one LPUSH a queue; to other brokers kombu sends it, in a thread.

    Raises:
        ConfigurationError: the URL has an option that the broker does not understand.
    """

    def __init__(self, url: str) -> None:
        self._broker: _Broker = _Redis(url) if is_redis(url) else _Kombu(url)
        self._waiting: deque[Delivery] = deque()
        self._sending: asyncio.Task[None] | None = None

    def publish_soon(self, deliveries: Sequence[Delivery]) -> None:
        """Send ``deliveries`` with what else is handed over in this turn of the loop. Never blocks."""
        self._waiting.extend(deliveries[: _BACKLOG - len(self._waiting)])
        if self._waiting and self._sending is None:
            self._sending = asyncio.create_task(self._send_waiting(), name="publisher")

    async def depth(self, queue: str) -> int:
        """Messages that wait in ``queue``, recovered ones too.

        Raises what the broker's library raises when the broker does not answer.
        """
        return await self._broker.depth(queue)

    async def close(self) -> None:
        """Send the deliveries that were handed over, for at most 5 s, and disconnect."""
        if self._sending is not None:
            await asyncio.wait([self._sending], timeout=_CLOSING)
        await self._broker.close()

    async def _send_waiting(self) -> None:
        try:
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(_TOGETHER, len(self._waiting)))]
                await self._send(batch)
        finally:
            self._sending = None

    async def _send(self, batch: Sequence[Delivery]) -> None:
        try:
            await self._broker.send(batch)
        except Exception as error:
            # Not its message: that may have the broker's address, with a password.
            ids = " ".join(delivery.task_id for delivery in batch)
            log.warning("not published, left to the sweeper: %s (%s)", ids, type(error).__name__)
        else:
            failpoint("step.published")


class _Broker(Protocol):
    async def send(self, deliveries: Sequence[Delivery]) -> None:
        """Try it once. Raises what the broker's library raises; some may have been sent."""

    async def depth(self, queue: str) -> int:
        """Messages that wait there, recovered ones too."""

    async def close(self) -> None:
        """Disconnect."""


class _Redis:
    """The envelopes are ours, so that nothing but the push remains to do for a delivery."""

    def __init__(self, url: str) -> None:
        self._lists = QueueLists(url)

    async def send(self, deliveries: Sequence[Delivery]) -> None:
        messages: dict[str, list[bytes]] = {}
        for delivery in deliveries:
            messages.setdefault(delivery.queue, []).append(in_redis(delivery))
        await self._lists.push(messages)

    async def depth(self, queue: str) -> int:
        return await self._lists.depth((queue, queue + RECOVERED))

    async def close(self) -> None:
        await self._lists.close()


class _Kombu:
    """Whatever kombu speaks to, which blocks: one thread sends, so that the order stays."""

    def __init__(self, url: str) -> None:
        # Not above: a process whose broker is a Redis does without kombu.
        from palaver.delivery.deliveries import Publisher

        self._publisher = Publisher(url)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="palaver-publisher")

    async def send(self, deliveries: Sequence[Delivery]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._publisher.publish, deliveries)

    async def depth(self, queue: str) -> int:
        # Not in that thread: a broker may be slow to answer.
        return await asyncio.to_thread(self._publisher.depth, queue)

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._publisher.close)
