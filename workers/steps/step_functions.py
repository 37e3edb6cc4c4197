"""The work of each kind of step, and its retry policy. The kind says which Celery task it is, and whence that comes.

==========  ======================  =========
kind        Celery task             queue
==========  ======================  =========
``MODEL``   ``palaver.model_step``  ``model``
``REMOTE``  ``palaver.model_step``  ``model``
``TOOL``    ``palaver.tool_step``   ``tools``
==========  ======================  =========
"""

from __future__ import annotations

import asyncio

from palaver.errors import ErrorClass, Failure, ProviderDetails, ToolError, ToolFailure
from palaver.errors.sentences import Sentence
from palaver.processes.failpoints import failpoint
from palaver.schemas.content import Part, TextPart, length_of
from palaver.schemas.models import Message, ToolCall
from palaver.secrets.redaction import redact
from palaver.steps.retry import MODEL_CALL, TOOL_CALL
from palaver.steps.verdicts import Continue, Finish, GiveUp, OpenCall, ToolOutcome, Verdict
from palaver.store.scripting.contracts.providers import Wait
from palaver.vocabulary.lifecycle import StopReason
from palaver.vocabulary.limits import count_exceeded, limit_of
from palaver.vocabulary.step_kinds import MODEL, REMOTE, TOOL

from ..protocols import PAUSE, WITHHELD, ModelReply
from ..sources.containment import CallLeft, ToolAnswer, failure_of
from .agent_tools import message_of
from .asking import ask_model
from .attempt import Attempt
from .condensing import condense
from .failures import log_raised
from .output_check import misfit_of
from .registry import step
from .tool_calls import client_tool_of, is_risky, make_call, own_tool, tool_of

_STOPS = {WITHHELD: StopReason.CONTENT_FILTER, "length": StopReason.MAX_TOKENS}


@step(MODEL, retry=MODEL_CALL)
async def call_model(attempt: Attempt) -> Verdict | Wait:
    """Call the model, and run quick inline tools at once."""
    if attempt.lease.condenses:
        return await _condense(attempt)
    if attempt.lease.agent.mcp_servers:
        await attempt.load_own_tools()
    if (stuck := attempt.prompt.detect_repetition()) is not None:
        return GiveUp(stuck.failure, StopReason.STUCK)
    async with attempt.calls.permit as wait:
        reply = wait or await ask_model(attempt)
    if not isinstance(reply, ModelReply):
        return reply
    failpoint("model.answered")
    if reply.tool_calls and reply.finish_reason not in _STOPS:
        return await _with_calls(attempt, reply)
    return _without_calls(attempt, reply)


def _without_calls(attempt: Attempt, reply: ModelReply) -> Verdict:
    """The verdict on an answer that asks for no tool, or was cut off."""
    tokens, opaque = reply.usage.input_tokens, attempt.prompt.opaque(reply.opaque)
    if reply.finish_reason == PAUSE and not reply.tool_calls:
        return Continue(Message(role="assistant", content=reply.content), prompt_tokens=tokens, opaque=opaque)
    stop = _STOPS.get(reply.finish_reason, StopReason.END_TURN)
    # Cut off before the first word, it is nothing that the model is reminded of.
    cut = not reply.content and stop is not StopReason.END_TURN
    message = Message(role="assistant", content=reply.content, partial=cut)
    misfit = misfit_of(message, attempt) if stop is StopReason.END_TURN else None
    if misfit is None:
        withheld = _withheld(reply, attempt) if stop is StopReason.CONTENT_FILTER else None
        return Finish(message, stop, prompt_tokens=tokens, opaque=opaque, withheld=withheld)
    if misfit.failure.recoverable:
        return Continue(message, prompt_tokens=tokens, opaque=opaque, misfit=misfit)
    return GiveUp(misfit.failure, StopReason.ERROR, message=message, opaque=opaque, misfit=misfit)


async def _with_calls(attempt: Attempt, reply: ModelReply) -> Continue:
    """The verdict on an answer that asks for tools."""
    outcomes, calls = await _begin(attempt, reply.tool_calls)
    message = Message(role="assistant", content=reply.content, tool_calls=reply.tool_calls)
    risky = tuple(call.id for call in reply.tool_calls if is_risky(attempt, call))
    tokens, opaque = reply.usage.input_tokens, attempt.prompt.opaque(reply.opaque)
    return Continue(message, tuple(outcomes), tuple(calls), risky, prompt_tokens=tokens, opaque=opaque)


def _withheld(reply: ModelReply, attempt: Attempt) -> Failure:
    """Return the failure of an answer that was refused: the same as of a request that is."""
    agent = attempt.lease.agent
    provider = ProviderDetails(agent.provider, agent.model_name, 200, reply.request_id, reply.explanation)
    return Failure.of(ErrorClass.CONTENT_FILTER, code=f"{agent.provider}.{WITHHELD}", provider=provider)


async def _condense(attempt: Attempt) -> Verdict | Wait:
    async with attempt.calls.permit as wait:
        done = wait or await condense(attempt, required=True)
    return done if isinstance(done, Wait) else Finish(None, StopReason.END_TURN)


async def _begin(attempt: Attempt, calls: tuple[ToolCall, ...]) -> tuple[list[ToolOutcome], list[OpenCall]]:
    """Run inline tools, acknowledge calls of client tools and refuse invalid ones here. All other calls become tool
    steps; some of them wait for an approval or for the client. What comes behind a call that ends the run is not begun.

    If the budget does not allow all calls, all of them become steps, and the store starts none.
    """
    outcomes: list[ToolOutcome] = []
    open_calls: list[OpenCall] = []
    room = limit_of("inline_results")
    if not attempt.lease.allows(len(calls)):
        return outcomes, [OpenCall(call, idempotent=False) for call in calls]
    ending: str | None = None
    for call in calls:
        if ending is not None:
            outcomes.append(
                ToolOutcome.failed(call, Failure.of(ErrorClass.TOOL_DENIED, Sentence.BEHIND_THE_END % ending))
            )
            continue
        # Parsing arguments and running an inline tool take time: other tasks get a turn between two calls.
        await asyncio.sleep(0)
        try:
            if (client_tool := client_tool_of(attempt, call)) is not None:
                if client_tool.acknowledgement is not None:
                    outcomes.append(answer(call, client_tool.acknowledgement))
                else:
                    open_calls.append(OpenCall(call, False, awaits="client_tool", timeout=client_tool.timeout))
                continue
            if call.name in attempt.lease.agent.subagents:
                open_calls.append(_of_agent(attempt, call, alone=len(calls) == 1))
                continue
            tool, arguments = tool_of(attempt, call)
            approvals = attempt.lease.agent.approvals
            # A server of the agent's own may keep its calls waiting: its calls hold no process (ADR 0111).
            kind = TOOL if attempt.own is None or own_tool(attempt, call.name) is None else REMOTE
            offered = attempt.calls.offered.get(call.name)
            shown = offered.digest or None if offered is not None else None
            if approvals.ask(tool.name, risky=tool.risky, alone=len(calls) == 1):
                if kind is TOOL:
                    attempt.runtime.tools.require_fit(call.name, call.arguments, offered)
                open_calls.append(
                    OpenCall(
                        call,
                        tool.idempotent,
                        awaits="approval",
                        timeout=approvals.timeout,
                        limit=tool.timeout,
                        kind=kind,
                        queue=tool.queue,
                        second_person=approvals.needs_second_person(tool.name),
                        shown=shown,
                    )
                )
            elif tool.inline:
                with attempt.noting_inline(tool, call):
                    output = await make_call(attempt, tool, call, arguments)
                outcome = answer(call, output, ends_run=tool.ends_run)
                room -= length_of(outcome.message.content)
                if room < 0:
                    count_exceeded("inline_results")
                    raise ToolError("the results of the calls made at once are too large together: make fewer at once")
                outcomes.append(outcome)
            else:
                open_calls.append(
                    OpenCall(
                        call,
                        tool.idempotent,
                        limit=tool.timeout,
                        kind=kind,
                        queue=tool.queue,
                        shown=shown,
                        at_hand=kind is TOOL and attempt.runtime.makes_calls_of(tool),
                    )
                )
            if tool.ends_run:
                ending = tool.name
        except ToolFailure as error:
            log_raised(error, call.name, attempt.lease)
            outcomes.append(ToolOutcome.failed(call, failure_of(error)))
    return outcomes, open_calls


def _of_agent(attempt: Attempt, call: ToolCall, *, alone: bool) -> OpenCall:
    """The step of a call of an agent, which needs no worker with tools. Trying it again begins no second run.

    Raises:
        ToolFailure: the arguments do not fit.
    """
    message_of(call)
    approvals = attempt.lease.agent.approvals
    if not approvals.ask(call.name, risky=False, alone=alone):
        return OpenCall(call, idempotent=True, kind=REMOTE)
    by_other = approvals.needs_second_person(call.name)
    return OpenCall(call, True, "approval", approvals.timeout, kind=REMOTE, second_person=by_other)


def answer(call: ToolCall, output: ToolAnswer, *, edited: bool = False, ends_run: bool = False) -> ToolOutcome:
    """Return the outcome of ``call`` with ``output`` as its answer, without secrets of this process; if its arguments
    were ``edited``, the model is told what they were."""
    note = f"[The user changed the arguments of this call to {call.arguments}]\n" if edited else ""
    if isinstance(output, str):
        content: ToolAnswer = note + redact(output)
    else:
        parts = [_redacted(part) for part in output]
        content = (*([TextPart(type="text", text=note)] if note else []), *parts)
    message = Message(role="tool", call_id=call.id, name=call.name, content=content)
    return ToolOutcome(message, ends_run=ends_run)


def _redacted(part: Part) -> Part:
    return TextPart(type="text", text=redact(part.text)) if isinstance(part, TextPart) else part


@step(REMOTE, retry=TOOL_CALL)
async def call_elsewhere(attempt: Attempt) -> Verdict | Wait:
    """Call an agent, or a tool of an MCP server of the agent's own."""
    if attempt.lease.answers.name in attempt.lease.agent.subagents:
        # Not above: with it comes what submits runs.
        from .agent_calls import call_agent

        return await call_agent(attempt)
    await attempt.load_own_tools()
    return await call_tool(attempt)


@step(TOOL, retry=TOOL_CALL)
async def call_tool(attempt: Attempt) -> Verdict | Wait:
    """Call the tool that the model asked for."""
    call = attempt.lease.answers
    tool, arguments = tool_of(attempt, call)
    try:
        async with attempt.permit_for(tool) as wait:
            if wait is not None:
                return wait
            failpoint("tool.starting")
            await attempt.confirm()
            if attempt.service is not None:
                attempt.service.begin()
            output = await make_call(attempt, tool, call, arguments)
    except CallLeft as left:
        return left.verdict
    result = answer(call, output, edited=attempt.lease.edited, ends_run=tool.ends_run)
    failpoint("tool.done")
    return Continue(outcomes=(result,))
