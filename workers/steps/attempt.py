"""One attempt of a step: its lease, what it takes to make it, and what is accounted for it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import replace

from pydantic import SecretStr

from palaver.errors import Source, StaleLease, ToolFailure, UnknownConversation
from palaver.late import dataclass
from palaver.schemas.mcp_servers import JOINT
from palaver.schemas.models import Message, ToolCall
from palaver.secrets.redaction import add_secrets, add_secrets_everywhere
from palaver.secrets.sealing import KeyMissing
from palaver.steps.leases import Lease, Renewal
from palaver.steps.retry import RetryPolicy
from palaver.steps.verdicts import AskPerson, Finish, HandBack, Postpone, Verdict
from palaver.store.scripting.contracts.providers import Wait
from palaver.tools import ToolContext, ToolDeclaration
from palaver.vocabulary.lifecycle import StopReason
from palaver.vocabulary.step_kinds import StepKind

from ..sources.containment import failure_of
from ..sources.port import OwnTools
from .active_step import ActiveStep
from .answer_stream import AnswerStream
from .attempt_notes import AttemptNotes, InlineCall
from .capabilities import SECRET_KEY
from .conversations import CachedConversation
from .model_calls import ModelCalls
from .opened_secrets import OpenedSecrets
from .prompt import Prompt
from .runtime import Runtime, is_store_outage
from .service_permit import ServicePermit


class Attempt:
    """The argument of a step's function: the lease, the prompt, the calls of models, and the stream to watchers."""

    def __init__(self, lease: Lease, runtime: Runtime, active: ActiveStep) -> None:
        self.lease = lease
        self.runtime = runtime
        self._active = active
        self.own: OwnTools | None = None
        """The tools of the MCP servers that its agent names itself, once they are asked for."""
        self.shadowed: Mapping[str, str] = {}
        """Tools of workers, by the labels of such servers that they begin with."""
        self.source: Source = "engine"
        """The side whose work is going on."""
        self.secrets: Mapping[str, str] = {}
        """The conversation's, for its tools, by name."""
        self.tool: ToolDeclaration | None = None
        """The tool that the step calls, once it is known."""
        self.service: ServicePermit | None = None
        """The permit to call the service of that tool, if it names one."""
        self.prompt = Prompt(lease, CachedConversation(runtime.terms.protocol(lease.agent)))
        self.stream = AnswerStream(runtime.deltas, lease)
        self._notes = AttemptNotes()
        self.calls = ModelCalls(lease, runtime, active.progress, self._notes, self.prompt)
        self._begun = time.monotonic()

    def has_tool(self, name: str) -> bool:
        """Tell whether the agent names a tool, or has it from a server or a client, or this installation has it."""
        agent, own = self.lease.agent, () if self.own is None else self.own.declarations
        at_clients = (tool.name for tool in agent.client_tools)
        return name in agent.tools or name in own or name in self.runtime.tools or name in at_clients

    async def missing_capability(self) -> Verdict | None:
        """The verdict on a step that needs what this worker has not; None if it can do it, and knows the secrets of the
        conversation: they are kept out of whatever comes of this attempt.

        Raises:
            StaleLease: the conversation is gone, and with it the lease.
            NoWorker: no worker has had it for too long.
        """
        lease, runtime, lack = self.lease, self.runtime, None
        self.source = "model" if lease.kind.asks_model else "tool"
        try:
            if lease.secrets_at:
                self._keep(await runtime.secrets.of(lease))
        except KeyMissing:
            lack = SECRET_KEY
        except UnknownConversation:
            raise StaleLease from None
        except Exception as error:
            if not is_store_outage(error):
                raise
            # Nothing was begun: this is no failure of the step, least of all one to tell a model of.
            return HandBack(begun=False)
        able = await runtime.capabilities.missing_capability(runtime.store, lease, lack)
        return able or await runtime.with_another_version(lease) or await runtime.with_another_key(lease)

    def _keep(self, opened: OpenedSecrets) -> None:
        (add_secrets_everywhere if self.runtime.alone else add_secrets)(opened.compared)
        self.secrets = opened.values
        endpoint = self.lease.agent.endpoint
        if endpoint is not None and (key := opened.keys.get(endpoint.secret_name)):
            keyed = endpoint.model_copy(update={"api_key": SecretStr(key)})
            self.lease = replace(self.lease, agent=self.lease.agent.model_copy(update={"endpoint": keyed}))
        # Made anew: it compares with what was known when it was made.
        self.stream = AnswerStream(self.runtime.deltas, self.lease)

    def load_conversation(self, known: CachedConversation | None) -> None:
        """Read what the lease brought, beyond what was ``known`` of the conversation. What cannot be read is no fault
        of the model's."""
        source, self.source = self.source, "engine"
        protocol = self.prompt.protocol
        self.prompt = Prompt(self.lease, self.runtime.conversations.load(known, self.lease, protocol))
        self.calls.tally.prompt = self.prompt
        self.source = source

    async def load_own_tools(self) -> None:
        """Look which tools the MCP servers have that the agent names itself.

        Raises:
            StaleLease: the lease is lost, or the conversation is gone.
        """
        lease, tools = self.lease, self.runtime.tools
        whose = ToolContext(run_id=lease.run_id, conversation_id=lease.conversation_id, secrets=self.secrets)
        try:
            self.own = await self.runtime.own_servers.tools_of(lease, whose)
        except UnknownConversation:
            raise StaleLease from None
        self.calls.own = tuple(self.own.declarations.values())
        # The API that admitted the agent may not have known of all tools: here they are known, before one is called.
        if self.runtime.capabilities.declared is not None:
            await self.runtime.capabilities.declared.look()
        found = ((label, tools.named_behind(f"{label}{JOINT}")) for label in lease.agent.mcp_servers)
        self.shadowed = {label: name for label, name in found if name is not None}

    async def confirm(self) -> None:
        """Before a side effect begins: renew the lease if it may have expired. This process may have been
        stopped.

        Raises:
            StaleLease: the lease is gone, or Redis is away and it cannot be told.
        """
        runtime, lease = self.runtime, self.lease
        if self._active.unheard < runtime.settings.lease_seconds:
            return
        try:
            (answer,) = await runtime.store.steps.renew([lease])
        except Exception as error:
            if not is_store_outage(error):
                raise
            raise StaleLease from error
        if answer is Renewal.GONE:
            raise StaleLease

    @property
    def time_left(self) -> float:
        """Seconds until the run's time is up."""
        return self.lease.time_left - (time.monotonic() - self._begun)

    def permit_for(self, tool: ToolDeclaration) -> AbstractAsyncContextManager[Wait | None]:
        """Return a context around the call of ``tool``; it answers with a `Wait` if the call may not begin now."""
        self.tool = tool
        if tool.limit_key is None:
            return nullcontext()
        self.service = ServicePermit(self.runtime.limiter, self.lease, tool.limit_key)
        return self.service

    @contextmanager
    def noting_inline(self, tool: ToolDeclaration, call: ToolCall) -> Iterator[None]:
        """Around an inline call: note it for the trace."""
        began, error = time.monotonic(), None
        try:
            yield
        except ToolFailure as failure:
            error = failure_of(failure).error_class
            raise
        finally:
            since, seconds = began - self._begun, time.monotonic() - began
            self._notes.inline_calls.append(InlineCall(call.id, tool.name, since, seconds, error))

    def cut_off(self) -> Finish:
        """The verdict on an attempt that a cancel ended: the text of the model up to here stays."""
        text = self.stream.text
        if not text:
            return Finish(None, StopReason.CANCELLED)
        opaque = self.prompt.opaque(self.calls.opaque_so_far())
        message = Message(role="assistant", content=text, partial=True)
        return Finish(message, StopReason.CANCELLED, opaque=opaque)

    def with_usage(self, verdict: Verdict) -> Verdict:
        """``verdict`` with the usage of the attempt, and what the log is to have of its prompt."""
        if isinstance(verdict, Postpone | AskPerson | HandBack):
            # The next attempt condenses, and looks for repetitions, for itself.
            return replace(verdict, usage=self.calls.tally.usage)
        return replace(verdict, usage=self.calls.tally.usage, notes=self.prompt.notes)

    def trace_note(self, verdict: Verdict) -> bytes | None:
        """The part of the attempt in the trace of the run, with its verdict `with_usage`; None if it is not traced."""
        trace = self.lease.trace
        return self._notes.dump(verdict) if trace and trace.sampled else None


Function = Callable[[Attempt], Awaitable[Verdict | Wait]]
"""A `Wait` is the answer of a provider's gate: its verdict depends on the policy."""


@dataclass(frozen=True, slots=True)
class StepHandler:
    """The work of a kind of step."""

    kind: StepKind
    retry: RetryPolicy
    """The retry policy for its failures."""
    function: Function
    """The work of one attempt."""


HandlerOf = Callable[[StepKind], StepHandler]
"""Finds the work of a kind, as its decorator says it."""
