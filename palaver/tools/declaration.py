"""The ``@tool`` decorator: a typed function becomes a tool with a JSON schema and declared behaviour."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin, overload

from pydantic import BaseModel, ConfigDict, PydanticUserError, ValidationError, create_model

from palaver.errors import ConfigurationError, InvalidToolCall
from palaver.schemas.arguments import in_words, read
from palaver.tools.context import ToolContext
from palaver.tools.declared import ToolDeclaration
from palaver.tools.service import Errors, Retries, Service
from palaver.vocabulary.limits import limit_of
from palaver.vocabulary.names import did_you_mean


@dataclass(frozen=True, slots=True)
class Tool:
    """A function with its declaration. Calling it calls the function."""

    name: str
    description: str
    function: Callable[..., Any]
    idempotent: bool
    """Starting it twice is as good as once; only then is it started again after its worker died."""
    inline: bool
    """Quick and pure: runs inside the model step, in the model worker's loop. Must not block."""
    risky: bool
    """Its calls wait for an approval, unless the agent's policy says ``never``."""
    ends_run: bool
    """Its result is the run's output: no model is called after it."""
    timeout: float
    """Seconds."""
    arguments: type[BaseModel] = field(repr=False)
    schema: dict[str, Any] = field(repr=False)
    """JSON schema of the arguments, as a model sees it."""
    context_parameter: str | None = None
    """The parameter that takes the ``ToolContext``; None if there is none."""
    service: Service = field(default_factory=Service, repr=False)
    """The options about failed calls, and the limits of what it calls."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    @property
    def declaration(self) -> ToolDeclaration:
        """The facts about it for processes without its code."""
        return ToolDeclaration(
            name=self.name,
            description=self.description,
            parameters=self.schema,
            idempotent=self.idempotent,
            inline=self.inline,
            risky=self.risky,
            ends_run=self.ends_run,
            timeout=self.timeout,
        ).with_service(self.service)

    @property
    def is_async(self) -> bool:
        """True if the function is a coroutine function."""
        return inspect.iscoroutinefunction(self.function)

    def bind(self, arguments: Mapping[str, Any], context: ToolContext) -> Callable[[], Any]:
        """A call of the function with ``arguments``, and with ``context`` if it asks for it."""
        extra = {} if self.context_parameter is None else {self.context_parameter: context}
        return partial(self.function, **arguments, **extra)

    def parse(self, arguments: str) -> dict[str, Any]:
        """The keyword arguments in the JSON text ``arguments``, validated against the signature.

        Raises:
            InvalidToolCall: says to the model what does not fit.
        """
        try:
            read(arguments)
            parsed = self.arguments.model_validate_json(arguments.strip() or "{}")
        except InvalidToolCall as error:
            raise InvalidToolCall(f"the arguments of {self.name} do not fit: {error}") from None
        except ValidationError as error:
            raise InvalidToolCall(f"the arguments of {self.name} do not fit: {_faults(error)}") from None
        except Exception as error:
            # A validator of the tool's own that did not foresee them.
            raise InvalidToolCall(f"the arguments of {self.name} do not fit: {type(error).__name__}") from error
        return {name: getattr(parsed, name) for name in type(parsed).model_fields}


def _faults(error: ValidationError) -> str:
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    return in_words([(fault["loc"], fault["msg"]) for fault in errors])


_OPTIONS: Final = (
    *("name", "description", "idempotent", "inline", "risky", "ends_run", "timeout"),
    *("retry", "errors", "limit_key", "max_in_flight", "per_minute"),
)
_INLINE: Final = (
    "an inline tool is called within a step of the model, once: retry, errors, limit_key, max_in_flight and per_minute"
    " are for tools whose calls are steps of their own; leave inline out"
)


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    idempotent: bool = False,
    inline: bool = False,
    risky: bool = False,
    ends_run: bool = False,
    timeout: float = 30.0,
    retry: Retries | None = None,
    errors: Errors | None = None,
    limit_key: str | None = None,
    max_in_flight: int | None = None,
    per_minute: int | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    idempotent: bool = False,
    inline: bool = False,
    risky: bool = False,
    ends_run: bool = False,
    timeout: float = 30.0,
    retry: Retries | None = None,
    errors: Errors | None = None,
    limit_key: str | None = None,
    max_in_flight: int | None = None,
    per_minute: int | None = None,
    **others: object,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Declare a function, sync or async, as a tool.

    The model sees the name, the description (the docstring) and the JSON schema (the signature). A parameter that is
    annotated with ``ToolContext`` is not part of the schema: the function gets the context of its call there.
    ``timeout`` is in seconds. Without ``idempotent`` a call is never started twice: if its worker dies, the result says
    that it may or may not have taken effect. Calls of a ``risky`` tool wait for somebody's approval. The result of a
    tool that ``ends_run`` is the run's output: no model is called after it.

    ``retry`` is the tool's ``RetryPolicy``, and says that a call is one request of one service: what was not sent, or
    refused with 429 or 503, is tried again; what may have been taken, if the tool is ``idempotent`` or the policy names
    the class of the failure. ``errors`` are the classes of the tool's own exceptions. All tools with one ``limit_key``
    wait together for their service when it is out or asks for fewer requests; at most ``max_in_flight`` calls of it are
    made at a time, and ``per_minute`` in a minute, by all workers together.

    Raises:
        ConfigurationError: when the signature cannot be a schema, an option does not fit, or there is no such option.
    """
    for option in others:
        hint = did_you_mean(option, _OPTIONS) or f"; there are: {', '.join(_OPTIONS)}"
        raise ConfigurationError(f"@tool has no option {option}{hint}")
    service = Service(retry, errors or {}, limit_key, max_in_flight, per_minute)
    if inline and service:
        raise ConfigurationError(_INLINE)
    if not 0 < timeout <= limit_of("tool_timeout"):
        raise ConfigurationError(f"a tool's timeout is more than 0 and at most {limit_of('tool_timeout'):,} s")

    def declare(function: Callable[..., Any]) -> Tool:
        try:
            arguments, context_parameter = _parameters_of(function)
            schema = arguments.model_json_schema()
        except PydanticUserError as error:
            why = error.message.partition("\n")[0].partition(". ")[0]
            raise ConfigurationError(f"tool {function.__name__}: a type has no JSON schema: {why}") from error
        schema.pop("title", None)
        for field_schema in schema.get("properties", {}).values():
            field_schema.pop("title", None)
        return Tool(
            name=name or function.__name__,
            description=description if description is not None else inspect.getdoc(function) or "",
            function=function,
            idempotent=idempotent,
            inline=inline,
            risky=risky,
            ends_run=ends_run,
            timeout=timeout,
            arguments=arguments,
            schema=schema,
            context_parameter=context_parameter,
            service=service,
        )

    return declare if function is None else declare(function)


def _parameters_of(function: Callable[..., Any]) -> tuple[type[BaseModel], str | None]:
    """The parameters that the model fills, as a model of pydantic's, and the name of the one for the context."""
    fields: dict[str, Any] = {}
    contexts: list[str] = []
    try:
        signature = inspect.signature(function, eval_str=True)
    except NameError as error:
        raise ConfigurationError(f"tool {function.__name__}: cannot resolve its annotations: {error}") from error
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise ConfigurationError(f"tool {function.__name__}: parameter {parameter.name} must be an ordinary one")
        if parameter.annotation is parameter.empty:
            raise ConfigurationError(f"tool {function.__name__}: parameter {parameter.name} needs a type annotation")
        if _is_context(parameter.annotation):
            contexts.append(parameter.name)
            continue
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (parameter.annotation, default)
    if len(contexts) > 1:
        raise ConfigurationError(f"tool {function.__name__}: one parameter may be a ToolContext, not {len(contexts)}")
    model = create_model(function.__name__, __config__=ConfigDict(extra="forbid"), **fields)
    return model, contexts[0] if contexts else None


def _is_context(annotation: Any) -> bool:
    """Tell whether it is ``ToolContext``, perhaps with None as an alternative."""
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, UnionType):
        return {*get_args(annotation)} == {ToolContext, NoneType}
    return annotation is ToolContext
