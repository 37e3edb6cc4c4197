"""The stream of a chat completion: chunks of text, and then the calls or the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any, Final

import orjson

from api.kit.streams import EventStream, Outlet
from palaver import operations
from palaver.events import EventKind
from palaver.operations import Backend, Caller, StoredEvent
from palaver.schemas.models import Run

from .completions import about, answer_of, finish_of, let_go, refusal_of, usage_of
from .shown import KEEP_ALIVE, LATEST, QUIET
from .wire import ChatCreate

_DONE: Final = b"data: [DONE]\n\n"
_MARK: Final = "<the text of a chunk>"
"""The place of the text; behind it, nothing in a chunk comes from a request."""
_APART: Final = "\n\n"
"""The text between two messages of a run: a completion has one."""


class ChatText:
    """The text of a completion, made of a run's events. It only grows: what was shown of an attempt that failed cannot
    be taken back. So the next attempt shows nothing as long as it says the same, and then goes on; where it says
    something else, it begins behind a blank line."""

    def __init__(self) -> None:
        self._attempt: tuple[str, int] | None = None
        self._shown = ""
        self._said = ""
        self._stale = ""
        """The text that the client has of an attempt that failed, and that this one has not gone beyond."""
        self._any = False

    def add(self, event: StoredEvent) -> str:
        """Return what an event adds to the text."""
        match event.type:
            case EventKind.MESSAGE_DELTA:
                data = event.data
                return self._more(data["step"], data["attempt"], data["text"])
            case EventKind.MESSAGE_CREATED:
                return self._whole(event.data)
        return ""

    def tail(self, event: StoredEvent) -> str | None:
        """Return the text of a delta that only goes on with what is shown; None for any other event. If it was sent,
        ``passed`` has to be told."""
        if event.type != EventKind.MESSAGE_DELTA or self._stale or self._attempt is None:
            return None
        data = LATEST.of(event)
        goes_on = data["step"] == self._attempt[0] and data["attempt"] == self._attempt[1]
        return data["text"] or None if goes_on else None

    def passed(self, text: str) -> None:
        """Note that the text of a tail was sent."""
        self._said += text
        self._shown += text

    def _more(self, step: str, attempt: int, text: str) -> str:
        added = ""
        if self._attempt != (step, attempt):
            if self._attempt is not None and self._attempt[0] == step:
                self._stale, self._shown = self._stale or self._shown, ""
            elif self._any:
                added = _APART
            self._attempt, self._said = (step, attempt), ""
        self._said += text
        if self._stale:
            if self._stale.startswith(self._said):
                return added
            same = self._said.startswith(self._stale)
            text = self._said.removeprefix(self._stale) if same else f"{_APART}{self._said}"
            self._stale = ""
            self._shown = self._said
        else:
            self._shown += text
        self._any = True
        return added + text

    def _whole(self, data: Mapping[str, Any]) -> str:
        message, step = data["message"], data.get("step")
        if step is None or message["role"] != "assistant" or not isinstance(message.get("content"), str):
            return ""
        text = message["content"]
        if self._attempt is None or self._attempt[0] != step:
            return self._more(step, 0, text) if text else ""
        # Deltas can be lost, with the process that made them; and it may end before it came to where the one before had
        # been.
        seen, self._stale = self._stale or self._said, ""
        if not text or text == seen:
            return ""
        return text.removeprefix(seen) if text.startswith(seen) else f"{_APART}{text}"


class ChatOutlet(Outlet):
    """The way of deltas to a client that has all before them."""

    def __init__(self, text: ChatText, chunk: Callable[[str], bytes]) -> None:
        super().__init__(StoredEvent.to_json)
        self._text = text
        self._chunk = chunk

    def pass_on(self, event: StoredEvent) -> bool:
        """Send a delta at once, if that can be; tell whether it was."""
        more = None if self.connection is None else self._text.tail(event)
        if more is None or self.connection is None or not self.connection.write_chunk(self._chunk(more)):
            return False
        self._text.passed(more)
        return True


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
        self._text = ChatText()
        self._head, self._tail = self._chunk({"content": _MARK}).rsplit(orjson.dumps(_MARK), 1)
        outlet = ChatOutlet(self._text, self._said)
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
                        yield self._said(more) if more else KEEP_ALIVE
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

    def _said(self, text: str) -> bytes:
        """Return the chunk of a text: most of it is that of the one before."""
        return self._head + orjson.dumps(text) + self._tail

    def _chunk(self, delta: Mapping[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        fields: dict[str, Any] = {**about(self._run, "chat.completion.chunk"), "choices": [choice]}
        if self._usage:
            fields["usage"] = None
        return b"data: %b\n\n" % orjson.dumps(fields)
