"""The service behind the tools of a table, as the options of ``@tool`` have it (ADR 0105, 0030): where their calls
wait, which failures are tried again, and limits for all workers together.

A call of such a tool is one request, by how it is made: what its service has not taken is tried again without a word of
the file about it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Self

from pydantic import Field, StringConstraints, model_validator

from palaver.errors import ConfigurationError, ErrorClass
from palaver.errors.vocabulary import TOOL_CLASSES
from palaver.schemas.fields import Strict
from palaver.steps.retry import RetryPolicy
from palaver.tools import ToolDeclaration
from palaver.tools.declared import UNFIT_QUEUE
from palaver.tools.service import Service
from palaver.vocabulary.names import did_you_mean
from palaver.vocabulary.step_kinds import TOOL, is_own_queue

_MOST_ERRORS: Final = 64
Answer = Annotated[str, StringConstraints(pattern=r"^-?[0-9]{1,6}$")]
"""The number in an answer that says what is wrong: a status of HTTP, or a code of JSON-RPC."""
Errors = Annotated[Mapping[Answer, str], Field(max_length=_MOST_ERRORS)]


class ServiceTable(Strict):
    """The part of a table about the service that its tools call. A tool's own table goes before that of its source."""

    queue: str | None = None
    """The queue of their steps, for workers that take from it. None: that of all tools."""
    retry: dict[str, Any] | None = None
    """The policy for their failed calls: what their service may have taken is tried again if the tool is idempotent,
    or if this names the class."""
    errors: Errors = Field(default={})
    """The class of a failure, by the number in the answer."""
    limit_key: str | None = None
    """The service. All tools that name it wait for it together."""
    max_in_flight: int | None = None
    """Calls of the service at a time, of all workers together."""
    per_minute: int | None = None
    """Calls of the service that begin in a minute."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.queue is not None and self.queue != TOOL.queue and not is_own_queue(self.queue):
            raise ValueError(f"queue: {self.queue[:80]!r} cannot be a queue of tools: {UNFIT_QUEUE}")
        for number, error_class in self.errors.items():
            if error_class not in TOOL_CLASSES:
                hint = (
                    did_you_mean(error_class, TOOL_CLASSES) or f"; a call fails with one of {', '.join(TOOL_CLASSES)}"
                )
                raise ValueError(f"errors: {number}: there is no class {error_class[:40]!r}{hint}")
        try:
            Service(self.policy, {}, self.limit_key, self.max_in_flight, self.per_minute)
        except ConfigurationError as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def policy(self) -> RetryPolicy | None:
        """The policy that it declares.

        Raises:
            ConfigurationError: it is none.
        """
        try:
            return None if self.retry is None else RetryPolicy.parse(self.retry)
        except ConfigurationError as error:
            raise ConfigurationError(f"retry: {error}") from None

    @property
    def limits_calls(self) -> bool:
        """True if it says for which service calls wait together, or how many there may be."""
        return (self.limit_key or self.max_in_flight or self.per_minute) is not None


def at_service(declared: ToolDeclaration, own: ServiceTable, of_source: ServiceTable, source: str) -> ToolDeclaration:
    """Return the declaration of a tool with what its ``own`` table says of its service, or that of its source, whose
    name is the key of the service where none is named."""
    limits, key = (own, declared.name) if own.limits_calls else (of_source, source)
    policy = own.policy or of_source.policy or RetryPolicy()
    key_of_all = (limits.limit_key or key) if limits.limits_calls else None
    service = Service(policy, {}, key_of_all, limits.max_in_flight, limits.per_minute)
    return declared.model_copy(update={"queue": own.queue or of_source.queue}).with_service(service)


def errors_of(own: ServiceTable, of_source: ServiceTable) -> Mapping[str, ErrorClass]:
    """The classes that a tool's table declares, and those of its source for other numbers."""
    return {number: ErrorClass(name) for number, name in {**of_source.errors, **own.errors}.items()}


def described(tools: Mapping[str, ToolDeclaration]) -> Iterator[str]:
    """Yield sentences about what tools have beyond the usual, for ``palaver tools check``."""
    for what, names in _grouped(tools).items():
        some = "All" if len(names) == len(tools) else ", ".join(sorted(names))
        yield f"{some}: {what}."


def _grouped(tools: Mapping[str, ToolDeclaration]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for name, tool in tools.items():
        for what in _special(tool):
            grouped.setdefault(what, []).append(name)
    return grouped


def _special(tool: ToolDeclaration) -> Iterator[str]:
    if tool.queue is not None:
        yield f"queue {tool.queue}"
    if tool.limit_key is not None:
        limits = (
            *([f"{tool.max_in_flight} calls at a time"] if tool.max_in_flight else []),
            *([f"{tool.per_minute} a minute"] if tool.per_minute else []),
        )
        most = f", at most {' and '.join(limits)}" if limits else ""
        yield f"wait together as {tool.limit_key}{most}"
    if tool.retry and (rules := tool.retry["rules"]):
        times = (f"{error_class} {rule['attempts']}" for error_class, rule in rules.items())
        yield f"attempts by class: {', '.join(times)}"
