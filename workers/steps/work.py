"""What a step's function gets: its lease, the conversation as the model sees it, and a way to show progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pydantic import SecretStr

from palaver.config.providers import Price
from palaver.errors import Source, StaleLease, ToolFailure, UnknownConversation, UnknownTool
from palaver.processes.failpoints import failpoint
from palaver.schemas.actions import ClientTool
from palaver.schemas.arguments import read
from palaver.schemas.models import AgentSpec, Message, ToolCall, Usage
from palaver.secrets.redaction import hide, keep, keep_everywhere
from palaver.secrets.sealing import KeyMissing
from palaver.steps.leases import Lease, Renewal, Shown
from palaver.steps.stuck import Nudge, Stuck, find_repetition
from palaver.steps.verdicts import Condensed, GiveUp, HandBack, LogNote, Postpone, ReasoningDropped, RetryAfter, Verdict
from palaver.tools import ToolDeclaration
from palaver.tools.schemas import fitting
from palaver.vocabulary.opaque import Opaque

from ..protocols import AnswerReader, ModelProtocol, ModelReply, Offer
from ..sources.containment import failure_of
from ..tracing.attempt_notes import AttemptNotes, InlineCall, word_of
from .abilities import SECRET_KEY
from .active_step import ActiveStep
from .conversations import CachedConversation, OlderPart
from .opened_secrets import OpenedSecrets
from .runtime import Runtime, away


class Work:
    """One attempt of a step."""

    def __init__(self, lease: Lease, runtime: Runtime, conversation: CachedConversation, active: ActiveStep) -> None:
        self.lease = lease
        self._active = active
        self.runtime = runtime
        self.source: Source = "engine"
        """Whose work is going on."""
        self._conversation = conversation
        self._begun = time.monotonic()
        self._readers: list[tuple[AnswerReader, Price | None]] = []
        self._condensed: list[Condensed] = []
        self._dropped: list[ReasoningDropped] = []
        self._notes = AttemptNotes()
        self._nudge: Nudge | None = None
        self._text: list[str] = []
        self._answering: AnswerReader | None = None
        """Of the newest call that is no purpose of ours."""
        self.secrets: Mapping[str, str] = {}
        """The conversation's, for its tools, by name."""
        self.shown = False
        """Watchers may have seen of an answer, or of what the model thinks."""
        self._deltas = runtime.deltas.buffer(lease)
        self.permit = runtime.limiter.permit(lease, lambda: self.prompt_bytes, lambda: self.usage)
        """Around all model calls of this attempt."""

    def take_in(self, known: CachedConversation | None) -> None:
        """Read what the lease brought, beyond what was ``known`` of the conversation. What cannot be read is no fault
        of the model's."""
        self._conversation = self.runtime.conversations.take_in(known, self.lease, self.protocol)
        self.source = "model" if self.lease.call is None else "tool"

    async def elsewhere(self) -> Verdict | None:
        """The verdict on a step that needs what this worker has not; None if it can do it, and knows the secrets of the
        conversation: they are kept out of whatever comes of this attempt.

        Raises:
            StaleLease: the conversation is gone, and with it the lease.
            NoWorker: no worker has had it for too long.
        """
        lease, runtime, lack = self.lease, self.runtime, None
        try:
            if lease.secrets_at:
                self._keep(await runtime.secrets.of(lease))
        except KeyMissing:
            lack = SECRET_KEY
        except UnknownConversation:
            raise StaleLease from None
        except Exception as error:
            if not away(error):
                raise
            # Nothing was begun: this is no failure of the step, least of all one to tell a model of.
            return HandBack(begun=False)
        able = await runtime.abilities.elsewhere(runtime.store, lease.agent, lease.call, lease.lacking_for, lack)
        return able or await runtime.with_another_key(lease)

    def _keep(self, opened: OpenedSecrets) -> None:
        (keep_everywhere if self.runtime.alone else keep)(opened.compared)
        self.secrets = opened.values
        endpoint = self.lease.agent.endpoint
        if endpoint is not None and (key := opened.keys.get(endpoint.secret_name)):
            keyed = endpoint.model_copy(update={"api_key": SecretStr(key)})
            self.lease = replace(self.lease, agent=self.lease.agent.model_copy(update={"endpoint": keyed}))
        # Made anew: it compares with what was known when it was made.
        self._deltas = self.runtime.deltas.buffer(self.lease)

    @property
    def agent(self) -> AgentSpec:
        """The agent as the next call is to see it: once the model has called the tool that it had to, it is free to
        answer. It would call it for ever."""
        agent = self.lease.agent
        if agent.tool_choice in (None, "auto", "none") or not self._conversation.turns(self.lease.run_id):
            return agent
        return agent.model_copy(update={"tool_choice": None})

    def messages(self) -> list[bytes]:
        """The conversation up to here, each message in the form of the protocol."""
        messages = self._conversation.messages()
        if self._nudge is None:
            return messages
        return [*messages, self.protocol.message(Message(role="user", content=self._nudge.text))]

    @property
    def protocol(self) -> ModelProtocol:
        """How the model is spoken to."""
        return self._conversation.protocol

    def opaque(self, fields: str) -> Opaque | None:
        """``fields`` that the model that is asked wants back with its answer; None if there are none."""
        return Opaque(self._conversation.origin, fields) if fields else None

    @property
    def prompt_tokens(self) -> int:
        """Input tokens of the conversation's newest call; 0 when unknown, or when it was condensed since."""
        return self._conversation.prompt_tokens

    def older_part(self) -> OlderPart | None:
        """The part of the conversation that could be condensed."""
        most = self.lease.agent.condense_at_messages
        return self._conversation.older_part(most // 2) if most else self._conversation.older_part()

    def condense(self, condensed: Condensed) -> None:
        """The model sees a summary from here on; the log has it with the outcome of this attempt."""
        self._condensed.append(condensed)
        self._conversation = self._conversation.having(condensed)

    def drop_reasoning(self) -> bool:
        """Send the model nothing back that it made so far; the log has it with the outcome of this attempt. Whether
        there was something."""
        dropped = ReasoningDropped(self._conversation.origin)
        without = self._conversation.dropping(dropped)
        if without.messages() == self._conversation.messages():
            return False
        self._conversation = without
        self._dropped.append(dropped)
        return True

    @property
    def condensed(self) -> bool:
        """Whether the conversation was condensed, and not answered since."""
        return self._conversation.condensed

    def look_back(self) -> Stuck | None:
        """How the run is stuck; None if it is not. If it might be, the next model call contains a hint to the model."""
        turns = self._conversation.turns(self.lease.run_id)
        judged = find_repetition(turns, self.lease.agent.stuck, nudged=self._conversation.nudged)
        if isinstance(judged, Stuck):
            return judged
        self._nudge = judged
        return None

    @property
    def corrected(self) -> bool:
        """Whether the model was told already that an answer of this run is not what was asked for."""
        return self._conversation.corrected

    def client_tool(self, call: ToolCall) -> ClientTool | None:
        """The client tool that ``call`` names; None if it names another tool.

        Raises:
            InvalidToolCall: the arguments are no JSON object, or do not fit a tool that is acknowledged. The client
                checks those of others.
        """
        for tool in self.lease.agent.client_tools:
            if tool.name == call.name:
                read(call.arguments) if tool.acknowledgement is None else fitting(tool, call.arguments)
                return tool
        return None

    def tool(self, call: ToolCall) -> tuple[ToolDeclaration, dict[str, Any]]:
        """The tool that ``call`` asks for, and its arguments.

        Raises:
            UnknownTool: the agent has no such tool.
            InvalidToolCall: the arguments do not fit it.
        """
        agent = self.lease.agent
        if call.name not in agent.tools:
            offered = ", ".join((*agent.tools, *(tool.name for tool in agent.client_tools))) or "none"
            raise UnknownTool(f"there is no tool {call.name!r}; there are: {offered}")
        return self.runtime.tools.check(call.name, call.arguments)

    def risky(self, call: ToolCall) -> bool:
        """Whether the tool that ``call`` names is declared so."""
        return call.name in self.lease.agent.tools and self.runtime.tools[call.name].risky

    async def confirm(self) -> None:
        """Before a side effect begins: renew the lease if it may have expired. This process may have been
        stopped.

        Raises:
            StaleLease: the lease is gone, or Redis is away and nobody can tell.
        """
        runtime, lease = self.runtime, self.lease
        if self._active.unheard < runtime.settings.lease_seconds:
            return
        try:
            (answer,) = await runtime.store.steps.renew([lease])
        except Exception as error:
            if not away(error):
                raise
            raise StaleLease from error
        if answer is Renewal.GONE:
            raise StaleLease

    @property
    def time_left(self) -> float:
        """Seconds until the run's time is up."""
        return self.lease.time_left - (time.monotonic() - self._begun)

    @property
    def prompt_bytes(self) -> int:
        """The approximate size of the next prompt."""
        return len(self.lease.agent.instructions) + sum(map(len, self.messages()))

    async def ask(
        self,
        agent: AgentSpec,
        messages: list[bytes],
        *,
        show: Callable[[str, str], None] = lambda text, thoughts: None,
        purpose: str = "",
    ) -> ModelReply:
        """What ``agent`` answers to ``messages``. A call for a ``purpose`` of ours says so in its id.

        Raises:
            ProviderError, httpx.HTTPError: from the model port.
        """
        lease, runtime = self.lease, self.runtime
        assert runtime.model is not None  # a step of a model is done where one can be called
        reader = self.protocol.reader(max_calls=runtime.model.max_tool_calls(agent))
        self.permit.begin_call()
        failpoint("model.asking")
        self._readers.append((reader, runtime.model.price(agent)))
        if not purpose:
            self._answering = reader
        settings = runtime.model.settings(agent, plain=bool(purpose))
        body = self.protocol.body(agent, messages, self._offers(agent), settings)
        request_id = f"{lease.run_id}:{lease.step}:{lease.try_number}"
        progress, called_at = self._active.progress, time.monotonic()
        try:
            reply = await runtime.model.complete(
                agent,
                body,
                on_begin=self._answer_began,
                show=show,
                time_left=self.time_left,
                request_id=f"{request_id}:{purpose}-{len(self._readers)}" if purpose else request_id,
                reader=reader,
                progress=progress,
            )
        finally:
            seconds, usage = time.monotonic() - called_at, reader.usage
            runtime.histograms.model_call(agent.provider, agent.model_name, seconds, progress.first_after, usage)
        if not purpose:
            self._notes.finish_reason = word_of(reply.finish_reason)
            self._notes.response_id, self._notes.response_model = reply.response_id, reply.response_model
            self._notes.first_token = progress.first_after
        return reply

    def _answer_began(self) -> None:
        """Neither the model nor its provider is out, and the key is taken."""
        self.runtime.abilities.refused_keys.note_answer(self.lease.agent.provider)
        self.permit.answered()

    def _offers(self, agent: AgentSpec) -> list[Offer]:
        tools = (self.runtime.tools[name] for name in agent.tools)
        return [
            *(Offer(tool.name, tool.description, tool.parameters) for tool in tools),
            *(Offer(tool.name, tool.description, tool.parameters) for tool in agent.client_tools),
        ]

    @contextmanager
    def calling(self, tool: ToolDeclaration, call: ToolCall) -> Iterator[None]:
        """Around a call of a tool. One that is a step of its own is known to the trace as that."""
        began, error = time.monotonic(), None
        try:
            yield
        except ToolFailure as failure:
            error = failure_of(failure).error_class
            raise
        finally:
            if self.lease.call is None:
                since, seconds = began - self._begun, time.monotonic() - began
                self._notes.inline_calls.append(InlineCall(call.id, tool.name, since, seconds, error))

    def show(self, text: str, thoughts: str) -> None:
        """Let watchers see more of the answer, and of what the model thinks."""
        failpoint("model.delta")
        self.shown = True
        if text:
            self._text.append(text)
        self._deltas.add(text, thoughts)

    @property
    def usage(self) -> Usage:
        """What the provider has reported so far, of all calls; also of one that is cut off."""
        calls = [reader.usage for reader, _ in self._readers]
        return Usage(
            input_tokens=sum(call.input_tokens for call in calls),
            cached_tokens=sum(call.cached_tokens for call in calls),
            cache_write_tokens=sum(call.cache_write_tokens for call in calls),
            output_tokens=sum(call.output_tokens for call in calls),
            reasoning_tokens=sum(call.reasoning_tokens for call in calls),
            model_calls=len(calls),
            cost_usd=self._cost(),
        )

    def _cost(self) -> float | None:
        """US dollars for all calls; None if one has no price, or its answer came without a count."""
        total = 0.0
        for reader, price in self._readers:
            if price is None or reader.uncounted:
                return None
            total += price.cost(reader.usage)
        return total

    @property
    def partial(self) -> Message | None:
        """The text of the model when it was cut off; None if there is none."""
        text = hide("".join(self._text))
        return Message(role="assistant", content=text, partial=True) if text else None

    @property
    def partial_opaque(self) -> Opaque | None:
        """What the model wants back with that."""
        return self.opaque(self._answering.opaque_so_far()) if self._text and self._answering else None

    async def flush(self) -> None:
        """If watchers saw a beginning, let them see the rest: the deltas of an answer add up to it."""
        await self._deltas.flush()

    def accounted(self, verdict: Verdict) -> Verdict:
        """``verdict`` with the usage and the notes of the attempt."""
        notes: tuple[LogNote, ...] = (*self._condensed, *self._dropped, *((self._nudge,) if self._nudge else ()))
        if isinstance(verdict, Postpone | HandBack):
            # The next attempt condenses, and looks back, for itself.
            return replace(verdict, usage=self.usage)
        return replace(verdict, usage=self.usage, notes=notes)

    def told(self, verdict: Verdict) -> bytes | None:
        """What the trace of the run is told of the attempt, and of its `accounted` verdict; None if nobody wants to
        know."""
        trace = self.lease.trace
        return self._notes.trace_note(verdict) if trace and trace.sampled else None

    def shown_of(self, verdict: Verdict) -> Shown:
        """How much watchers saw of the message of ``verdict``. No more of it is written."""
        self._deltas.close()
        if not self._deltas.written:
            return Shown.NOTHING
        return Shown.HALF if self._deltas.lost or not _keeps_text(verdict) else Shown.ALL


def _keeps_text(verdict: Verdict) -> bool:
    return not isinstance(verdict, RetryAfter) and not (isinstance(verdict, GiveUp) and verdict.message is None)
