"""A run as a test sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

import orjson
from pydantic import TypeAdapter

from palaver.errors import ErrorObject
from palaver.events import EventKind
from palaver.schemas.actions import Item, PendingAction
from palaver.schemas.conversation import ConversationMessage
from palaver.schemas.models import Run, Usage
from palaver.store.reading.events import StoredEvent
from palaver.tools import Tool
from palaver.vocabulary.lifecycle import RunStatus, StopReason

from .engine import Engine
from .functions import MadeCall
from .stepped_loop import SteppedLoop

_ITEM: Final[TypeAdapter[Item]] = TypeAdapter(Item)


class LocalRun:
    """A run as it was when it ended, or began to wait for a person. `goes_on` brings it further."""

    shown: Run
    """All that the API shows of it."""
    messages: list[ConversationMessage]
    """The messages of its conversation, as the API shows them."""
    events: list[StoredEvent]
    """Its events, each with ``type`` and ``data``."""

    def __init__(self, engine: Engine, loop: SteppedLoop, begun: Sequence[MadeCall]) -> None:
        self._engine = engine
        self._loop = loop
        self._begun = begun
        self._items: list[dict[str, Any]] = []
        self._cancelled = False

    def __repr__(self) -> str:
        return f"<run {self.id}: {self.status}, output={self.output!r:.200}, error={self.error!r:.500}>"

    @property
    def id(self) -> str:
        """Its id."""
        return self.shown.id

    @property
    def conversation_id(self) -> str:
        """The conversation to go on with: ``palaver_runs.run("…", conversation_id=run.conversation_id)``."""
        return self.shown.conversation_id

    @property
    def status(self) -> RunStatus:
        """Its status, such as ``completed`` or ``requires_action``."""
        return self.shown.status

    @property
    def stop_reason(self) -> StopReason | None:
        """The reason why it ended."""
        return self.shown.stop_reason

    @property
    def output(self) -> str | None:
        """The last words of the model, or what a tool ended the run with."""
        return self.shown.output

    @property
    def error(self) -> ErrorObject | None:
        """The error of a run that failed: ``run.error["class"]``."""
        return self.shown.error

    @property
    def usage(self) -> Usage:
        """Tokens and calls."""
        return self.shown.usage

    @property
    def pending_actions(self) -> Sequence[PendingAction]:
        """The calls that it waits for, those of agents below it among them."""
        return self.shown.all_pending

    @property
    def retries(self) -> list[dict[str, Any]]:
        """The data of the events ``run.retrying``: attempts that failed and were made again, with their delays."""
        return [event.data for event in self.events if event.type == EventKind.RUN_RETRYING]

    def calls(self, tool: str | Tool) -> list[dict[str, Any]]:
        """The arguments of the calls of a tool that began, in order, as the model wrote them. One that is tried again
        is there again; one that was denied, or did not fit, is not."""
        name = tool.name if isinstance(tool, Tool) else tool
        return [call.arguments for call in self._begun if (call.run_id, call.tool) == (self.id, name)]

    def approve(self, action: str = "all") -> Self:
        """Let calls begin that wait for an approval: all of them, or the one of this action."""
        return self.sends({"type": "approval", "action_id": action, "decision": "approve"})

    def deny(self, reason: str | None = None, action: str = "all") -> Self:
        """Deny them; the model is told the reason."""
        return self.sends({"type": "approval", "action_id": action, "decision": "deny", "reason": reason})

    def answer(self, call: str | PendingAction, output: Any, *, is_error: bool = False) -> Self:
        """Give the output of a client tool: of the tool of that name, of a call's id, or of a pending action."""
        named = [each for each in self.pending_actions if call in (each, each.call_id, each.id, each.tool)]
        call_id = named[0].call_id if named else str(call)
        return self.sends({"type": "tool_output", "call_id": call_id, "output": output, "is_error": is_error})

    def sends(self, *items: Mapping[str, Any]) -> Self:
        """Put items of ``POST /v1/runs/{id}/input`` into the run, such as ``{"type": "message", "content": "…"}``. They
        are sent together once it goes on."""
        self._items += map(dict, items)
        return self

    def cancel(self) -> Self:
        """Cancel it, once it goes on."""
        self._cancelled = True
        return self

    def goes_on(self, *, by: str | None = None) -> Self:
        """Send what was given to it, with a key of the name ``by``, and bring it to its end or to the next wait for a
        person.

        Raises:
            Refused, StateConflict: the API would refuse what was given; says why.
            AssertionError: as `palaver_runs.run`.
        """
        return self._loop.complete(self.agoes_on(by=by))

    async def agoes_on(self, *, by: str | None = None) -> Self:
        """The same on the loop of the test."""
        items, self._items = self._items, []
        read = [_ITEM.validate_json(orjson.dumps(item)) for item in items]
        return await self.look(await self._engine.resume(self.id, read, by, cancelled=self._cancelled))

    async def look(self, run: Run) -> Self:
        """Show the run as it is."""
        self.shown, self.messages, self.events = run, *await self._engine.read(run)
        return self
