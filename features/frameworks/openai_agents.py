"""The OpenAI Agents SDK: ``FunctionTool``, as ``@function_tool`` there makes it."""

from __future__ import annotations

import json
import sys
from typing import Any

from palaver.tools.context import ToolContext
from palaver.tools.facts import ToolFacts


def facts_of(tool: Any) -> ToolFacts | None:
    """Return the facts about ``tool``; None if it is not enabled. Its own handler of errors says what a model is told
    of them. The ``context`` of the context that it gets is that of the call here."""
    if tool.is_enabled is False:
        return None
    # Loaded with the tool.
    context_class: Any = sys.modules["agents.tool_context"].ToolContext

    async def call(_of_the_call: ToolContext, **arguments: Any) -> Any:
        text = json.dumps(arguments)
        context = context_class(
            context=_of_the_call, tool_name=tool.name, tool_call_id=_of_the_call.call_id, tool_arguments=text
        )
        return await tool.on_invoke_tool(context, text)

    return ToolFacts(
        name=tool.name,
        description=tool.description,
        parameters=tool.params_json_schema,
        call=call,
        # Where a function decides, a person is asked each time.
        risky=bool(tool.needs_approval),
        timeout=tool.timeout_seconds,
    )
