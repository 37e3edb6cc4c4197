"""The faults that are answers: statuses and bodies as providers send them."""

from __future__ import annotations

import math
import time
from email.utils import formatdate

from .grammar import ScriptedFault
from .wire import error

ERRORS: dict[str, tuple[int, str, str, str | None]] = {
    "400": (400, "The request was refused.", "invalid_request_error", None),
    "401": (401, "Incorrect API key provided.", "invalid_request_error", "invalid_api_key"),
    "402": (402, "Insufficient Balance", "unknown_error", "invalid_request_error"),
    "403": (403, "You do not have access to this model.", "permission_error", "permission_denied"),
    "404": (404, "The model does not exist.", "invalid_request_error", "model_not_found"),
    "429": (429, "Rate limit reached for requests.", "requests", "rate_limit_exceeded"),
    "500": (500, "The server had an error while processing your request.", "server_error", None),
    "502": (502, "Bad gateway.", "server_error", None),
    "503": (503, "The engine is currently overloaded, please try again later.", "server_error", None),
    "529": (529, "Overloaded", "overloaded_error", None),
    "quota": (
        429,
        "You exceeded your current quota, please check your plan and billing details.",
        "insufficient_quota",
        "insufficient_quota",
    ),
    "budget": (400, "Budget has been exceeded! Current cost: 1.0, Max budget: 0.5", "budget_exceeded", "400"),
    "context": (
        400,
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens. "
        "Please reduce the length of the messages.",
        "invalid_request_error",
        "context_length_exceeded",
    ),
    "policy": (
        400,
        "Your request was rejected by the content management policy.",
        "invalid_request_error",
        "content_policy_violation",
    ),
}
"""Status, message, type, code: OpenAI's, but for 402 (DeepSeek), 529 (Anthropic) and budget (LiteLLM)."""

HTML = b"<!doctype html><html><head><title>Sign in</title></head><body>Sign in to continue</body></html>"


def refused(name: str) -> tuple[int, bytes] | None:
    """Status and body of a fault that is an error answer; None for every other fault."""
    if name.isdigit():
        kind = "server_error" if name >= "500" else "invalid_request_error"
        known = ERRORS.get(name, (int(name), f"Error {name}.", kind, None))
    elif name in ERRORS:
        known = ERRORS[name]
    else:
        return None
    status, message, kind, code = known
    return status, error(message, kind, code)


def waits(fault: ScriptedFault) -> dict[str, str]:
    """The headers that say when to come again."""
    if fault.retry_after is None:
        return {}
    match fault.name:
        case "429date":
            at = math.ceil(time.time() + float(fault.retry_after))
            return {"Retry-After": formatdate(at, usegmt=True)}
        case "429ms":
            return {"Retry-After-Ms": fault.retry_after}
    return {"Retry-After": fault.retry_after}


def window_exceeded(window: int, tokens: int) -> bytes:
    """The body for a prompt of more than `window` tokens."""
    return error(
        f"This model's maximum context length is {window} tokens. However, your messages resulted in "
        f"{tokens} tokens. Please reduce the length of the messages.",
        "invalid_request_error",
        "context_length_exceeded",
        "messages",
    )
