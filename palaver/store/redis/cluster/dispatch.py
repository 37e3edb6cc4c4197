"""Commands on their way to the masters of a cluster: what each master is sent in a round, and what is sent again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from redis.exceptions import (
    AskError,
    BusyLoadingError,
    ClusterDownError,
    ConnectionError,
    MovedError,
    ReadOnlyError,
    TimeoutError,
    TryAgainError,
)

from palaver.config.server_lists import HostPort
from palaver.store.redis.cluster.slots import slot_of_command
from palaver.store.redis.cluster.topology import Topology

WITHOUT_MASTER: Final = (ClusterDownError, ReadOnlyError, BusyLoadingError, ConnectionError, TimeoutError)
"""Errors of one that is no master now: its slots may have another one."""
PASSING: Final = (*WITHOUT_MASTER, MovedError, AskError, TryAgainError)
"""Errors that a command is sent again for."""
WAITS: Final = frozenset(("WAIT", "WAITAOF"))
"""Commands for which each master is asked that was sent something before them."""
Stack = Sequence[tuple[tuple[Any, ...], Mapping[str, Any]]]


class Target(NamedTuple):
    """The master that some commands are sent to, or the slot that no master has."""

    master: HostPort | int
    """A slot, if it has no master."""
    asking: bool = False
    """True for one that is about to have the slot."""


class Dispatch:
    """Commands, and their answers as far as they have come."""

    def __init__(self, stack: Stack, slots: Sequence[int]) -> None:
        self._stack = stack
        self._slots = slots
        several = len(set(slots)) > 1
        self._waits = [i for i, (args, _) in enumerate(stack) if several and args[0] in WAITS]
        self._reached: dict[int, list[Any]] = {i: [] for i in self._waits}
        self._left = [i for i in range(len(stack)) if i not in self._reached]
        self._answers: list[Any] = [None] * len(stack)
        self._asked: dict[int, HostPort] = {}

    @property
    def over(self) -> bool:
        """True once nothing is to be sent."""
        return not self._left

    def targets(self, topology: Topology) -> Mapping[Target, Sequence[int]]:
        """Return what is to be sent now, by where to, as places among the commands."""
        targets: dict[Target, list[int]] = {}
        for place in self._left:
            slot = self._slots[place]
            if (address := self._asked.get(slot)) is not None:
                target = Target(address, asking=True)
            else:
                target = Target(topology.find_master(slot) or slot)
            targets.setdefault(target, []).append(place)
        self._left = []
        self._asked = {}
        return targets

    def commands(self, places: Sequence[int]) -> Stack:
        """Return the commands of these places, and those that wait for what they write."""
        return [self._stack[place] for place in (*places, *self._waits)]

    def take(self, target: Target, places: Sequence[int], answers: Sequence[Any], topology: Topology) -> bool:
        """Take the answers to `commands`. Tell whether all slots should be asked for, before anything is sent again."""
        own, reached = answers[: len(places)], answers[len(places) :]
        anew, again = False, set[int]()
        for place, answer in zip(places, own, strict=True):
            self._answers[place] = answer
            if not isinstance(answer, PASSING):
                continue
            slot = self._slots[place]
            again.add(slot)
            if isinstance(target.master, int):
                anew = True
            elif isinstance(answer, MovedError):
                topology.moved(slot, answer.host, answer.port, target.master)
            elif isinstance(answer, AskError):
                self._asked[slot] = topology.asked_for(answer.host, answer.port, target.master)
            elif not isinstance(answer, TryAgainError):
                anew = True
        self._left += [
            place
            for place, answer in zip(places, own, strict=True)
            if self._slots[place] in again
            # One without a key follows those beside it.
            and (isinstance(answer, PASSING) or slot_of_command(self._stack[place][0]) is None)
        ]
        if not all(isinstance(answer, PASSING) for answer in own):
            for place, answer in zip(self._waits, reached, strict=True):
                self._reached[place].append(answer)
        return anew

    def give_up(self, places: Iterable[int], error: Exception) -> None:
        """Answer these with an error."""
        for place in places:
            self._answers[place] = error

    def give_up_on(self, hopeless: Iterable[HostPort | int], topology: Topology) -> None:
        """Leave what would be sent to these as it was answered."""
        gone = set(hopeless)
        self._left = [
            place
            for place in self._left
            if self._slots[place] in self._asked
            or (topology.find_master(self._slots[place]) or self._slots[place]) not in gone
        ]

    def answers(self) -> list[Any]:
        """Return the answers, or why there is none."""
        for place, reached in self._reached.items():
            self._answers[place] = least(reached) if reached else ConnectionError("no master answers")
        return [_unreachable(answer) for answer in self._answers]


def least(reached: Iterable[Any]) -> Any:
    """Return the least of the answers to a command that waits, an error before all."""
    return min(reached, key=_rank)


def _rank(reached: Any) -> tuple[int, ...]:
    if isinstance(reached, Exception):
        return (-1,)
    return tuple(reached) if isinstance(reached, list) else (reached,)


def _unreachable(answer: Any) -> Any:
    """Return an answer; in the place of one that sends elsewhere, that no server could be reached."""
    if isinstance(answer, PASSING) and not isinstance(answer, ConnectionError | TimeoutError):
        error = ConnectionError(f"no master of the cluster has the slot: {answer}")
        error.__cause__ = answer
        return error
    return answer
