"""A kind of harm, and the words in which the kinds are written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.process.hostile.answers import Play

MIB = 1 << 20
BAD = "provider_error/bad_model_response"
EMPTY = "provider_error/empty_completion"
MANY = "provider_error/too_many_tool_calls"
LONG = "provider_error/tool_call_too_large"
LARGE = "provider_error/response_too_large"
CUT = "connection/stream_truncated"
NO_HTTP = "connection/protocol_error"
COMPLETED = "completed"
"""The run goes on to its end: what was wrong was told to the model, or makes no difference."""
BRIEF = {"timeouts": {"first_token": 1.5, "idle": 1.5, "total": 3.0}}
SLOW = {"timeouts": {"first_token": 3.0, "idle": 3.0, "total": 5.0}}
"""Of what goes on and on: a machine that stalls for a second is no silence."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One way to do harm."""

    name: str
    play: Play
    ends: str
    """`completed`, or the class and code of the run's error; a code with a dot first follows the provider's name."""
    stream: bool = True
    provider: Mapping[str, Any] = field(default_factory=dict)
    output: str | None = None


def kind(name: str, play: Play, ends: str, **more: Any) -> Kind:
    """A row."""
    return Kind(name=name, play=play, ends=ends, **more)
