"""Requests about existing runs: decisions and outputs, pauses, another try, deletion."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import aclosing
from functools import partial
from typing import Final, TypeVar, assert_never

import orjson

from palaver.errors import IdempotencyMismatch, NoRoom, StateConflict, TimePassed, UnknownRun
from palaver.errors.sentences import Sentence
from palaver.events import EventKind
from palaver.late import dataclass
from palaver.schemas.actions import ApprovalDecision, Item, Pause, QuestionAnswer, Resume, Steering, Stop, ToolOutput
from palaver.schemas.models import Message, Retry, Run, Submission
from palaver.steps.leases import Settled
from palaver.store.reading.events import LogEntry
from palaver.store.reading.recall import Memories
from palaver.store.redis import keys
from palaver.store.runs.runs import Runs, Submitted
from palaver.store.scripting.contracts.declaration import Script
from palaver.store.scripting.contracts.logs import DeleteConversation, Deleted, DeleteRun
from palaver.store.scripting.contracts.replies import Active, Busy, Ended, Mismatch, More, Unknown
from palaver.store.scripting.contracts.runs import Accepted, Act, NewItem, RefusedItem
from palaver.store.scripting.idempotency import IdempotencyKey, IdempotencyRecord, idempotency
from palaver.store.scripting.moving import durable_reply
from palaver.store.scripting.refusals import refusal
from palaver.store.scripting.scripts import Scripts
from palaver.tools.rendering import MAX_RESULT_CHARS, USUAL_RESULT_CHARS, render
from palaver.vocabulary.limits import limit_of

_NEVER_CUT: Final = limit_of("tool_result_least")
"""Characters of an output that no agent's bound is below."""
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Acted:
    """The outcome of a request's items, now or, with ``replayed``, by an earlier request with the same key."""

    settled: Settled
    replayed: bool


class RunControl:
    """Changes of runs that clients ask for."""

    def __init__(self, scripts: Scripts, runs: Runs, memories: Memories) -> None:
        self._scripts = scripts
        self._runs = runs
        self._memories = memories

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
        new = tuple(map(_new_item, items))
        if any(item.type == "output" and len(item.text or "") > _NEVER_CUT for item in new):
            most = (await self._runs.get(run_id)).agent.max_tool_result or USUAL_RESULT_CHARS
            new = tuple(_new_item(item, most) for item in items)
        return await self._act(run_id, new, by, idempotency_key)

    async def _act(self, run_id: str, items: tuple[NewItem, ...], by: str | None, idempotency_key: str | None) -> Acted:
        conversation_id = await self._runs.conversation_of(run_id)
        # What only this process says of an item is no part of a client's request.
        said = [{name: value for name, value in item._asdict().items() if name != "ends"} for item in items]
        what = orjson.dumps(said).decode()
        key = IdempotencyRecord.of(idempotency_key, run_id, what, by)
        act = Act(
            run=keys.of_run(run_id, conversation_id),
            idempotency=key.record,
            fingerprint=key.fingerprint,
            request=key.request,
            by=orjson.dumps(by),
            items=items,
        )
        return await durable_reply(self._scripts.run_durably(act), partial(_acted, run_id, len(items)))

    async def hand_over(self, run_id: str, calls: Sequence[str], *, by: str | None = None) -> Acted:
        """End a run that waits for outputs of these calls alone: the client takes them over. Each has a result that
        says so. Raises as `act`."""
        items = tuple(NewItem("output", call_id, text=Sentence.TAKEN_OVER, ends=True) for call_id in calls)
        return await self._act(run_id, items, by, None)

    async def retry(
        self,
        run_id: str,
        retry: Retry,
        *,
        received: Retry | None = None,
        idempotency_key: str | None = None,
        by: str | None = None,
        agent_by: Collection[str] | None = None,
    ) -> Submitted:
        """Go on where an ended run stopped, with a new run: the work that was done is in the conversation's log.

        With ``from_step`` that is a new conversation, which has everything before that model step of the run.
        ``received`` is the body as it came, as for `Runs.submit`.

        Raises:
            UnknownRun: there is no such run.
            IdempotencyMismatch: the key was used with another request.
            StateConflict: ``run_active``, ``nothing_to_retry``, ``conversation_moved_on``, ``unknown_step``.
            NoRoom, TimePassed, NotDurable: as `Runs.submit`.
        """
        run = await self._runs.get(run_id)
        if not run.status.terminal:
            raise StateConflict("run_active", run_id, f"the run has not ended: it is {run.status}")
        said = received or retry
        key = idempotency(idempotency_key, f"{run_id} {said.model_dump_json(exclude_defaults=True)}", by)
        again = again_of(run, retry)
        if retry.from_step is not None:
            return await self._fork(run, retry.from_step, again, key, by, agent_by)
        if not run.status.allows("retry") or run.withdrawn:
            raise StateConflict("nothing_to_retry", run_id, f"the run is {run.status}; send a new message instead")
        return await self._runs.take_on(
            await self._runs.to_submit(
                again, run.conversation_id, "retry", key, by=by, agent_by=agent_by, retried_from=run_id
            )
        )

    async def _fork(
        self,
        run: Run,
        step: int,
        again: Submission,
        key: IdempotencyKey,
        by: str | None,
        agent_by: Collection[str] | None,
    ) -> Submitted:
        through = await self._position_before(run, step)
        target = self._runs.new_conversation_beside(run.id)
        copied = await self._runs.copy(run.conversation_id, through=through, made_anew=run.id, agent=again.spec)
        try:
            made = await self._runs.take_on(
                await self._runs.to_submit(
                    again, target, "fork", key, by=by, agent_by=agent_by, retried_from=run.id, fork=copied
                )
            )
        except (StateConflict, IdempotencyMismatch, NoRoom, TimePassed):
            # Refused for certain. After any other error there may be a run that has it.
            await self._runs.forget_copy(copied)
            raise
        if made.replayed:
            await self._runs.forget_copy(copied)
        return made

    async def delete_run(self, run_id: str) -> None:
        """Delete an ended run, with its messages. From the beginning of that on it is not shown any more; what breaks
        off may be done again.

        Raises:
            UnknownRun: there is no such run.
            StateConflict: ``run_active``.
        """
        conversation_id = await self._runs.conversation_of(run_id)
        # What it says of the run goes, too.
        await self._memories.bring_back(conversation_id)
        match await self._deleted(DeleteRun(run=keys.of_run(run_id, conversation_id))):
            case Active(status=status):
                raise StateConflict("run_active", run_id, f"the run has not ended: it is {status}; cancel it first")
            case Unknown() | More() | Deleted():
                pass
            case other:
                assert_never(other)

    async def delete_conversation(self, conversation_id: str) -> None:
        """Delete a conversation with all its runs. From the beginning of that on it is not shown any more; what breaks
        off may be done again.

        Raises:
            UnknownConversation: there is none of that id.
            StateConflict: ``conversation_busy``.
        """
        await self._runs.check_there(conversation_id)
        delete = DeleteConversation(conversation=keys.conversation(conversation_id), log=keys.log(conversation_id))
        match await self._deleted(delete):
            case Busy():
                raise StateConflict(
                    "conversation_busy", None, "the conversation has runs that have not ended; cancel them first"
                )
            case Unknown() | More() | Deleted():
                pass
            case other:
                assert_never(other)

    async def _deleted(self, script: Script[R]) -> R:
        """Run a script that deletes a part at a time until it is done: return `Unknown` once all is gone, or why it may
        not.

        When it is done, the script runs once more, as safely as PALAVER_DURABILITY says: a failover may have brought it
        back.
        """
        reply = await self._scripts.run(script)
        while isinstance(reply, More | Deleted):
            ask = self._scripts.run_durably if isinstance(reply, Deleted) else self._scripts.run
            reply = await ask(script)
        return reply

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


def _acted(run_id: str, items: int, reply: Accepted | Ended | Mismatch | RefusedItem | Unknown) -> Acted:
    """Read the reply to so many items. Raises as `RunControl.act`."""
    match reply:
        case Accepted() as done:
            return Acted(Settled(done.status, done.deliveries, done.next_run, due=done.due), done.replayed)
        case Unknown():
            raise UnknownRun(run_id)
        case Mismatch():
            raise IdempotencyMismatch("this Idempotency-Key was used with another request")
        case Ended(status=status):
            raise StateConflict("run_ended", run_id, f"the run has ended and can take no more input: it is {status}")
        case RefusedItem(number, code):
            raise refusal(code, run_id, f"item {number}: " if items > 1 else "")
        case other:
            assert_never(other)


def again_of(run: Run, retry: Retry) -> Submission:
    """Return the submission that goes on with ``run``: a field that ``retry`` does not set stays as it was."""
    return Submission(
        agent=retry.spec or run.agent,
        input=() if retry.input is None else (Message(role="user", content=retry.input),),
        deadline=retry.deadline,
        budget=retry.budget or run.budget,
        metadata=run.metadata,
        tags=run.tags,
        priority=run.priority,
    )


def _new_item(item: Item, most: int = MAX_RESULT_CHARS) -> NewItem:
    """One item for ``act.lua``, with ``most`` characters of an output."""
    match item:
        case ApprovalDecision():
            denied = item.decision == "deny"
            return NewItem(
                item.decision,
                item.action_id,
                digest=item.digest or None,
                arguments=json.dumps(item.arguments, ensure_ascii=False) if item.decision == "edit" else None,
                reason=item.reason or None if denied else None,
                text=" ".join(filter(None, (Sentence.DENIED, item.reason))) if denied else None,
            )
        case ToolOutput():
            return NewItem("output", item.call_id, text=render(item.output, most) or None, is_error=item.is_error)
        case QuestionAnswer():
            answered = {"action": item.response, **({} if item.content is None else {"content": item.content})}
            text = json.dumps(answered, ensure_ascii=False)
            return NewItem("answer", item.action_id, digest=item.digest or None, text=text)
        case Steering():
            message = Message(role="user", content=item.content).model_dump_json(exclude_defaults=True)
            return NewItem("message", text=message)
        case Pause():
            return NewItem("pause", now=item.now, reason=item.reason or None)
        case Resume():
            return NewItem("resume")
        case Stop():
            return NewItem("stop", reason=item.reason or None)
