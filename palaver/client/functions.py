"""Python functions as client tools: the model sees their signatures, and they are called here."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from palaver.errors import ToolFailure
from palaver.schemas.actions import ClientTool, PendingAction, ToolOutput
from palaver.schemas.models import Run
from palaver.tools.context import ToolContext
from palaver.tools.declaration import Tool, tool
from palaver.tools.rendering import MAX_RESULT_CHARS, render

ClientTools: TypeAlias = Sequence[ClientTool | Mapping[str, Any] | Callable[..., Any]]
"""Declarations, as specs or dicts, and functions: typed ones, with ``@tool`` or without."""

_log: Final = logging.getLogger("palaver.client")


@dataclass(frozen=True, slots=True)
class ClientToolset:
    """The tools that the model may ask this client for."""

    declarations: tuple[Mapping[str, Any], ...]
    """All of it, as on the wire."""
    functions: Mapping[str, Tool]
    """The functions that can be called here, by name."""

    @classmethod
    def of(cls, client_tools: ClientTools) -> ClientToolset:
        """The declarations of these tools, and those of them that are functions.

        Raises:
            ValueError: two have the same name, or a function is declared as risky or cannot be declared at all.
            ConfigurationError: a function's signature cannot be a schema.
        """
        declarations: list[Mapping[str, Any]] = []
        functions: dict[str, Tool] = {}
        for client_tool in client_tools:
            if isinstance(client_tool, ClientTool):
                declarations.append(client_tool.model_dump(mode="json", exclude_unset=True))
            elif isinstance(client_tool, Mapping):
                declarations.append(dict(client_tool))
            else:
                function = _tool_of(client_tool)
                declarations.append(_declaration(function, own_timeout=isinstance(client_tool, Tool)))
                functions[function.name] = function
        names = [str(declaration.get("name")) for declaration in declarations]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two client tools are named {name!r}")
        return cls(tuple(declarations), functions)

    def calls(self, run: Run) -> Iterator[FunctionCall]:
        """Yield the calls that the run waits for and that a function here answers."""
        for action in run.pending_actions:
            if action.type == "client_tool" and action.tool in self.functions:
                yield FunctionCall(action, self.functions[action.tool], _context(run, action))


def _context(run: Run, action: PendingAction) -> ToolContext:
    """Return the context of a call for its function. Its progress is not shown: it runs in the watcher's own
    program."""
    return ToolContext(
        run_id=run.id,
        conversation_id=run.conversation_id,
        call_id=action.call_id,
        metadata=run.metadata,
        submitted_by=run.submitted_by,
        deadline=action.expires_at,
        idempotency_key=f"{run.id}:{action.id}",
    )


def _tool_of(function: Callable[..., Any]) -> Tool:
    declared = function if isinstance(function, Tool) else None
    if declared is None:
        if not hasattr(function, "__name__"):
            raise ValueError(f"a client tool needs a name, which {function!r} has not: write a function, or use @tool")
        declared = tool(function)
    if declared.risky:
        raise ValueError(f"{declared.name} is risky, but calls of client tools are not approved: ask in the function")
    if declared.ends_run:
        raise ValueError(f"{declared.name} is to end the run, and only tools of the server do")
    return declared


def _declaration(function: Tool, *, own_timeout: bool) -> Mapping[str, Any]:
    options: dict[str, Any] = {"timeout": float(function.timeout)} if own_timeout else {}
    spec = ClientTool(name=function.name, description=function.description, parameters=function.parameters, **options)
    return spec.model_dump(mode="json", exclude_unset=True)


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A call of a function that a run waits for. An exception of the function becomes an output for the model."""

    action: PendingAction
    function: Tool
    context: ToolContext

    def bound(self) -> Callable[[], Any]:
        """The call, to be made. Raises InvalidToolCall when the arguments do not fit."""
        return self.function.bind(self.function.parse(self.action.arguments), self.context)

    def output(self, result: object, *, is_error: bool = False) -> ToolOutput:
        """Return the output for the model from a result."""
        text = render(result, self.function.max_result or MAX_RESULT_CHARS)
        return ToolOutput(type="tool_output", call_id=self.action.id, output=text, is_error=is_error)

    def failed(self, error: BaseException) -> ToolOutput:
        """Return the output for the model after an error."""
        if isinstance(error, ToolFailure):
            return self.output(str(error), is_error=True)
        _log.warning("client tool %s failed", self.function.name, exc_info=error)
        return self.output(f"{self.function.name} failed: {type(error).__name__}: {error}", is_error=True)

    def refused(self, why: str) -> ToolOutput:
        """Return the output for the model when the API does not take the real one."""
        return self.output(f"the output of {self.function.name} could not be sent: {why}", is_error=True)
