"""The exceptions Palaver raises.

    PalaverError
     ├── ProviderError                a model's provider did not give a usable answer
     │    ├── ProviderHTTPError       it answered with an error status
     │    ├── MalformedResponse       the answer is not a completion
     │    ├── EmptyCompletion         a completion with neither text nor calls
     │    │    └── EmptyTurn          the same, of a model that says that its turn is over
     │    ├── TruncatedStream         the stream broke off
     │    ├── ResponseTooLarge        more bytes than allowed
     │    ├── TooManyToolCalls        more calls in one answer than allowed
     │    ├── ToolCallTooLarge        a call is longer than allowed
     │    ├── FirstTokenTimeout       no first token in time
     │    ├── IdleTimeout             the stream stalled
     │    └── TotalTimeout            the whole call took too long
     ├── ToolFailure
     │    ├── ToolError               raised by a tool: its message is told to the model
     │    │    └── RetryableToolError try the tool again
     │    ├── ToolTimeout             the tool overran its time
     │    └── InvalidToolCall         the model's call does not fit the tool
     │         └── UnknownTool
     ├── ControlFlow                  not failures: classify() lets them through
     │    └── StaleLease
     │         └── NewerVersion       this code is too old for a conversation
     ├── ConfigurationError
     │    └── UnknownPrice            a cap in money needs the price of a model
     ├── NoWorker                     no worker has what a step needs
     ├── StoreUnavailable             the store did not answer in time
     ├── NotDurable                   written, but not as safely as PALAVER_DURABILITY asks
     ├── UnknownRecord                there is none of that id or name
     │    ├── UnknownRun
     │    ├── UnknownConversation
     │    └── UnknownAgent
     ├── IdempotencyMismatch
     ├── NoRoom
     ├── TimePassed
     ├── StateConflict
     ├── Refused                      a request does not fit; says where and why
     └── RunFailed                    raised by the SDK; carries the run's error object

An exception that is raised without a message uses the first paragraph of its docstring.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from palaver.errors.headers import request_id as request_id_of
from palaver.late import dataclass
from palaver.vocabulary.limits import count_exceeded, limit_of

if TYPE_CHECKING:
    from palaver.errors.finding import ToolFinding

MAX_BODY: Final = limit_of("error_body")
"""Bytes of an error body that are read: providers' error objects are below 10 kB, proxies' pages below 64."""


_MAX_FAULTS: Final = limit_of("faults")


class PalaverError(Exception):
    """Something went wrong in Palaver."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (inspect.getdoc(type(self)) or "").partition("\n\n")[0])

    def __reduce__(self) -> tuple[Any, ...]:
        # A prefork pool pickles what a task raises; Exception's own way would call __init__ with the message.
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[PalaverError], args: tuple[object, ...], state: dict[str, object]) -> PalaverError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error


class ProviderError(PalaverError):
    """The provider did not give a usable answer."""

    provider: str | None = None
    model: str | None = None
    status: int | None = None
    request_id: str | None = None

    def __init__(
        self,
        message: str | None = None,
        *,
        provider: str | None = None,
        model: str | None = None,
        status: int | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.provider = provider
        self.model = model
        self.status = status
        self.request_id = request_id


class ProviderHTTPError(ProviderError):
    """The provider answered with an error status, or with an error inside a 200.

    ``body`` is cut at ``MAX_BODY`` bytes; it may quote the prompt, so the classifier reads it and it is never shown.
    """

    def __init__(
        self,
        status: int,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        provider: str | None = None,
        model: str | None = None,
        request_id: str | None = None,
    ) -> None:
        self.headers: Mapping[str, str] = dict(headers or {})
        self.body = bytes(body[:MAX_BODY])
        super().__init__(
            f"{provider or 'The provider'} answered HTTP {status}.",
            provider=provider,
            model=model,
            status=status,
            request_id=request_id or request_id_of(self.headers),
        )


class MalformedResponse(ProviderError):
    """The provider's answer is not a completion."""


class EmptyCompletion(ProviderError):
    """The completion has neither text nor tool calls."""


class EmptyTurn(EmptyCompletion):
    """The model ended its turn with neither text nor tool calls."""


class TruncatedStream(ProviderError):
    """The stream broke off before its end."""


class ResponseTooLarge(ProviderError):
    """The provider's answer is larger than allowed."""


class TooManyToolCalls(ProviderError):
    """The provider's answer has more tool calls than allowed."""


class ToolCallTooLarge(ProviderError):
    """A tool call in the provider's answer is larger than allowed."""


class FirstTokenTimeout(ProviderError):
    """The model did not begin to answer in time."""


class IdleTimeout(ProviderError):
    """The model's stream stalled."""


class TotalTimeout(ProviderError):
    """The model call took longer than allowed."""


class ToolFailure(PalaverError):
    """A tool call has no result."""

    finding: ToolFinding | None = None
    """The facts about what the tool raised, if they were found where it was raised."""


class ToolError(ToolFailure):
    """The tool failed.

    For tools to raise: the message goes to the model, which may go on without the tool.
    """


class RetryableToolError(ToolError):
    """The tool failed and asks to be tried again.

    ``retry_after`` is in seconds; without it the back-off of the tool's policy applies. When the attempts are used up,
    the message goes to the model.
    """

    retry_after: float | None = None

    def __init__(self, message: str | None = None, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ToolTimeout(ToolFailure):
    """The tool did not finish in time."""


class InvalidToolCall(ToolFailure):
    """The arguments of the tool call do not fit the tool."""


class UnknownTool(InvalidToolCall):
    """There is no tool of that name."""


class ControlFlow(PalaverError):
    """Work on the step must end; nothing failed."""


class StaleLease(ControlFlow):
    """The lease was taken over: another worker goes on with this step."""


class NewerVersion(StaleLease):
    """This is left to workers and an API of another installation: newer code has worked on the conversation, or a
    feature is to see what becomes of the run that this one lacks (``feature``, else empty)."""

    def __init__(self, feature: str = "") -> None:
        super().__init__(f"it needs the feature {feature}" if feature else "newer code works on it")
        self.feature = feature


class ConfigurationError(PalaverError):
    """The configuration is wrong.

    ``pointer`` is the JSON pointer of the wrong value, such as ``/rules/rate_limited/attempts``, if there is
    one; ``reason`` is the message without it.
    """

    def __init__(self, reason: str | None = None, *, pointer: str = "") -> None:
        super().__init__(f"{pointer}: {reason}" if pointer else reason)
        self.reason = reason or str(self)
        self.pointer = pointer


class UnknownPrice(ConfigurationError):
    """The tenant has a cap in money, and the model has no price."""


class NoWorker(PalaverError):
    """No worker has what the step needs."""


class CorruptRecord(PalaverError):
    """A record of the store cannot be read: another program has written there, or only a part was restored."""

    def __init__(self, what: str) -> None:
        super().__init__(f"what the store has of {what} cannot be read")


UNREADABLE: Final = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError)
"""Exceptions from reading a record that is not as it was written."""


class StoreUnavailable(PalaverError):
    """The store did not answer in time."""


class NotDurable(PalaverError):
    """It is written, but not as safely yet as PALAVER_DURABILITY asks.

    ``reply`` is what would have been answered, to be followed up; doing the same again finds it done, and waits again.
    """

    def __init__(self, reply: Any) -> None:
        super().__init__()
        self.reply = reply

    @property
    def run_id(self) -> str | None:
        """The run that a submit took on or found."""
        return getattr(self.reply, "run_id", None)


class UnknownRecord(PalaverError):
    """The store has nothing of that id or name."""

    code: ClassVar[str]
    """The code of the problem that it is for a caller of the API."""
    unknown: str = ""
    """The id, of a run or a conversation."""


class UnknownRun(UnknownRecord):
    """There is no run of that id."""

    code = "run_not_found"

    def __init__(self, run_id: str) -> None:
        super().__init__(_nothing_of("run", run_id))
        self.unknown = run_id


class UnknownConversation(UnknownRecord):
    """There is no conversation of that id."""

    code = "conversation_not_found"

    def __init__(self, conversation_id: str) -> None:
        super().__init__(_nothing_of("conversation", conversation_id))
        self.unknown = conversation_id


class UnknownAgent(UnknownRecord):
    """There is no agent of that name on the server, or no such version of it."""

    code = "agent_not_found"

    def __init__(self, name: str, version: int | None = None) -> None:
        of = f"no version {version} of the agent" if version is not None else "no agent"
        super().__init__(f"there is {of} {name[:64]} on the server")


_PREFIXES: Final = {"run": "run_", "conversation": "conv_"}


def _nothing_of(kind: str, unknown_id: str) -> str:
    """Why there is nothing of this kind and id; the id may be anything."""
    shown = (
        unknown_id
        if unknown_id.isascii() and unknown_id.replace("_", "").isalnum() and len(unknown_id) <= 80
        else f"{unknown_id[:80]!r}"
    )
    other = next((name for name, prefix in _PREFIXES.items() if name != kind and unknown_id.startswith(prefix)), None)
    if other is not None:
        return f"the id {shown} is that of a {other}, not of a {kind}"
    return f"there is no {kind} {shown}: it was never there, or its retention has passed"


class IdempotencyMismatch(PalaverError):
    """The idempotency key was used before, with another request."""


class StateConflict(PalaverError):
    """The run's present status does not allow this.

    ``code`` says which rule, ``run_id`` which run. ``pending_actions`` are what that run waits for, where a person
    has looked.
    """

    pending_actions: Sequence[Any] | None = None

    def __init__(self, code: str, run_id: str | None = None, message: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.run_id = run_id


@dataclass(frozen=True, slots=True)
class FieldError:
    """One thing that is wrong with a request. ``pointer`` is a JSON pointer into its body, or ``?parameter``."""

    pointer: str
    code: str
    message: str


class Refused(PalaverError):
    """A request does not fit, and nothing was done.

    ``code`` says why, ``detail`` in words, ``faults`` at which places; ``run_id`` is the run that it is about.
    """

    def __init__(
        self, code: str, detail: str | None = None, *, faults: Sequence[FieldError] = (), run_id: str | None = None
    ) -> None:
        if len(faults) > _MAX_FAULTS:
            count_exceeded("faults")
        self.code = code
        self.faults = tuple(faults[:_MAX_FAULTS])
        self.detail = detail or "; ".join(f"{fault.pointer or '/'}: {fault.message}" for fault in faults[:3]) or None
        self.run_id = run_id
        super().__init__(f"{code}: {self.detail}" if self.detail else code)

    @classmethod
    def of_faults(cls, faults: Sequence[FieldError]) -> Refused:
        """A refusal with the code that all faults have, else ``validation_error``."""
        codes = {fault.code for fault in faults}
        return Refused(codes.pop() if len(codes) == 1 else "validation_error", faults=faults)

    @classmethod
    def at(cls, pointer: str, message: str) -> Refused:
        """A refusal of what stands at one place of a request and does not fit."""
        return Refused.of_faults([FieldError(pointer, "validation_error", message)])


class NoRoom(PalaverError):
    """A limit is reached, and nothing was done: ``code`` says which.

    ``too_many_runs``, ``tenant_queue_full``, ``store_nearly_full`` or ``too_many_watchers``; all pass by themselves.
    """

    def __init__(self, code: str, message: str | None = None) -> None:
        super().__init__(message)
        self.code = code


class TimePassed(PalaverError):
    """A run is not taken on, and nothing was written: a time that was asked for has passed, by the store's clock.

    ``name`` says which: ``start_by`` or ``deadline``.
    """

    def __init__(self, name: str, message: str | None = None) -> None:
        super().__init__(message)
        self.name = name


class RunFailed(PalaverError):
    """The run failed.

    ``error`` is the run's error object; its class and message are in the exception's, with the run's id.
    """

    def __init__(self, error: Mapping[str, Any], run_id: str | None = None) -> None:
        parts = [f"run {run_id} failed" if run_id else None, error.get("class"), error.get("message")]
        super().__init__(": ".join(part for part in parts if isinstance(part, str)))
        self.error: Mapping[str, Any] = dict(error)
        self.run_id = run_id
