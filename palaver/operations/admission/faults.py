"""Faults of a request: found one by one, and raised together."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import Final

from palaver.errors import FieldError, Refused
from palaver.late import dataclass
from palaver.vocabulary.limits import limit_of
from palaver.vocabulary.names import did_you_mean, some_of

AGENT_PROBLEMS: Final = (
    "unknown_provider", "unknown_tool", "duplicate_tool", "invalid_schema", "unknown_policy", "invalid_policy",
    "unsupported_option", "endpoint_not_allowed", "no_secret_key", "secrets_full", "unknown_agent", "policy_violation",
    "agent_not_allowed", "second_person_required",
)  # fmt: skip
"""The codes of the problems that an agent may have."""
_AGENT: Final = "/agent"


@dataclass(frozen=True, slots=True)
class UnknownName:
    """A name that is unknown; one of the known names may have been meant."""

    pointer: str
    code: str
    why: str
    name: str
    known: Collection[str]
    own: bool = False
    """True if the known names are the agent's own, which are listed in its order."""
    nothing: str = "none"
    """The text in the place of the list if no name is known."""


Fault = FieldError | UnknownName


def refuse(faults: Iterable[Fault]) -> None:
    """Raise a problem if there is a fault. It looks for no more faults than the problem names."""
    if found := [field_error(fault) for fault in islice(faults, limit_of("faults"))]:
        raise Refused.of_faults(found)


def field_error(fault: Fault) -> FieldError:
    """Return the fault as it is shown: a name that is unknown with a hint."""
    if isinstance(fault, FieldError):
        return fault
    hint = did_you_mean(fault.name, fault.known)
    if not hint:
        names = [*fault.known] if fault.own else sorted(fault.known)
        hint = f"; {'they' if fault.own else 'there'} are: {some_of(names) or fault.nothing}"
    return FieldError(fault.pointer, fault.code, f"{fault.why}{hint}")


@contextmanager
def at_the_root() -> Iterator[None]:
    """Name the places of faults as they are in a body that is an agent itself."""
    try:
        yield
    except Refused as refused:
        if not refused.faults:
            raise
        moved = [replace(fault, pointer=fault.pointer.removeprefix(_AGENT)) for fault in refused.faults]
        raise Refused.of_faults(moved) from None
