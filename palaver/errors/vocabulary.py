"""The error classes: the closed list of what can go wrong, and what each means for a run."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Literal

from palaver.late import dataclass

Source = Literal["model", "tool", "store", "engine"]
"""The origin of a failure: the model's provider, a tool, the store, or the engine itself. A limit that ends a run is no
failure."""

UserAction = Literal["retry", "settings", "wait", "fix_input", "none"]
"""The user's way out: send it again, change keys, model or limits, wait, change the input, or nothing."""


class ErrorClass(StrEnum):
    """The kinds of failure. Closed: a kind decides the default rule, so a new member needs one.

    The first sentence of each says what it comes from: docs/reference/errors.md has it.
    """

    RATE_LIMITED = "rate_limited"
    """429, 529. Retried; the wait that the provider asks for is honoured up to a cap."""
    PROVIDER_ERROR = "provider_error"
    """5xx, 409, 424, 425; a malformed, empty or endless completion; a page in place of JSON. Retried with exponential
    back-off."""
    CONNECTION = "connection"
    """Refused, reset, DNS, TLS, proxy, 421, 499, a stream that broke off. Retried."""
    TIMEOUT = "timeout"
    """Connect, read, write, first token, idle, total; 408. Retried."""
    QUOTA_EXHAUSTED = "quota_exhausted"
    """402; 429, 400 or 403 that says quota, credit, budget or billing. Fails."""
    AUTHENTICATION = "authentication"
    """401, 407; 400 that says the key is wrong. Fails."""
    PERMISSION = "permission"
    """403, 451. The provider knows the key but does not allow the request. Fails."""
    NOT_FOUND = "not_found"
    """404, 410. There is no such model or address. Fails."""
    INVALID_REQUEST = "invalid_request"
    """Other 3xx and 4xx, an unusable address, a wrong configuration. Fails."""
    CONTEXT_WINDOW = "context_window"
    """400, 413, 422 or 500 that says so by code or wording, and condensing did not help or was off. Fails."""
    CONTENT_FILTER = "content_filter"
    """Withheld answer; 400, 403 or 422 that names the policy. Stops the run as incomplete."""
    INVALID_OUTPUT = "invalid_output"
    """The answer is not JSON, or does not fit the schema of ``response_format``, even at the second try. Fails."""
    INVALID_TOOL_CALL = "invalid_tool_call"
    """Unknown tool, arguments that are not JSON, not the schema, or of too many levels or values. The call's result
    says so; no retry."""
    TOOL_ERROR = "tool_error"
    """The tool raised; retryable if it raised ``RetryableToolError``. The call's result says so."""
    TOOL_TIMEOUT = "tool_timeout"
    """The tool overran its time. The call's result says so."""
    TOOL_INTERRUPTED = "tool_interrupted"
    """The tool's worker died. It may or may not have taken effect: the call's result says so, and it is never started
    again."""
    TOOL_DENIED = "tool_denied"
    """A person or a rule denied the call. The call's result says so."""
    WORKER_LOST = "worker_lost"
    """A lease expired; fails when one step is to blame for several. Delivered again at once."""
    NO_WORKER = "no_worker"
    """For an hour no worker had the tool, provider or key that the step needs. Fails, as does a step for which, for
    four hours, no worker that took it had all of it."""
    STUCK = "stuck"
    """The same calls and results, or errors, again and again. Fails the run with stop reason stuck."""
    STORAGE = "storage"
    """Redis or the broker away, loading, full, failing over, as a step saw it. Retried."""
    INTERNAL = "internal"
    """Anything unforeseen: our bugs; the traceback is in the log only. Fails at once, never retried."""


@dataclass(frozen=True, slots=True)
class ClassFacts:
    """The defaults for every failure of a class; the classifier may know more about a single failure."""

    source: Source
    retryable: bool
    """True if trying the same step again can help."""
    recoverable: bool
    """True if the run goes on: the model gets the failure in place of the tool's result."""
    user_action: UserAction
    sentence: str
    """The message of a failure that has no more precise one, also for people who chat with a model by a dialect."""


_C = ErrorClass

FACTS: Final[Mapping[ErrorClass, ClassFacts]] = MappingProxyType(
    {
        _C.RATE_LIMITED: ClassFacts("model", True, False, "wait", "The provider asks for fewer requests."),
        _C.PROVIDER_ERROR: ClassFacts("model", True, False, "retry", "The provider failed to answer."),
        _C.CONNECTION: ClassFacts("model", True, False, "retry", "The connection to the provider failed."),
        _C.TIMEOUT: ClassFacts("model", True, False, "retry", "No answer came in time."),
        _C.QUOTA_EXHAUSTED: ClassFacts(
            "model", False, False, "settings", "The quota, credit or budget at the provider is used up."
        ),
        _C.AUTHENTICATION: ClassFacts("model", False, False, "settings", "The provider does not accept the key."),
        _C.PERMISSION: ClassFacts("model", False, False, "settings", "The provider does not allow this."),
        _C.NOT_FOUND: ClassFacts("model", False, False, "settings", "The provider has no such model or address."),
        _C.INVALID_REQUEST: ClassFacts(
            "model", False, False, "fix_input", "The provider refused the request as invalid."
        ),
        _C.CONTEXT_WINDOW: ClassFacts(
            "model", False, False, "fix_input", "The conversation does not fit the model's context window."
        ),
        _C.CONTENT_FILTER: ClassFacts(
            "model", False, False, "fix_input", "The provider's content policy withheld the answer."
        ),
        _C.INVALID_OUTPUT: ClassFacts(
            "model", False, False, "fix_input", "The answer does not have the format that was asked for."
        ),
        _C.INVALID_TOOL_CALL: ClassFacts("model", False, True, "none", "The tool call is not valid."),
        _C.TOOL_ERROR: ClassFacts("tool", False, True, "none", "The tool failed."),
        _C.TOOL_TIMEOUT: ClassFacts("tool", False, True, "none", "The tool did not finish in time."),
        _C.TOOL_INTERRUPTED: ClassFacts(
            "tool", False, True, "none", "The tool was interrupted; it may or may not have taken effect."
        ),
        _C.TOOL_DENIED: ClassFacts("tool", False, True, "none", "The tool call was denied."),
        _C.WORKER_LOST: ClassFacts("engine", True, False, "retry", "The worker that had the step was lost."),
        _C.NO_WORKER: ClassFacts("engine", True, False, "settings", "No worker has what the step needs."),
        _C.STUCK: ClassFacts("engine", False, False, "fix_input", "The run repeats itself without progress."),
        _C.STORAGE: ClassFacts("store", True, False, "wait", "The store is not available."),
        _C.INTERNAL: ClassFacts("engine", False, False, "none", "Internal error."),
    }
)
"""The facts of every class."""
TOOL_CLASSES: Final[Mapping[ErrorClass, str]] = MappingProxyType(
    {
        _C.RATE_LIMITED: "The tool's service asks for fewer requests.",
        _C.PROVIDER_ERROR: "The tool's service failed to answer.",
        _C.CONNECTION: "The connection to the tool's service failed.",
        _C.TIMEOUT: "The tool's service did not answer in time.",
        _C.QUOTA_EXHAUSTED: "The quota at the tool's service is used up.",
        _C.AUTHENTICATION: "The tool's service does not accept the credentials.",
        _C.PERMISSION: "The tool's service does not allow this.",
        _C.NOT_FOUND: "The tool's service does not have this.",
        _C.INVALID_REQUEST: "The tool's service refused the request as invalid.",
        _C.TOOL_ERROR: "The tool failed.",
        _C.TOOL_TIMEOUT: "The tool did not finish in time.",
    }
)
"""The classes that the failed call of a tool can have, each with its sentence for those who may not read what the tool
said."""
