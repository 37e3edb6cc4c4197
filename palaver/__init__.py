"""Palaver: agent conversations on Celery.

These names are all that most programs need: the two clients, what an agent and a run are, tools, and the errors.
Each is loaded when it is first asked for, so that `import palaver` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from palaver.version import __version__ as __version__

if TYPE_CHECKING:
    from palaver.client import (
        APIError,
        AsyncPalaver,
        BulkResult,
        ClientError,
        Conflict,
        ConnectionFailed,
        Exported,
        NotFound,
        Palaver,
        TooManyRequests,
        Unauthorized,
        Unavailable,
        Unprocessable,
        WaitTimeout,
    )
    from palaver.errors import ConfigurationError, PalaverError, RetryableToolError, RunFailed, ToolError
    from palaver.events import Event
    from palaver.schemas.actions import Approvals, ClientTool, PendingAction
    from palaver.schemas.content import FilePart, ImagePart, TextPart
    from palaver.schemas.conversation import Conversation
    from palaver.schemas.conversation_message import ConversationMessage
    from palaver.schemas.listed_model import ListedModel
    from palaver.schemas.models import AgentSpec, Budget, Message, Run, Usage
    from palaver.schemas.stuck_limits import StuckLimits
    from palaver.tools import ToolContext, tool
    from palaver.vocabulary.lifecycle import RunStatus, StopReason

_HOMES: Final = {
    "palaver.schemas.actions": ("Approvals", "ClientTool", "PendingAction"),
    "palaver.client": (
        "APIError",
        "AsyncPalaver",
        "BulkResult",
        "ClientError",
        "Conflict",
        "ConnectionFailed",
        "Exported",
        "NotFound",
        "Palaver",
        "TooManyRequests",
        "Unauthorized",
        "Unavailable",
        "Unprocessable",
        "WaitTimeout",
    ),
    "palaver.schemas.content": ("FilePart", "ImagePart", "TextPart"),
    "palaver.schemas.conversation": ("Conversation",),
    "palaver.schemas.conversation_message": ("ConversationMessage",),
    "palaver.errors": ("ConfigurationError", "PalaverError", "RetryableToolError", "RunFailed", "ToolError"),
    "palaver.events": ("Event",),
    "palaver.vocabulary.lifecycle": ("RunStatus", "StopReason"),
    "palaver.schemas.listed_model": ("ListedModel",),
    "palaver.schemas.models": ("AgentSpec", "Budget", "Message", "Run", "Usage"),
    "palaver.schemas.stuck_limits": ("StuckLimits",),
    "palaver.tools": ("ToolContext", "tool"),
}
"""Where each public name is defined; the imports above say the same to editors and type checkers."""

__all__ = [
    "APIError",
    "AgentSpec",
    "Approvals",
    "AsyncPalaver",
    "Budget",
    "BulkResult",
    "ClientError",
    "ClientTool",
    "ConfigurationError",
    "Conflict",
    "ConnectionFailed",
    "Conversation",
    "ConversationMessage",
    "Event",
    "Exported",
    "FilePart",
    "ImagePart",
    "ListedModel",
    "Message",
    "NotFound",
    "Palaver",
    "PalaverError",
    "PendingAction",
    "RetryableToolError",
    "Run",
    "RunFailed",
    "RunStatus",
    "StopReason",
    "StuckLimits",
    "TextPart",
    "TooManyRequests",
    "ToolContext",
    "ToolError",
    "Unauthorized",
    "Unavailable",
    "Unprocessable",
    "Usage",
    "WaitTimeout",
    "tool",
]


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(home), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
