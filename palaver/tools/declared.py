"""Declarations of tools without their code, as a worker reports them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Final, Self

from pydantic import ConfigDict, Field, PrivateAttr, TypeAdapter
from pydantic_core import from_json, to_json

from palaver.errors import ConfigurationError
from palaver.late import dataclass
from palaver.schemas.fields import DataModel
from palaver.secrets.redaction import redact
from palaver.tools.service import Errors, Service
from palaver.vocabulary.limits import count_exceeded, limit_of
from palaver.vocabulary.step_kinds import TOOL, is_own_queue

UNFIT_QUEUE: Final = (
    "its name has 1 to 32 of a-z, 0-9 and -, begins with a letter or a digit, and is not one that Palaver has itself"
)


class ToolDeclaration(DataModel):
    """A tool as a model sees it, and how its calls are treated."""

    model_config = ConfigDict(frozen=True)

    name: str
    description: str
    parameters: dict[str, Any] = Field(default_factory=dict)
    """JSON schema of the arguments."""
    idempotent: bool = False
    """Starting it twice is as good as once."""
    inline: bool = False
    """It runs inside the model step."""
    risky: bool = False
    """Its calls wait for an approval, unless the agent's policy says ``never``."""
    ends_run: bool = False
    """Its result is the run's output: no model is called after it."""
    timeout: float
    """Seconds."""
    max_result: int | None = None
    """Characters of a result that a model sees at most; None: as many as is usual."""
    queue: str | None = None
    """The queue of its steps, for workers that take from there; None: that of all tools."""
    retry: dict[str, Any] | None = None
    """The policy for its failed calls, if it has one: the rules that go before those of ``SERVICE_CALL``."""
    limit_key: str | None = None
    """Its service. All tools that name it wait for it together."""
    max_in_flight: int | None = None
    """Calls of the service at a time, of all workers together."""
    per_minute: int | None = None
    """Calls of the service that begin in a minute."""
    _errors: Errors = PrivateAttr(default_factory=dict)
    _digest: str = PrivateAttr(default="")

    @property
    def digest(self) -> str:
        """A hash of what a model sees of it, 16 hexadecimal digits: a call says which one its model saw. Empty until
        ``digested``, and of a worker that is so old that it does not go by them."""
        return self._digest

    def digested(self) -> Self:
        """Return the declaration with its digest."""
        seen = redact(self.model_dump_json(include={"name", "description", "parameters"}))
        made = self.model_copy()
        made._digest = hashlib.sha256(seen.encode()).hexdigest()[:16]
        return made

    @property
    def errors(self) -> Errors:
        """The classes of exceptions that it declares. Only the process that has its code knows them."""
        return self._errors

    def within(self, most: int | None) -> Self:
        """Return the declaration with what its results are bounded by: its own number, or ``most``, which an agent
        says, whichever is less; the usual one if neither is said, but for what is the output of a run."""
        said = [number for number in (self.max_result, most) if number is not None]
        usual = limit_of("tool_result" if self.ends_run else "tool_result_usual")
        return self.model_copy(update={"max_result": min(said, default=usual)})

    def with_service(self, service: Service) -> Self:
        """Return the declaration with these options."""
        if not service:
            return self
        made = self.model_copy(
            update={
                "retry": None if service.retry is None else service.retry.dump(),
                "limit_key": service.key_of(self.name),
                "max_in_flight": service.max_in_flight,
                "per_minute": service.per_minute,
            }
        )
        made._errors = service.errors
        return made


_DECLARATIONS: Final = TypeAdapter(list[ToolDeclaration], config=ConfigDict(defer_build=True))


@dataclass(frozen=True, slots=True)
class ToolSet:
    """All tools of a worker, as JSON that is made once. Workers with the same code have the same set."""

    digest: str
    text: bytes

    @classmethod
    def of(cls, declarations: Iterable[ToolDeclaration]) -> ToolSet:
        """The set of these tools.

        Raises:
            ConfigurationError: they are too many, or too large to be reported to every API.
        """
        tools = sorted(declarations, key=lambda tool: tool.name)
        # A tool's default may be a key.
        told = _DECLARATIONS.dump_python(tools, mode="json", exclude_none=True)
        for tool, says in zip(tools, told, strict=True):
            says |= {"digest": tool.digest} if tool.digest else {}
        text = redact(to_json(told).decode()).encode()
        many, large = len(tools) > limit_of("declared_tools"), len(text) > limit_of("declared_tools_bytes")
        if many or large:
            count_exceeded("declared_tools" if many else "declared_tools_bytes")
            raise ConfigurationError(
                f"PALAVER_TOOLS: {len(tools)} tools with {len(text):,} bytes of declarations; at most "
                f"{limit_of('declared_tools')} and {limit_of('declared_tools_bytes'):,}: give some to other workers"
            )
        return cls.having(text)

    @classmethod
    def having(cls, text: bytes) -> ToolSet:
        """The set that says this."""
        return cls(hashlib.sha256(text).hexdigest()[:32], text)


def check_max_result(tool: str, most: int | None) -> None:
    """Raises:
    ConfigurationError: no result can be bounded so.
    """
    least, greatest = limit_of("tool_result_least"), limit_of("tool_result")
    if most is not None and not least <= most <= greatest:
        raise ConfigurationError(f"tool {tool}: max_result is from {least:,} to {greatest:,} characters, not {most:,}")


def check_queue(tool: str, queue: str | None, *, inline: bool) -> None:
    """Raises:
    ConfigurationError: no tool can have that queue, or not this one.
    """
    if queue is None:
        return
    if queue != TOOL.queue and not is_own_queue(queue):
        raise ConfigurationError(f"tool {tool}: {queue[:80]!r} cannot be a queue of tools: {UNFIT_QUEUE}")
    if inline:
        raise ConfigurationError(
            f"tool {tool}: it is inline, so it runs inside the model step and is in no queue: leave queue or inline out"
        )


def declarations_in(text: bytes) -> list[ToolDeclaration]:
    """The tools of a set; what a newer version says of them besides is left out."""
    told = from_json(text)
    tools = _DECLARATIONS.validate_python(told)
    for tool, says in zip(tools, told, strict=True):
        tool._digest = str(says.get("digest", ""))
    return tools
