"""pydantic-ai: ``Tool``, of a function with or without a schema of its own."""

from __future__ import annotations

from typing import Any

from palaver.errors import ConfigurationError, InvalidToolCall
from palaver.tools.facts import ToolFacts

from .errors import for_the_model


def facts_of(tool: Any) -> ToolFacts:
    """Return the facts about ``tool``. Its own validator makes the arguments what its function takes.

    Raises:
        ConfigurationError: it takes the context of an agent there.
    """
    if tool.takes_ctx:
        raise ConfigurationError(
            f"tool {tool.name}: it takes a RunContext, which only an agent of pydantic-ai has: take a ToolContext of "
            "palaver's, under @tool"
        )
    schema, definition = tool.function_schema, tool.tool_def

    def call(**arguments: Any) -> Any:
        positional, named = _bound(tool.name, schema, arguments)
        try:
            return schema.function(*positional, **named)
        except Exception as error:
            raise for_the_model(error, "ModelRetry") from error

    async def call_async(**arguments: Any) -> Any:
        positional, named = _bound(tool.name, schema, arguments)
        try:
            return await schema.function(*positional, **named)
        except Exception as error:
            raise for_the_model(error, "ModelRetry") from error

    return ToolFacts(
        name=definition.name,
        description=definition.description or "",
        parameters=definition.parameters_json_schema,
        call=call_async if schema.is_async else call,
        risky=bool(tool.requires_approval),
        timeout=tool.timeout,
    )


def _bound(name: str, schema: Any, arguments: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments as the function takes them: by place, and by name.

    Raises:
        InvalidToolCall: they do not fit.
    """
    try:
        named = dict(schema.validator.validate_python(arguments))
    except ValueError as error:
        raise InvalidToolCall(f"the arguments of {name} do not fit: {error}") from error
    positional = [named.pop(field) for field in schema.positional_fields]
    if schema.var_positional_field:
        positional.extend(named.pop(schema.var_positional_field))
    return positional, named
