"""Ends of answers: the reasons that models give, and errors in place of answers, as all kinds of servers write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

import orjson

from palaver.errors import ProviderError, ProviderHTTPError

from .port import PAUSE, WITHHELD

_FINISHES: Final = {
    **dict.fromkeys(("length", "max_tokens", "max_output_tokens", "model_length"), "length"),
    **dict.fromkeys(("content_filter", "refusal", "safety", "sensitive", "recitation", "blocklist"), WITHHELD),
    **dict.fromkeys(("prohibited_content", "spii", "content_filtered", "guardrail_intervened"), WITHHELD),
    **dict.fromkeys(("error", "network_error", "insufficient_system_resource", "abort", "aborted"), "error"),
    **dict.fromkeys(("malformed_function_call", "unexpected_tool_call", "function_call_filter"), "error"),
    "pause_turn": PAUSE,
}
"""Finish reasons of providers, with the port's name for the same end; any other is an ordinary end. Servers that stand
for others use the words of those."""
_OUT_OF_WINDOW: Final = "model_context_window_exceeded"


class Ends(Protocol):
    """A part of an answer, and whether it is whole."""

    ended: bool


def end_of(finish: str) -> str:
    """The port's name for an end.

    Raises:
        ProviderError: the model broke off, or its conversation does not fit.
    """
    # Gemini says more behind a colon.
    finish = _FINISHES.get(finish.partition(":")[0].lower(), finish)
    if finish == "error":
        raise ProviderError("the model broke off with an error")
    if finish == _OUT_OF_WINDOW:
        raise ProviderHTTPError(200, orjson.dumps({"type": "error", "error": {"type": _OUT_OF_WINDOW}}))
    return finish


def is_error(error: Any) -> bool:
    """Tell whether what stands under ``error`` says something."""
    return any(error.values()) if isinstance(error, dict) else bool(error)


def require_no_error(event: Mapping[str, Any], payload: bytes) -> None:
    """Look at an event, or a document, that has nothing of an answer; ``payload`` is its JSON.

    Raises:
        ProviderHTTPError: it is an error, as some server or framework writes it.
    """
    says = "error" in (event.get("type"), event.get("object")) or event.get("errors") or event.get("detail")
    if says or (event.get("message") and event.get("code")):
        raise ProviderHTTPError(200, payload)
    match event.get("base_resp"):  # MiniMax
        case {"status_code": int(code), "status_msg": message} if code:
            raise ProviderHTTPError(200, orjson.dumps({"error": {"code": str(code), "message": message}}))
