"""A tool: a function with a JSON schema and declared behaviour. ``@tool`` makes the schema of a typed function, and
``Tool`` takes one that is there."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from types import NoneType, UnionType
from typing import Annotated, Any, Final, TypedDict, Union, Unpack, get_args, get_origin, overload

from pydantic import BaseModel, ConfigDict, PydanticUserError, TypeAdapter, ValidationError, create_model

from palaver.errors import ConfigurationError, InvalidToolCall
from palaver.schemas.arguments import in_words, read
from palaver.schemas.fields import ToolName
from palaver.tools.context import ToolContext
from palaver.tools.declared import ToolDeclaration, check_max_result, check_queue
from palaver.tools.facts import ToolFacts
from palaver.tools.foreign import foreign_tool
from palaver.tools.service import Errors, Retries, Service
from palaver.vocabulary.limits import limit_of
from palaver.vocabulary.names import did_you_mean

_TIMEOUT: Final = 30.0


@dataclass(frozen=True, slots=True)
class Tool:
    """A function with its declaration: ``Tool(name, description, parameters, call)``. Calling it calls the function.

    ``call`` is a function, sync or async. It gets the arguments by their names, nested ones as dicts and lists, after
    they were held to ``parameters``, and the ``ToolContext`` if one of its parameters is annotated with that. The
    options are those of ``@tool``, which makes the schema from a signature.

    Raises:
        ConfigurationError: no model could call it by this name, nothing can be held to the schema, or an option is no
            good.
    """

    name: str
    description: str
    parameters: dict[str, Any] = field(repr=False)
    """JSON schema of the arguments, as a model sees it."""
    call: Callable[..., Any]
    _: KW_ONLY
    idempotent: bool = False
    """Starting it twice is as good as once; only then is it started again after its worker died."""
    inline: bool = False
    """Quick and pure: runs inside the model step, in the model worker's loop. Must not block."""
    risky: bool = False
    """Its calls wait for an approval, unless the agent's policy says ``never``."""
    ends_run: bool = False
    """Its result is the run's output: no model is called after it."""
    timeout: float = _TIMEOUT
    """Seconds."""
    arguments: type[BaseModel] | None = field(default=None, repr=False)
    """The arguments as ``@tool`` has them of a signature; None: the schema is all that is known of them."""
    queue: str | None = None
    """The queue of its steps, for workers that take from there; None: that of all tools."""
    max_result: int | None = None
    """Characters of a result that the model sees at most; None: 30,000, or what the agent says."""
    context_parameter: str | None = None
    """The parameter that takes the ``ToolContext``; None if there is none."""
    service: Service = field(default_factory=Service, repr=False)
    """The options about failed calls, and the limits of what it calls."""

    def __post_init__(self) -> None:
        _require_timeout(self.timeout)
        check_queue(self.name, self.queue, inline=self.inline)
        check_max_result(self.name, self.max_result)
        if self.inline and self.service:
            raise ConfigurationError(f"tool {self.name}: {_INLINE}")
        if self.arguments is None:
            _require_name(self.name)
            _require_schema(self.name, self.parameters)
            context_parameter = _context_parameter_of(self.name, self.call)
            if context_parameter in self.parameters.get("properties", ()):
                raise ConfigurationError(f"tool {self.name}: the model fills {context_parameter}, or it is the context")
            object.__setattr__(self, "context_parameter", context_parameter)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.call(*args, **kwargs)

    @property
    def declaration(self) -> ToolDeclaration:
        """The facts about it for processes without its code."""
        return ToolDeclaration(
            name=self.name,
            description=self.description,
            parameters=self.parameters,
            idempotent=self.idempotent,
            inline=self.inline,
            risky=self.risky,
            ends_run=self.ends_run,
            timeout=self.timeout,
            max_result=self.max_result,
            queue=self.queue,
        ).with_service(self.service)

    @property
    def is_async(self) -> bool:
        """True if the function is a coroutine function."""
        return inspect.iscoroutinefunction(self.call)

    def bind(self, arguments: Mapping[str, Any], context: ToolContext) -> Callable[[], Any]:
        """A call of the function with ``arguments``, and with ``context`` if it asks for it."""
        extra = {} if self.context_parameter is None else {self.context_parameter: context}
        return partial(self.call, **{**arguments, **extra})

    def parse(self, arguments: str) -> dict[str, Any]:
        """The keyword arguments in the JSON text ``arguments``, validated against the signature, or else the schema.

        Raises:
            InvalidToolCall: says to the model what does not fit.
        """
        if self.arguments is None:
            # Not at the top: most who only declare tools have no validator of schemas installed.
            from palaver.tools.schemas import fitting

            return fitting(self, arguments)
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


def _require_name(name: str) -> None:
    try:
        _NAME.validate_python(name)
    except ValidationError:
        why = "1 to 64 letters, digits, _ and -, as models call it"
        raise ConfigurationError(f"a tool cannot be named {str(name)[:100]!r}: {why}") from None


def _require_timeout(timeout: float) -> None:
    if not 0 < timeout <= limit_of("tool_timeout"):
        raise ConfigurationError(f"a tool's timeout is more than 0 and at most {limit_of('tool_timeout'):,} s")


def _require_schema(name: str, parameters: dict[str, Any]) -> None:
    try:
        from palaver.schemas.json_schemas import Unfit, require_fit
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"tool {name}: JSON schemas need palaver[server]: {error}") from error
    if not isinstance(parameters, dict) or parameters.get("type", "object") != "object":
        raise ConfigurationError(f"tool {name}: its parameters are a JSON schema of an object")
    try:
        require_fit(parameters)
    except Unfit as error:
        place = error.pointer and f" at {error.pointer}"
        raise ConfigurationError(f"tool {name}: its schema{place} {error}") from error
    except TypeError as error:
        raise ConfigurationError(f"tool {name}: its schema is not JSON: {error}") from error


_NAME: Final[TypeAdapter[str]] = TypeAdapter(ToolName, config=ConfigDict(defer_build=True))
_INLINE: Final = (
    "an inline tool is called within a step of the model, once: retry, errors, limit_key, max_in_flight and per_minute"
    " are for tools whose calls are steps of their own; leave inline out"
)


class ToolOptions(TypedDict, total=False):
    """The options of ``@tool``."""

    name: str | None
    """The name that models call it by; the function's if it is left out."""
    description: str | None
    """The words about it for models; the docstring if they are left out."""
    idempotent: bool
    inline: bool
    risky: bool
    ends_run: bool
    timeout: float | None
    """Seconds."""
    max_result: int | None
    """Characters."""
    queue: str | None
    retry: Retries | None
    errors: Errors | None
    limit_key: str | None
    max_in_flight: int | None
    per_minute: int | None


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None, /, **options: Unpack[ToolOptions]
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Declare a function, sync or async, as a tool; or a tool of another framework, which has a schema already.

    The model sees the name, the description (the docstring) and the JSON schema (the signature). A parameter that is
    annotated with ``ToolContext`` is not part of the schema: the function gets the context of its call there.
    ``timeout`` is in seconds, 30 unless something else is known. Without ``idempotent`` a call is never started twice:
    if its worker dies, the result says that it may or may not have taken effect. Calls of a ``risky`` tool wait for
    an approval. The result of a tool that ``ends_run`` is the run's output: no model is called after it.
    Calls of a tool with a ``queue`` are for workers that take from it: ``palaver tools -Q gpu``. Of a result with more
    than ``max_result`` characters, 30,000 unless the agent says otherwise, the model sees the beginning and the end.

    ``retry`` is the tool's ``RetryPolicy``, and says that a call is one request of one service: what was not sent, or
    refused with 429 or 503, is tried again; what may have been taken, if the tool is ``idempotent`` or the policy names
    the class of the failure. ``errors`` are the classes of the tool's own exceptions. All tools with one ``limit_key``
    wait together for their service when it is out or asks for fewer requests; at most ``max_in_flight`` calls of it are
    made at a time, and ``per_minute`` in a minute, by all workers together.

    Raises:
        ConfigurationError: when the signature cannot be a schema, an option does not fit, or there is no such option.
    """
    known = tuple(ToolOptions.__annotations__)
    for option in options:
        if option not in known:
            hint = did_you_mean(option, known) or f"; there are: {', '.join(known)}"
            raise ConfigurationError(f"@tool has no option {option}{hint}")
    service = Service(
        options.get("retry"),
        options.get("errors") or {},
        options.get("limit_key"),
        options.get("max_in_flight"),
        options.get("per_minute"),
    )
    if (timeout := options.get("timeout")) is not None:
        _require_timeout(timeout)
    return partial(_declared, options, service) if function is None else _declared(options, service, function)


def _declared(options: ToolOptions, service: Service, function: Callable[..., Any]) -> Tool:
    found = foreign_tool(function) or _of_signature(function)
    description = options.get("description")
    return Tool(
        options.get("name") or found.name,
        found.description if description is None else description,
        found.parameters,
        found.call,
        idempotent=options.get("idempotent", False),
        inline=options.get("inline", False),
        risky=options.get("risky", False) or found.risky,
        ends_run=options.get("ends_run", False) or found.ends_run,
        timeout=options.get("timeout") or found.timeout or _TIMEOUT,
        max_result=options.get("max_result"),
        queue=options.get("queue"),
        service=service,
        arguments=found.arguments,
        context_parameter=found.context_parameter,
    )


def _of_signature(function: Callable[..., Any]) -> ToolFacts:
    try:
        arguments, context_parameter = _parameters_of(function)
        schema = arguments.model_json_schema()
    except PydanticUserError as error:
        why = error.message.partition("\n")[0].partition(". ")[0]
        raise ConfigurationError(f"tool {function.__name__}: a type has no JSON schema: {why}") from error
    schema.pop("title", None)
    for field_schema in schema.get("properties", {}).values():
        field_schema.pop("title", None)
    return ToolFacts(
        name=function.__name__,
        description=inspect.getdoc(function) or "",
        parameters=schema,
        call=function,
        arguments=arguments,
        context_parameter=context_parameter,
    )


def _parameters_of(function: Callable[..., Any]) -> tuple[type[BaseModel], str | None]:
    """The parameters that the model fills, as a model of pydantic's, and the name of the one for the context."""
    fields: dict[str, Any] = {}
    contexts: list[str] = []
    signature = _signature_of(function.__name__, function)
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
    model = create_model(function.__name__, __config__=ConfigDict(extra="forbid"), **fields)
    return model, _only_one(function.__name__, contexts)


def _context_parameter_of(name: str, call: Callable[..., Any]) -> str | None:
    """The parameter of ``call`` that takes the context; None if there is none, or it cannot be told."""
    try:
        signature = _signature_of(name, call)
    except ValueError:  # of a function in C
        return None
    return _only_one(name, [each.name for each in signature.parameters.values() if _is_context(each.annotation)])


def _signature_of(name: str, function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function, eval_str=True)
    except NameError as error:
        raise ConfigurationError(f"tool {name}: cannot resolve its annotations: {error}") from error
    except TypeError as error:
        raise ConfigurationError(f"tool {name}: nothing to call: {error}") from error


def _only_one(name: str, contexts: list[str]) -> str | None:
    if len(contexts) > 1:
        raise ConfigurationError(f"tool {name}: one parameter may be a ToolContext, not {len(contexts)}")
    return contexts[0] if contexts else None


def _is_context(annotation: Any) -> bool:
    """Tell whether it is ``ToolContext``, perhaps with None as an alternative."""
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, UnionType):
        return {*get_args(annotation)} == {ToolContext, NoneType}
    return annotation is ToolContext
