"""The stream of a chat completion: chunks of text, and then the calls or the end."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing
from types import MappingProxyType
from typing import Any, ClassVar, Final

import orjson

from api.kit import run_changes as changes
from api.kit.projections import DeltaOutlet, ViewProjection, WrittenDelta
from api.kit.run_view import RunView
from api.kit.streams import EventStream, Outlet
from palaver import operations
from palaver.events import EventKind
from palaver.operations import Backend, Caller, StoredEvent
from palaver.schemas.models import Run

from .completions import about, answer_of, finish_of, let_go, refusal_of, usage_of
from .shown import KEEP_ALIVE, QUIET, TEXTS
from .wire import ChatCreate

_DONE: Final = b"data: [DONE]\n\n"
_MARK: Final = "<the text of a chunk>"
"""The place of the text; behind it, nothing in a chunk comes from a request."""
_APART: Final = "\n\n"
"""The text between two messages of a run: a completion has one."""


class ChatText(ViewProjection[str]):
    """The text of a completion, made of a run's events. It only grows: what was shown of an attempt that failed cannot
    be taken back. So the next attempt shows nothing as long as it says the same, and then goes on; where it says
    something else, it begins behind a blank line."""

    deltas: ClassVar = TEXTS

    def __init__(self, chunk: Callable[[bytes], bytes]) -> None:
        """``chunk`` makes a chunk of a text in JSON."""
        super().__init__(RunView(edge=math.inf))
        self._chunk = chunk
        self._said: list[str] = []
        """The pieces of the attempt's text."""
        self._stale = ""
        """The text that the client has of an attempt that failed, and that this one has not gone beyond."""
        self._apart = self._any = False

    def add(self, event: StoredEvent) -> str:
        """Return what an event adds to the text."""
        # Where the server has lost events it goes on: what was sent stays.
        if event.type == EventKind.STREAM_REWOUND:
            return ""
        # A message of no step is one that the client has sent itself, with those before its question.
        if event.type == EventKind.MESSAGE_CREATED and event.data.get("step") is None:
            return ""
        return "".join(self.read(event))

    def framed(self, delta: WrittenDelta) -> bytes | None:
        """Return the chunk of a delta that only goes on with what is shown."""
        return None if self._stale else self._chunk(delta.frame)

    def passed(self) -> None:
        """Note that the chunk that was asked for last was sent at once."""
        super().passed()
        self._said.append(self._latest.text)

    def _step_begun(self, change: changes.StepBegun) -> Iterator[str]:
        self._said, self._stale, self._apart = [], "", self._any
        yield from ()

    def _taken_back(self, change: changes.TakenBack) -> Iterator[str]:
        self._stale, self._said = self._stale or "".join(self._said), []
        yield from ()

    def _grown(self, change: changes.PartGrown) -> Iterator[str]:
        text = change.text
        self._said.append(text)
        if self._stale:
            said = "".join(self._said)
            if self._stale.startswith(said):
                return
            text = said.removeprefix(self._stale) if said.startswith(self._stale) else f"{_APART}{said}"
            self._stale = ""
        elif self._apart:
            yield _APART
        self._apart, self._any = False, True
        yield text

    def _answered(self, change: changes.MessageTold) -> Iterator[str]:
        said = "".join(self._said)
        # It may be shorter than what an attempt before it had said.
        if self._stale and said not in ("", self._stale):
            yield f"{_APART}{said}"
        self._stale = ""

    rows: ClassVar = MappingProxyType(
        {
            changes.StepBegun: _step_begun,
            changes.TakenBack: _taken_back,
            changes.PartGrown: _grown,
            changes.MessageTold: _answered,
        }
    )


class ChatStream(EventStream):
    """The answer that sends it. If the client goes before it has all of it, the run is cancelled, unless it ``keeps``
    on."""

    def __init__(
        self,
        backend: Backend,
        caller: Caller,
        run: Run,
        body: ChatCreate,
        *,
        keeps: bool,
        headers: Mapping[str, str],
    ) -> None:
        self._backend = backend
        self._caller = caller
        self._run = run
        self._usage = body.stream_options is not None and body.stream_options.include_usage is True
        self._keeps = keeps
        self._over = False
        # Most of a chunk is that of the one before.
        head, tail = self._chunk({"content": _MARK}).rsplit(orjson.dumps(_MARK), 1)
        self._said = _between(head, tail)
        self._text = ChatText(self._said)
        outlet = DeltaOutlet(self._text)
        super().__init__(self._chunks(outlet), backend.closing, headers, outlet=outlet)

    @property
    def whole(self) -> bool:
        """True if the client was sent all of it."""
        return self._over

    async def _chunks(self, outlet: Outlet) -> AsyncGenerator[bytes, None]:
        try:
            yield self._chunk({"role": "assistant", "content": ""})
            sent = time.monotonic()
            batches = operations.follow(self._backend, self._run.id, pass_on=outlet.pass_on)
            async with aclosing(batches):
                async for events in batches:
                    more = "".join(self._text.add(event) for event in events)
                    if more or not events or time.monotonic() - sent > QUIET:
                        yield self._said(orjson.dumps(more)) if more else KEEP_ALIVE
                        sent = time.monotonic()
                    if any(event.type in (EventKind.RUN_FINISHED, EventKind.RUN_REQUIRES_ACTION) for event in events):
                        break
            yield await self._end()
            self._over = True
        finally:
            if not self._over and not self._keeps:
                await asyncio.shield(let_go(self._backend, self._caller, self._run, "its client is gone"))

    async def _end(self) -> bytes:
        run = await operations.read_run(self._backend, self._run.id)
        refusal = await refusal_of(self._backend, self._caller, run)
        if refusal is not None:
            return b"data: %b\n\n" % orjson.dumps({"error": refusal[1]})
        _, calls = await answer_of(self._backend, self._caller, run)
        last = b""
        if calls:
            last = self._chunk({"tool_calls": [{"index": place, **call} for place, call in enumerate(calls)]})
        last += self._chunk({}, finish_of(run, calls))
        if self._usage:
            fields = {**about(run, "chat.completion.chunk"), "choices": [], "usage": usage_of(run.usage)}
            last += b"data: %b\n\n" % orjson.dumps(fields)
        return last + _DONE

    def _chunk(self, delta: Mapping[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        fields: dict[str, Any] = {**about(self._run, "chat.completion.chunk"), "choices": [choice]}
        if self._usage:
            fields["usage"] = None
        return b"data: %b\n\n" % orjson.dumps(fields)


def _between(head: bytes, tail: bytes) -> Callable[[bytes], bytes]:
    return lambda text: head + text + tail
