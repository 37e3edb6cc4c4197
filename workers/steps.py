"""The two steps there are: a model call and a tool call."""

from __future__ import annotations

from palaver.errors import ToolFailure
from palaver.lifecycle import StopReason
from palaver.models import Message, ToolCall
from palaver.retry import MODEL_CALL, TOOL_CALL
from palaver.verdicts import Continue, Finish, OpenCall, ToolOutcome, Verdict
from workers.completion import Completion
from workers.model import request_body
from workers.step import step, told_to_the_model
from workers.toolbox import answer, call_async, failure_of
from workers.work import Work

_STOPS = {"content_filter": StopReason.CONTENT_FILTER, "length": StopReason.MAX_TOKENS}


@step(retry=MODEL_CALL)
async def call_model(work: Work) -> Verdict:
    """Ask the model for its next move; quick inline tools are answered at once."""
    lease, runtime = work.lease, work.runtime
    completion = Completion()
    work.follow(completion)
    body = request_body(lease.agent, work.messages(), runtime.registry)
    async with runtime.gate.passing(lease, lease.agent.provider, body, completion):
        reply = await runtime.model.complete(
            lease.agent,
            body,
            on_text=work.show,
            time_left=lease.time_left,
            request_id=f"{lease.run_id}:{lease.step}:{lease.try_number}",
            completion=completion,
        )
    if reply.finish_reason in _STOPS or not reply.tool_calls:
        message = Message(role="assistant", content=reply.content)
        return Finish(message, _STOPS.get(reply.finish_reason, StopReason.END_TURN), reply.usage)
    outcomes, calls = await _begin(work, reply.tool_calls)
    message = Message(role="assistant", content=reply.content, tool_calls=reply.tool_calls)
    return Continue(message, tuple(outcomes), tuple(calls), reply.usage)


async def _begin(work: Work, calls: tuple[ToolCall, ...]) -> tuple[list[ToolOutcome], list[OpenCall]]:
    """Answer what can be answered here, inline tools and calls that do not fit; the rest become tool steps."""
    outcomes: list[ToolOutcome] = []
    open_calls: list[OpenCall] = []
    for call in calls:
        try:
            tool, arguments = work.tool(call)
            if tool.inline:
                outcomes.append(answer(call, await call_async(tool, arguments)))
            else:
                open_calls.append(OpenCall(call, tool.idempotent))
        except ToolFailure as error:
            outcomes.append(told_to_the_model(call, failure_of(error)))
    return outcomes, open_calls


@step(retry=TOOL_CALL)
async def call_tool(work: Work) -> Verdict:
    """Run the tool that the model asked for, in this child process."""
    call = work.lease.call
    assert call is not None  # only tool steps are delivered here
    tool, arguments = work.tool(call)
    return Continue(outcomes=(answer(call, await work.runtime.run_tool(tool, arguments)),))
