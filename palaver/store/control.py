"""What is done to runs that are there: decisions and outputs, pauses, another try, deletion."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from secrets import token_hex
from typing import Any, Final

import orjson

from palaver.actions import Decision, Item, Pause, Resume, Steering, ToolOutput
from palaver.errors import IdempotencyMismatch, NoRoom, StateConflict, TimePassed, UnknownRun
from palaver.events import MESSAGES, EventKind
from palaver.ids import new_id, shard_of
from palaver.leases import Settled
from palaver.models import Message, Retry, Run, Submission
from palaver.store import keys
from palaver.store.connection import Value
from palaver.store.events import LogEntry
from palaver.store.runs import (
    CONVERSATION_FULL,
    STEERING_FULL,
    IdempotencyKey,
    Refusal,
    Runs,
    Submitted,
    idempotency,
    sha256,
)
from palaver.store.scripts import Scripts
from palaver.store.steps import settled
from palaver.tools.rendering import render

_REFUSALS: Final = {
    each.code: each
    for each in (
        Refusal("unknown_action", "the run has no such pending action"),
        Refusal("action_already_resolved", "this was decided or answered before"),
        Refusal("action_expired", "nobody decided or answered in time, and the model was told so"),
        Refusal("wrong_action", "an approval takes a decision, a client tool's call an output"),
        Refusal("digest_mismatch", "the call is not the one that was looked at"),
        Refusal("no_pending_action", "no call of the run awaits an approval"),
        Refusal("not_paused", "the run is not paused"),
        CONVERSATION_FULL,
        STEERING_FULL,
    )
}
"""What ``act.lua`` says of items that cannot be put into a run."""


@dataclass(frozen=True, slots=True)
class Acted:
    """What came of a request's items, now or, with ``replayed``, by an earlier request with the same key."""

    settled: Settled
    replayed: bool


class Control:
    """Changes of runs that clients ask for."""

    def __init__(self, scripts: Scripts, runs: Runs) -> None:
        self._scripts = scripts
        self._runs = runs

    async def act(
        self, run_id: str, items: Sequence[Item], *, by: str | None = None, idempotency_key: str | None = None
    ) -> Acted:
        """Put ``items`` into a run, all of them or none; ``by`` is who asks.

        Raises:
            UnknownRun: there is no such run.
            IdempotencyMismatch: the key was used with another request.
            StateConflict: ``run_ended``, or what is wrong with an item (``unknown_action``,
                ``action_already_resolved``, ``action_expired``, ``wrong_action``, ``digest_mismatch``,
                ``no_pending_action``, ``not_paused``), or that there is no room for the user's words
                (``conversation_full``, ``steering_full``).
            NotDurable: done, but not as safely as PALAVER_DURABILITY asks; with the same key it is found.
        """
        conversation_id = await self._runs.conversation_of(run_id)
        told = orjson.dumps([_told(item) for item in items])
        key, request = idempotency(idempotency_key, f"{run_id} {told.decode()}", by), token_hex(16)
        record = keys.idempotency(shard_of(run_id), key.digest or sha256(request))
        reply = await self._scripts.promise(
            "act",
            (*keys.of_run(run_id, conversation_id), record),
            (key.fingerprint, request, orjson.dumps(by), told),
        )
        match reply[0]:
            case b"unknown":
                raise UnknownRun(f"there is no run {run_id}")
            case b"mismatch":
                raise IdempotencyMismatch("this Idempotency-Key was used with another request")
            case b"ended":
                raise StateConflict(
                    "run_ended", run_id, f"the run takes nothing in any more: it is {reply[1].decode()}"
                )
            case b"refused":
                code = reply[2].decode()
                where = f"item {reply[1]}: " if len(items) > 1 else ""
                raise _REFUSALS[code].about(run_id, where)
            case _:
                return Acted(settled(reply, run_id, conversation_id), reply[0] == b"replayed")

    async def retry(
        self, run_id: str, wanted: Retry, *, idempotency_key: str | None = None, by: str | None = None
    ) -> Submitted:
        """Go on where an ended run stopped, with a new run: the work that was done is in the conversation's log.

        With ``from_step`` that is a new conversation, which has everything before that model step of the run.

        Raises:
            UnknownRun: there is no such run.
            IdempotencyMismatch: the key was used with another request.
            StateConflict: ``run_active``, ``nothing_to_retry``, ``conversation_moved_on``, ``unknown_step``.
            NoRoom, TimePassed, NotDurable: as `Runs.submit`.
        """
        run = await self._runs.get(run_id)
        if not run.status.terminal:
            raise StateConflict("run_active", run_id, f"the run has not ended: it is {run.status}")
        key = idempotency(idempotency_key, f"{run_id} {wanted.model_dump_json(exclude_defaults=True)}", by)
        again = Submission(
            agent=wanted.agent or run.agent,
            input=() if wanted.input is None else (Message(role="user", content=wanted.input),),
            deadline=wanted.deadline,
            budget=wanted.budget or run.budget,
            metadata=run.metadata,
            tags=run.tags,
        )
        if wanted.from_step is not None:
            return await self._fork(run, wanted.from_step, again, key)
        if not run.status.allows("retry") or run.withdrawn:
            raise StateConflict("nothing_to_retry", run_id, f"the run is {run.status}; send a new message instead")
        again = again.model_copy(update={"input": await self._left_to_say(run)})
        return await self._runs.take_on(again, run.conversation_id, "retry", key, retried_from=run_id)

    async def _fork(self, run: Run, step: int, again: Submission, key: IdempotencyKey) -> Submitted:
        through = await self._position_before(run, step)
        target = new_id("conv", shard_of(run.id))
        copied = await self._runs.copy(run.conversation_id, target, through=through, made_anew=run.id)
        try:
            made = await self._runs.take_on(again, target, "fork", key, retried_from=run.id, fork=copied)
        except (StateConflict, IdempotencyMismatch, NoRoom, TimePassed):
            # Refused for certain. After any other error there may be a run that has it.
            await self._runs.forget_copy(target)
            raise
        if made.replayed:
            await self._runs.forget_copy(target)
        return made

    async def delete_run(self, run_id: str) -> None:
        """Delete an ended run, with what it said. From the beginning of that on nobody is shown it; what breaks off may
        be done again.

        Raises:
            UnknownRun: there is no such run.
            StateConflict: ``run_active``.
        """
        conversation_id = await self._runs.conversation_of(run_id)
        names = (*keys.of_run(run_id, conversation_id), keys.runs(shard_of(run_id)))
        reply = await self._deleted("delete_run", names, ())
        if reply[0] == b"active":
            raise StateConflict(
                "run_active", run_id, f"the run has not ended: it is {reply[1].decode()}; cancel it first"
            )

    async def delete_conversation(self, conversation_id: str) -> None:
        """Delete a conversation with all its runs. From the beginning of that on nobody is shown it; what breaks off
        may be done again.

        Raises:
            UnknownConversation: there is none of that id.
            StateConflict: ``conversation_busy``.
        """
        await self._runs.check_there(conversation_id)
        shard = shard_of(conversation_id)
        names = (keys.conversation(conversation_id), keys.log(conversation_id), keys.runs(shard))
        reply = await self._deleted("delete_conversation", names, (keys.prefix(shard),))
        if reply[0] == b"busy":
            raise StateConflict(
                "conversation_busy", None, "the conversation has runs that have not ended; cancel them first"
            )

    async def _deleted(self, name: str, names: Sequence[str], args: Sequence[Value]) -> Any:
        """What a script that deletes a part at a time says in the end: ``unknown`` once all is gone, or why it may not.

        Asked once more when it is done, as safely as PALAVER_DURABILITY says: a failover may have brought it back.
        """
        reply = [b"more"]
        while reply[0] in (b"more", b"deleted"):
            ask = self._scripts.promise if reply[0] == b"deleted" else self._scripts.run
            reply = await ask(name, names, args)
        return reply

    async def _left_to_say(self, run: Run) -> tuple[Message, ...]:
        """What the run was to say when its turn never came; nothing otherwise: it is in the log."""
        said = await self._runs.waiting_input(run.id)
        if said:
            return said
        begins = await self._runs.begins_at(run.id)
        # A run that went on with another one may have said nothing of its own.
        newest = await self._last_said(run, begins) or (await self._last_said(run, 0) if begins else None)
        if newest is None or (newest["role"] == "assistant" and not newest.get("tool_calls")):
            raise StateConflict("nothing_to_retry", run.id, "the model has answered; send a new message instead")
        return ()

    async def _last_said(self, run: Run, after: int) -> dict[str, Any] | None:
        """The newest message when the run ended, if it is behind position ``after`` of the log."""
        newest: dict[str, Any] | None = None
        async for entry in self._log(run, after):
            if entry.type in MESSAGES:
                newest = entry.data["message"]
            if entry.run_id == run.id and entry.type == EventKind.RUN_FINISHED:
                break
        return newest

    async def _position_before(self, run: Run, step: int) -> int:
        """The log position right before the answer of the run's model step ``step``, or where that failed."""
        async for entry in self._log(run, await self._runs.begins_at(run.id)):
            if entry.run_id != run.id:
                continue
            # Of the messages, only answers of the model are of a step.
            answer = entry.type == EventKind.MESSAGE_CREATED and entry.data.get("step") == str(step)
            if answer or (entry.type == EventKind.RUN_FINISHED and step == run.step):
                return entry.position - 1
        raise StateConflict("unknown_step", run.id, f"the run has made no model step {step}")

    async def _log(self, run: Run, after: int) -> AsyncIterator[LogEntry]:
        """The log of the run's conversation behind position ``after``."""
        async with aclosing(self._runs.pages(run.conversation_id, after=after)) as pages:
            async for page in pages:
                for entry in page:
                    yield entry


def _told(item: Item) -> dict[str, Any]:
    """One item for ``act.lua``."""
    match item:
        case Decision():
            told: dict[str, Any] = {"type": item.decision, "action": item.action_id}
            if item.digest is not None:
                told["digest"] = item.digest
            if item.decision == "edit":
                told["arguments"] = json.dumps(item.arguments, ensure_ascii=False)
            if item.decision == "deny":
                told["text"] = "The user denied this tool call." + (f" {item.reason}" if item.reason else "")
                if item.reason:
                    told["reason"] = item.reason
            return told
        case ToolOutput():
            return {
                "type": "output",
                "action": item.call_id,
                "content": render(item.output),
                "is_error": item.is_error,
            }
        case Steering():
            message = Message(role="user", content=item.content).model_dump_json(exclude_defaults=True)
            return {"type": "message", "message": message}
        case Pause():
            return {"type": "pause", "now": item.now}
        case Resume():
            return {"type": "resume"}
