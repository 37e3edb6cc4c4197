"""Taking runs on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from palaver.actions import Approvals
from palaver.client import answers, requests
from palaver.client.agents import agent_object
from palaver.client.core.waiting import LONG_POLL, Waiting
from palaver.client.flow import Flow
from palaver.client.functions import ClientTools, Offer
from palaver.client.requests import Until
from palaver.errors import RunFailed
from palaver.lifecycle import RunStatus
from palaver.models import AgentSpec, Budget, Conversation, Message, OnConflict, Run


class Submitting(Waiting):
    """Submit, with or without staying."""

    __slots__ = ()

    def submit(
        self,
        input: str | Sequence[Message | Mapping[str, Any]],
        *,
        agent: AgentSpec | Mapping[str, Any] | None = None,
        model: str | None = None,
        instructions: str | None = None,
        tools: Sequence[str] = (),
        client_tools: ClientTools = (),
        approvals: Approvals | Mapping[str, Any] | str | Sequence[str] | None = None,
        max_steps: int | None = None,
        conversation_id: str | None = None,
        on_conflict: OnConflict | None = None,
        start_after: datetime | None = None,
        start_by: datetime | None = None,
        deadline: datetime | None = None,
        budget: Budget | Mapping[str, float] | None = None,
        metadata: Mapping[str, str] | None = None,
        tags: Sequence[str] = (),
        idempotency_key: str | None = None,
        wait: int = 0,
    ) -> Flow[Run]:
        """Submit a run; returns it as it is then, mostly queued.

        Say who answers with ``agent``, or with ``model`` and, if wanted, ``instructions``, ``tools``, ``approvals``
        and ``max_steps``, or with neither to go on with the conversation's own. ``client_tools`` go with the first
        two; here they are only declared (`wait` answers calls of functions, `answer` those of others). ``approvals``
        is a policy, or what it requires: ``"never"``, ``"risky"``, ``"always"``, or names and globs.

        The request carries an idempotency key, a fresh one unless given, so that it is sent again after a lost
        answer without making a second run. With ``wait`` the answer comes when the run has ended or needs
        somebody, or after so many seconds. With ``on_conflict="steer"`` it may be the run that is going on.

        Raises:
            APIError: the API refused it; `Unprocessable` names the fields, `Conflict` says what is in the way.
            ConnectionFailed: no answer, several times. With your own ``idempotency_key`` you may try again.
            ValueError: arguments that do not go together, or a time without a zone.
            ConfigurationError: a function in ``client_tools`` cannot be a tool.
        """
        offer = Offer.of(client_tools)
        spec = agent_object(
            agent,
            model=model,
            instructions=instructions,
            tools=tools,
            max_steps=max_steps,
            approvals=approvals,
            offer=offer,
        )
        if spec is None and offer.declarations:
            raise ValueError("client_tools given without a model or an agent: nobody would be told of them")
        request = requests.submit_run(
            input=input,
            agent=spec,
            conversation_id=conversation_id,
            on_conflict=on_conflict,
            start_after=start_after,
            start_by=start_by,
            deadline=deadline,
            budget=budget,
            metadata=metadata,
            tags=tags,
            idempotency_key=idempotency_key,
            wait=wait,
        )
        return answers.run_of((yield from self._call(request, wait)))

    def run(
        self,
        input: str | Sequence[Message | Mapping[str, Any]],
        *,
        agent: AgentSpec | Mapping[str, Any] | None = None,
        model: str | None = None,
        instructions: str | None = None,
        tools: Sequence[str] = (),
        client_tools: ClientTools = (),
        approvals: Approvals | Mapping[str, Any] | str | Sequence[str] | None = None,
        max_steps: int | None = None,
        conversation_id: str | None = None,
        on_conflict: OnConflict | None = None,
        start_after: datetime | None = None,
        start_by: datetime | None = None,
        deadline: datetime | None = None,
        budget: Budget | Mapping[str, float] | None = None,
        metadata: Mapping[str, str] | None = None,
        tags: Sequence[str] = (),
        idempotency_key: str | None = None,
        timeout: float | None = None,
        until: Until = "action",
        raise_on_failure: bool = True,
    ) -> Flow[Run]:
        """`submit` and `wait` in one; calls of functions in ``client_tools`` are answered here.

        Returns the ended run, or one that is paused or needs somebody: then it has ``pending_actions``, and `wait`
        goes on with it. With ``until="terminal"`` it waits until somebody has acted.
        With neither ``agent`` nor ``model``, functions answer for the agent that the conversation has.

        Raises:
            RunFailed: its status is ``failed``, unless ``raise_on_failure`` is False. Other ends return.
            WaitTimeout: it did not come so far within ``timeout`` seconds; it goes on.
            APIError, ConnectionFailed, ValueError, ConfigurationError: as `submit` and `wait`.
        """
        begun = self.now()
        offer = Offer.of(client_tools)
        answers_only = agent is None and model is None and len(offer.functions) == len(offer.declarations)
        run = yield from self.submit(
            input,
            agent=agent,
            model=model,
            instructions=instructions,
            tools=tools,
            client_tools=() if answers_only else client_tools,
            approvals=approvals,
            max_steps=max_steps,
            conversation_id=conversation_id,
            on_conflict=on_conflict,
            start_after=start_after,
            start_by=start_by,
            deadline=deadline,
            budget=budget,
            metadata=metadata,
            tags=tags,
            idempotency_key=idempotency_key,
            wait=LONG_POLL if timeout is None else int(min(timeout, LONG_POLL)),
        )
        left = None if timeout is None else max(timeout - (self.now() - begun), 0.0)
        run = yield from self._stay(run.id, run, left, until, offer)
        if raise_on_failure and run.status is RunStatus.FAILED:
            raise RunFailed(run.error or {}, run.id)
        return run

    def create_conversation(
        self,
        *,
        agent: AgentSpec | Mapping[str, Any] | None = None,
        model: str | None = None,
        instructions: str | None = None,
        tools: Sequence[str] = (),
        client_tools: ClientTools = (),
        approvals: Approvals | Mapping[str, Any] | str | Sequence[str] | None = None,
        max_steps: int | None = None,
    ) -> Flow[Conversation]:
        """Begin a conversation without a run; the agent as in `submit`.

        Raises:
            APIError, ConnectionFailed, ValueError: as `submit`, but a lost answer is not asked for again.
        """
        spec = agent_object(
            agent,
            model=model,
            instructions=instructions,
            tools=tools,
            max_steps=max_steps,
            approvals=approvals,
            offer=Offer.of(client_tools),
        )
        return answers.conversation_of((yield from self._call(requests.create_conversation(spec))))
