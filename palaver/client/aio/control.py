"""Operations on existing runs: stop them, decide on their calls, speak into them, go on, forget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Unpack

from palaver.client.aio.transport import ApiTransport
from palaver.client.answers import (
    BulkResult,
    appended_of,
    bulk_of,
    conversation_of,
    run_of,
    secret_names_of,
    side_answer_of,
)
from palaver.client.errors import NotFound
from palaver.client.options import BulkOptions, check, named_or_wire
from palaver.client.requests import conversations, runs
from palaver.client.requests.request import BULK_PAGE, Request, budget_object, moment, without_none
from palaver.schemas.actions import ALL, Item
from palaver.schemas.conversation import AppendedMessages, Conversation, SideAnswer
from palaver.schemas.models import AgentSpec, Budget, CancelMode, Message, Run
from palaver.vocabulary.lifecycle import RunAction


class AsyncRunControl:
    """The methods of the client that change a run or a conversation."""

    _transport: ApiTransport

    async def cancel(
        self,
        run_id: str,
        reason: str | None = None,
        mode: CancelMode = "now",
        *,
        idempotency_key: str | None = None,
    ) -> Run:
        """Ask the run to stop; returns it, cancelling or already cancelled. Asking twice is asking once.

        ``graceful`` lets work that is under way finish, ``now`` stops it, ``rollback`` also withdraws the run's
        messages. A stronger mode takes over from a weaker one.

        Raises:
            Conflict: it had ended otherwise before (``run_ended``).
            NotFound: there is no such run.
            APIError, ConnectionFailed: it could not be asked.
        """
        return run_of(await self._transport.call(runs.cancel_run(run_id, reason, mode, idempotency_key)))

    async def send(
        self, run_id: str, items: Sequence[Item | Mapping[str, Any]], *, idempotency_key: str | None = None
    ) -> Run:
        """Put several things into the run at once: all of them take effect, or none. Returns the run by that.

        Items are those of `palaver.schemas.actions`, or dicts as the API takes them. The request carries an idempotency
        key, a fresh one unless given: it is sent again after a lost answer and takes effect once.

        Raises:
            Conflict: an item cannot be; ``code`` and the message say why, ``pending_actions`` what could.
            NotFound: there is no such run.
            APIError, ConnectionFailed: it could not be done.
            ValueError: no items.
        """
        return run_of(await self._transport.call(runs.send_input(run_id, items, idempotency_key)))

    async def approve(
        self,
        run_id: str,
        action_id: str = ALL,
        arguments: Mapping[str, Any] | None = None,
        *,
        digest: str | None = None,
        idempotency_key: str | None = None,
    ) -> Run:
        """Let a call run that waits for an approval, or all of them; with other ``arguments`` if given.

        With the ``digest`` of the pending action it is about exactly the call that was looked at.

        Raises:
            Conflict: nothing waits for an approval, or not this; the message says why. As `send`.
            ValueError: ``arguments`` or a ``digest`` for all of them.
        """
        if action_id == ALL and (arguments is not None or digest is not None):
            raise ValueError("arguments and digest are of one action: name its action_id")
        changed = None if arguments is None else dict(arguments)
        decision = "approve" if changed is None else "edit"
        return await self._decide(run_id, action_id, decision, idempotency_key, arguments=changed, digest=digest)

    async def deny(
        self,
        run_id: str,
        action_id: str = ALL,
        reason: str | None = None,
        *,
        digest: str | None = None,
        stop: bool = False,
        idempotency_key: str | None = None,
    ) -> Run:
        """Refuse a call that waits for an approval, or all of them; the model gets the ``reason``.

        With ``stop`` it is not asked what to do now: the run ends as cancelled once work that is under way has
        finished, and the next run of the conversation goes on from there.

        Raises:
            Conflict: as `approve`.
            ValueError: a ``digest`` for all of them.
        """
        if action_id == ALL and digest is not None:
            raise ValueError("a digest is of one action: name its action_id")
        more = ({"type": "stop"},) if stop else ()
        return await self._decide(run_id, action_id, "deny", idempotency_key, more, reason=reason, digest=digest)

    async def answer(
        self,
        run_id: str,
        call_id: str,
        output: Any,
        is_error: bool = False,
        *,
        idempotency_key: str | None = None,
    ) -> Run:
        """Give the output of a client tool's call; ``call_id`` is the call's or its pending action's.

        Text goes to the model as it is, and anything else as JSON.

        Raises:
            Conflict: the run does not wait for it (any more). As `send`.
        """
        item = {"type": "tool_output", "call_id": call_id, "output": output, "is_error": is_error}
        return await self.send(run_id, [item], idempotency_key=idempotency_key)

    async def respond(
        self,
        run_id: str,
        action_id: str,
        response: Literal["accept", "decline", "cancel"] = "accept",
        content: Mapping[str, Any] | None = None,
        *,
        digest: str | None = None,
        idempotency_key: str | None = None,
    ) -> Run:
        """Answer a question that a server asks in the middle of a call; ``content`` is its form, filled in.

        Raises:
            Conflict: the run does not wait for it (any more). As `send`.
        """
        item: dict[str, Any] = {"type": "answer", "action_id": action_id, "response": response}
        if content is not None:
            item["content"] = dict(content)
        if digest is not None:
            item["digest"] = digest
        return await self.send(run_id, [item], idempotency_key=idempotency_key)

    async def steer(self, run_id: str, text: str, *, idempotency_key: str | None = None) -> Run:
        """Say something into the run: its next model call sees it.

        Raises:
            Conflict: it has ended (``run_ended``). As `send`.
        """
        return await self.send(run_id, [{"type": "message", "content": text}], idempotency_key=idempotency_key)

    async def append(
        self,
        conversation_id: str,
        input: str | Sequence[Message | Mapping[str, Any]],
        *,
        idempotency_key: str | None = None,
    ) -> AppendedMessages:
        """Add a message to a conversation without a run: no model is called for it. An active run sees it in its next
        model call; else the next run answers it, and ``submit([], conversation_id=…)`` is one that does nothing else.

        Raises:
            NotFound: there is no such conversation.
            Conflict: it has no room.
            APIError, ConnectionFailed: it could not be said.
        """
        request = conversations.append(conversation_id, input, idempotency_key)
        return appended_of(await self._transport.call(request))

    async def condense(self, conversation_id: str, *, idempotency_key: str | None = None) -> Run:
        """Begin a run that puts a summary in the place of the conversation's older part, and does nothing else.

        It completes without ``conversation.condensed`` among its events if nothing of the conversation would go away.

        Raises:
            Conflict: a run is active (``conversation_busy``), or too little was said, or since it was condensed last
                (``nothing_to_condense``).
            NotFound: there is no such conversation.
            APIError, ConnectionFailed: it could not be begun.
        """
        return run_of(await self._transport.call(conversations.condense(conversation_id, idempotency_key)))

    async def ask(self, conversation_id: str, question: str, seconds: float = 30.0) -> SideAnswer:
        """Ask the conversation's agent a question, with all of its messages. The conversation has no trace of it.
        ``seconds`` is how long the answer may take, at most 60.

        Raises:
            Conflict: the model gave no answer (``no_answer``); the message says why.
            NotFound: there is no such conversation.
            APIError, ConnectionFailed: it could not be asked.
        """
        return side_answer_of(await self._transport.call(conversations.ask(conversation_id, question, seconds)))

    async def withdraw(self, conversation_id: str, after: int, *, idempotency_key: str | None = None) -> Conversation:
        """Go back to position ``after`` of the conversation's log: models do not see any more what follows. It stays in
        the log, marked as withdrawn.

        Raises:
            Conflict: a run is active (``conversation_busy``).
            Unprocessable: a turn would be torn there, or there is no such place (``unknown_position``).
            NotFound: there is no such conversation.
            APIError, ConnectionFailed: it could not be done.
        """
        return conversation_of(
            await self._transport.call(conversations.withdraw(conversation_id, after, idempotency_key))
        )

    async def fork(
        self,
        conversation_id: str,
        through: int | None = None,
        *,
        agent: AgentSpec | Mapping[str, Any] | str | None = None,
        title: str | None = None,
        idempotency_key: str | None = None,
    ) -> Conversation:
        """A new conversation that begins with the log of this one, up to position ``through`` if given. A field that is
        left out is as in that one.

        Raises:
            Unprocessable: a turn would be torn there, or there is no such place (``unknown_position``).
            NotFound: there is no such conversation.
            APIError, ConnectionFailed: it could not be made.
        """
        body = {"through": through, "agent": named_or_wire(agent), "title": title}
        return conversation_of(await self._transport.call(conversations.fork(conversation_id, body, idempotency_key)))

    async def pause(self, run_id: str, now: bool = False, *, idempotency_key: str | None = None) -> Run:
        """Let the run begin nothing more; it is ``pausing`` until nothing is under way, then ``paused``.

        ``now`` also aborts a model call that is under way; resuming makes it again.

        Raises:
            Conflict: it has ended (``run_ended``). As `send`.
        """
        return await self.send(run_id, [{"type": "pause", "now": now}], idempotency_key=idempotency_key)

    async def resume(self, run_id: str, *, idempotency_key: str | None = None) -> Run:
        """Let a paused run go on where it was.

        Raises:
            Conflict: it is not paused (``not_paused``), or has ended. As `send`.
        """
        return await self.send(run_id, [{"type": "resume"}], idempotency_key=idempotency_key)

    async def retry(
        self,
        run_id: str,
        from_step: int | None = None,
        *,
        input: str | None = None,
        agent: AgentSpec | Mapping[str, Any] | str | None = None,
        budget: Budget | Mapping[str, float] | None = None,
        deadline: datetime | None = None,
        idempotency_key: str | None = None,
    ) -> Run:
        """Go on with an ended run where it stopped: a new run in its conversation, which is returned.

        With ``from_step`` it is a fork: a new conversation with everything before that model step, and then
        ``input``, if given. ``agent``, ``budget`` and ``deadline`` are the old run's unless given.

        Raises:
            Conflict: it has not ended, left nothing to go on with, or another run came after it.
            NotFound: there is no such run.
            APIError, ConnectionFailed: it could not be done; `Unprocessable` for a step that it has not.
            ValueError: a time without a zone.
        """
        body = {
            "from_step": from_step,
            "input": input,
            "agent": named_or_wire(agent),
            "budget": budget_object(budget),
            "deadline": moment("deadline", deadline),
        }
        return run_of(await self._transport.call(runs.retry_run(run_id, body, idempotency_key)))

    async def delete(self, run_id: str) -> None:
        """Forget a run that has ended, with its events and messages.

        Raises:
            Conflict: it has not ended (``run_active``).
            NotFound: there is no such run.
            APIError, ConnectionFailed: it could not be done.
        """
        await self._delete(runs.delete_run(run_id))

    async def delete_conversation(self, conversation_id: str) -> None:
        """Forget a conversation, with all its runs.

        Raises:
            Conflict: a run of it has not ended (``conversation_busy``).
            NotFound: there is no such conversation.
            APIError, ConnectionFailed: it could not be done.
        """
        await self._delete(conversations.delete_conversation(conversation_id))

    async def set_secrets(self, conversation_id: str, secrets: Mapping[str, str | None]) -> tuple[str, ...]:
        """Set secrets of a conversation by name, for its tools, and remove those that are None; others stay as they
        are. The names of all that it has then.

        Raises:
            Conflict: it has as many as it may (``secrets_full``).
            NotFound: there is no such conversation.
            APIError, ConnectionFailed: it could not be done; ``no_secret_key``, the server keeps no secrets.
        """
        return secret_names_of(await self._transport.call(conversations.set_secrets(conversation_id, secrets)))

    async def secret_names(self, conversation_id: str) -> tuple[str, ...]:
        """The names of a conversation's secrets; their values are never shown.

        Raises:
            NotFound: there is no such conversation.
            APIError, ConnectionFailed: it cannot be asked.
        """
        return secret_names_of(await self._transport.call(conversations.get_secret_names(conversation_id)))

    async def bulk(
        self,
        action: RunAction,
        *,
        dry_run: bool = False,
        **options: Unpack[BulkOptions],
    ) -> BulkResult:
        """Cancel, retry or delete every run that fits all conditions; returns once all were looked at.

        ``agent`` is an agent's name, ``older_than`` the seconds since a run was submitted. Every run there is needs
        ``all=True`` in the place of a filter. ``mode`` and ``reason`` go with ``cancel``. With ``dry_run`` nothing is
        done: the result says to how many runs it would be. A refusal for a run is counted, not raised.

        Raises:
            Unprocessable: no filter and not ``all``, or both.
            APIError, ConnectionFailed: not all were looked at. Asking again does the rest.
            ValueError: a time without a zone, or an empty ``status``.
        """
        check(options, BulkOptions)
        total, cursor = BulkResult(), None
        while True:
            request = runs.act_on_runs(action, options, dry_run=dry_run, limit=BULK_PAGE, cursor=cursor)
            done, cursor = bulk_of(await self._transport.call(request))
            total += done
            if cursor is None:
                return total

    async def _decide(
        self,
        run_id: str,
        action_id: str,
        decision: str,
        idempotency_key: str | None,
        more: Sequence[Mapping[str, Any]] = (),
        **details: Any,
    ) -> Run:
        item = without_none({"type": "approval", "action_id": action_id, "decision": decision, **details})
        return await self.send(run_id, [item, *more], idempotency_key=idempotency_key)

    async def _delete(self, request: Request) -> None:
        try:
            await self._transport.call(request)
        except NotFound as error:
            # A thing that is not there after a lost answer was deleted by that request.
            if not error.perhaps_done:
                raise
