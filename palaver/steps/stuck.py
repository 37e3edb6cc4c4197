"""Detection of runs that repeat themselves without progress. Pure: judged from the run's turns, before each model call.

A turn is all that the model asked for at once, with the results of all its calls. Three patterns are looked for:

- the same calls with the same results, turn after turn;
- the same where a call failed: after a few of them the model gets a note (a nudge), once, before the run is given up;
- two turns that take each other's place: A, B, A, B, …

A monologue, agent messages in a row with no user or tool between them, cannot happen here: an answer that calls no tool
ends the run. A message of the user resets the detection, and so does another run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import takewhile
from typing import Final

from palaver.errors import ErrorClass, Failure
from palaver.late import dataclass
from palaver.schemas.arguments import readable
from palaver.schemas.models import Message, ToolCall
from palaver.schemas.stuck_limits import StuckLimits

_NAMED: Final = 3
"""Tools that a sentence names."""
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_sorted: Final = json.JSONEncoder(sort_keys=True).encode


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn, as far as repetition goes: digests, so that a worker can keep many."""

    digest: bytes
    """A digest of all calls and results. Neither the order of parallel calls nor the spelling of their JSON matters."""
    tools: tuple[str, ...]
    failed: tuple[str, ...]
    """The tools among them whose call failed."""

    @classmethod
    def of(cls, calls: Sequence[ToolCall], results: Mapping[str, Message]) -> Turn:
        """The turn of ``calls``, each with its result by call id."""
        pairs = sorted(_digest(call, results[call.id]) for call in calls)
        return cls(
            digest=blake2b(b"".join(pairs), digest_size=16).digest(),
            tools=_names(call.name for call in calls),
            failed=_names(call.name for call in calls if results[call.id].is_error),
        )


@dataclass(frozen=True, slots=True)
class Nudge:
    """A note to the model before it is asked again."""

    text: str
    left_out_after: int | None = None
    """The position in the log behind which images and files are words from here on; None leaves them as they are."""


@dataclass(frozen=True, slots=True)
class Stuck:
    """The run is stuck: the rule that says so, and a sentence with tools and counts but without any content."""

    code: str
    """``same_result``, ``same_error`` or ``alternation``."""
    evidence: str

    @property
    def failure(self) -> Failure:
        """The failure that ends the run."""
        return Failure.of(ErrorClass.STUCK, self.evidence, code=self.code)


def find_repetition(turns: Sequence[Turn], limits: StuckLimits | None, *, nudged: bool) -> Nudge | Stuck | None:
    """Judge the turns of one run so far, oldest first; ``nudged`` if the model got a note about the newest ones.

    None while there is nothing to object to.
    """
    if limits is None or not turns:
        return None
    newest = turns[-1]
    streak = sum(1 for _ in takewhile(lambda turn: turn.digest == newest.digest, reversed(turns)))
    if newest.failed:
        if limits.same_error and streak >= limits.same_error:
            text = f"{_list(newest.failed)} failed {streak} times in a row with the same arguments and the same error."
            return Stuck("same_error", text)
        if limits.nudge_after and streak >= limits.nudge_after and not nudged:
            return Nudge(_nudge(newest.failed, streak))
    elif limits.same_result and streak >= limits.same_result:
        text = f"{_list(newest.tools)} was called {streak} times in a row with the same arguments and the same result."
        return Stuck("same_result", text)
    if limits.alternation and _alternates(turns[-limits.alternation :], limits.alternation):
        text = f"{limits.alternation} turns in a row went back and forth between the same two: "
        return Stuck("alternation", f"{text}{_list(turns[-2].tools)}, then {_list(newest.tools)}, with equal results.")
    return None


def _alternates(turns: Sequence[Turn], length: int) -> bool:
    if len(turns) < length or turns[-1].digest == turns[-2].digest:
        return False
    return all(turn.digest == turns[i % 2].digest for i, turn in enumerate(turns))


def _nudge(failed: Sequence[str], times: int) -> str:
    return (
        f"[Automatic note] {_list(failed)} failed {times} times in a row with the same arguments and the same error. "
        "Calling it once more like this will not help. Change the arguments, go another way, "
        "or say what stands in the way."
    )


def _digest(call: ToolCall, result: Message) -> bytes:
    digest = blake2b(digest_size=16)
    for part in (call.name.encode(), _canonical(call.arguments), b"!" if result.is_error else b"", _text(result)):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.digest()


def _canonical(arguments: str) -> bytes:
    value = readable(arguments)
    if value is None:
        return arguments.encode(errors="surrogatepass")
    return _sorted(value).encode()


def _text(result: Message) -> bytes:
    # Of an image all counts: two screenshots are two results.
    content = result.content if isinstance(result.content, str) else repr(result.content)
    return content.encode(errors="surrogatepass")


def _names(names: Iterable[str]) -> tuple[str, ...]:
    """Each once. A model may call what there is not: such a name is the model's own text and not repeated."""
    return tuple(sorted({name if _NAME.fullmatch(name) else "an unknown tool" for name in names}))


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
