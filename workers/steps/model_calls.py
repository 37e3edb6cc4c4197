"""The calls of models that one attempt makes, and what all of them together take."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from palaver.config.providers import Price
from palaver.errors import UnknownPrice
from palaver.processes.failpoints import failpoint
from palaver.schemas.actions import ClientTool
from palaver.schemas.models import AgentSpec, Usage
from palaver.steps.leases import Lease
from palaver.store.scripting.contracts.providers import Wait
from palaver.tools import ToolDeclaration
from palaver.vocabulary.limits import limit_of

from ..models.call_clock import CallProgress
from ..models.provider_permit import BYTES_A_TOKEN
from ..protocols import AnswerReader, CallSettings, ModelProtocol, ModelReply, Offer, as_declared
from .agent_tools import offer_of
from .attempt_notes import AttemptNotes, word_of
from .prompt import Prompt
from .runtime import Runtime

_LONGEST_ANSWER: Final = limit_of("unlimited_answer")
"""Tokens that the answer of a model without a limit is counted with before it is there."""
_NO_PRICE: Final = (
    "{model} has no price, and the tenant has a cap in money: set one in the provider's entry of PALAVER_PROVIDERS"
)


class Tally:
    """The tokens and the cost of an attempt's calls. Apart from them, as their permit asks for it: an attempt that only
    the garbage collector could free would hold its conversation until then."""

    def __init__(self, prompt: Prompt) -> None:
        self.prompt = prompt
        self.readers: list[tuple[AnswerReader, Price | None]] = []
        """The reader of each call, and the price of its model."""

    @property
    def usage(self) -> Usage:
        """The tokens that the provider has reported so far, of all calls; also of one that is cut off."""
        calls = [reader.usage for reader, _ in self.readers]
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
        for reader, price in self.readers:
            if price is None or reader.uncounted:
                return None
            total += price.cost(reader.usage)
        return total


class ModelCalls:
    """Makes them under one permit of the provider, and counts their tokens: of one that is cut off, too."""

    def __init__(
        self, lease: Lease, runtime: Runtime, progress: CallProgress, notes: AttemptNotes, prompt: Prompt
    ) -> None:
        self._lease = lease
        self._runtime = runtime
        self._progress = progress
        self._notes = notes
        self._ends_at = time.monotonic() + lease.time_left
        self.own: Sequence[ToolDeclaration] = ()
        """The tools of the MCP servers that the agent names itself."""
        self.offered: dict[str, ToolDeclaration] = {}
        """The tools of workers that the newest call offered to the model, as it offered them."""
        self._answering: AnswerReader | None = None
        """The reader of the newest call that is no purpose of ours."""
        self.tally = tally = Tally(prompt)
        self.permit = runtime.limiter.permit(lease, lambda: tally.prompt.bytes, lambda: tally.usage)
        """Around all of them."""

    async def ask(
        self,
        agent: AgentSpec,
        protocol: ModelProtocol,
        messages: Sequence[bytes],
        *,
        show: Callable[[str, str], None] = lambda text, thoughts: None,
        purpose: str = "",
    ) -> ModelReply | Wait:
        """The answer of ``agent`` to ``messages`` of the ``protocol``, or when to ask again. A call for a ``purpose``
        of ours says so in its id.

        Raises:
            ProviderError, httpx.HTTPError: from the model port.
            UnknownPrice: the tenant has a cap in money, and it is unknown what the call may cost.
            StaleLease: it has one, and the lease is lost.
        """
        lease, runtime, progress = self._lease, self._runtime, self._progress
        assert runtime.model is not None  # a step of a model is done where one can be called
        port = await runtime.model.port()
        settings = port.settings(agent, plain=bool(purpose))
        offers = self._offers(agent)
        body = protocol.body(agent, messages, offers, settings)
        capped = lease.money_capped or lease.rate_capped
        if capped and (wait := await self._reserve(agent, len(body), settings)) is not None:
            return wait
        if (wait := self.permit.begin_call()) is not None:
            return wait
        failpoint("model.asking")
        reader = protocol.reader(max_calls=port.max_tool_calls(agent))
        self.tally.readers.append((reader, port.price(agent)))
        request_id = f"{lease.run_id}:{lease.step}:{lease.try_number}"
        if purpose:
            request_id = f"{request_id}:{purpose}-{len(self.tally.readers)}"
        else:
            self._answering = reader
        called_at = time.monotonic()
        try:
            reply = await port.complete(
                agent,
                body,
                on_begin=self._answer_began,
                show=show,
                time_left=self._ends_at - called_at,
                request_id=request_id,
                reader=reader,
                progress=progress,
            )
        finally:
            seconds = time.monotonic() - called_at
            runtime.histograms.model_call(agent.provider, agent.model_name, seconds, progress.first_after, reader.usage)
        if not purpose:
            self._note(reply)
        return as_declared(reply, offers, protocol)

    async def _reserve(self, agent: AgentSpec, body_bytes: int, settings: CallSettings) -> Wait | None:
        """Reserve what the next call may cost, or answer until when the caps of the tenant allow none. A token is a
        byte at least, so there are no more of them than bytes in what is sent.

        Raises as `ask`.
        """
        lease, runtime, usage, least, most = self._lease, self._runtime, self.tally.usage, 0.0, 0.0
        limit = agent.max_output_tokens or settings.max_output_tokens
        if lease.money_capped:
            price = runtime.terms.price(agent)
            if price is None:
                raise UnknownPrice(_NO_PRICE.format(model=agent.model))
            least, most = price.most(body_bytes, limit or _LONGEST_ANSWER)
        spent = usage.cost_usd if usage.model_calls else 0.0
        call, tokens = usage.model_calls + 1, body_bytes // BYTES_A_TOKEN + (limit or 0)
        wait = await runtime.store.caps.reserve(lease, call, spent=spent, least=least, most=most, tokens=tokens)
        if wait is not None and not usage.model_calls:
            await self.permit.leave_uncalled()
        return wait

    def leave_out_tool(self, agent: AgentSpec, which: str | int) -> str | None:
        """Offer the model one tool less from here on, by its name or its place among those that it was offered; returns
        its name, or None if there is no such tool."""
        offers = self._offers(agent)
        named = (offer for place, offer in enumerate(offers) if which in (place, offer.name))
        if (refused := next(named, None)) is None:
            return None
        self._runtime.refused_tools.note(agent.provider, refused)
        return refused.name

    def _offers(self, agent: AgentSpec) -> Sequence[Offer]:
        behind: tuple[ClientTool | ToolDeclaration, ...] = (*agent.client_tools, *self.own)
        offers = [
            *(self._offer(agent, name) for name in agent.tools),
            *(Offer(tool.name, tool.description, tool.parameters) for tool in behind),
        ]
        return self._runtime.refused_tools.without(agent.provider, offers)

    def _offer(self, agent: AgentSpec, name: str) -> Offer:
        if (subagent := agent.subagents.get(name)) is not None:
            return offer_of(name, subagent)
        tool = self.offered[name] = self._runtime.tools[name]
        return Offer(tool.name, tool.description, tool.parameters)

    def _answer_began(self) -> None:
        """Neither the model nor its provider is out, and the key is taken."""
        self._runtime.capabilities.refused_keys.note_answer(self._lease.agent.provider)
        self.permit.answered()

    def _note(self, reply: ModelReply) -> None:
        self._notes.finish_reason = word_of(reply.finish_reason)
        self._notes.response_id, self._notes.response_model = reply.response_id, reply.response_model
        self._notes.first_token = self._progress.first_after

    def opaque_so_far(self) -> str:
        """The fields that the model wants back with an answer that was cut off; empty for none."""
        return self._answering.opaque_so_far() if self._answering else ""
