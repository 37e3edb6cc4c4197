"""LangChain: ``BaseTool`` and what is derived from it, as ``@tool`` there and ``StructuredTool`` are."""

from __future__ import annotations

from typing import Any

from palaver.tools.facts import ToolFacts

from .errors import for_the_model


def facts_of(tool: Any) -> ToolFacts:
    """Return the facts about ``tool``. Its callbacks and handlers of errors are run by its own ``invoke``."""
    schema = tool.tool_call_schema

    def call(**arguments: Any) -> Any:
        try:
            return tool.invoke(arguments)
        except Exception as error:
            raise for_the_model(error, "ToolException") from error

    async def call_async(**arguments: Any) -> Any:
        try:
            return await tool.ainvoke(arguments)
        except Exception as error:
            raise for_the_model(error, "ToolException") from error

    return ToolFacts(
        name=tool.name,
        description=tool.description,
        parameters=schema if isinstance(schema, dict) else schema.model_json_schema(),
        call=call_async if _is_async(tool) else call,
        ends_run=bool(tool.return_direct),
    )


def _is_async(tool: Any) -> bool:
    """Tell whether it has a coroutine function; without one its ``ainvoke`` is ``invoke`` in a thread."""
    if hasattr(tool, "coroutine"):
        return tool.coroutine is not None
    base = next(cls for cls in type(tool).__mro__ if cls.__name__ == "BaseTool")
    return type(tool)._arun is not base._arun  # type: ignore[attr-defined]
