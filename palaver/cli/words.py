"""Text from models, tools and servers, made fit for a terminal."""

from __future__ import annotations

import json
import unicodedata
from datetime import datetime
from typing import Any, Final

from palaver.models import Run, Usage

SNIPPET: Final = 200
"""Characters of a tool's arguments or result that a line shows."""


def plain(text: str) -> str:
    """Without control characters but newlines and tabs: what a model writes must not steer the terminal."""
    return "".join(char for char in text if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cs"))


def one_line(value: object, limit: int = SNIPPET) -> str:
    """On one line of at most ``limit`` characters; anything but text as JSON; empty for None."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    line = " ".join(plain(text[: 4 * limit]).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def document(value: Any) -> str:
    """JSON on one line, in ASCII so that every terminal and pipe takes it."""
    return json.dumps(value)


def moment(when: datetime | None) -> str:
    """A time in the local zone; empty for None."""
    return "" if when is None else when.astimezone().isoformat(sep=" ", timespec="seconds")


def seconds(duration: object) -> str:
    """``3 s``, ``0.25 s``; what is no number as it is."""
    return f"{duration:.3g} s" if isinstance(duration, (int, float)) and duration < 100 else f"{duration} s"


def usage(used: Usage) -> str:
    """Tokens and calls in words."""
    calls = ((used.model_calls, "model call"), (used.tool_calls, "tool call"))
    counted = ", ".join(f"{number} {name}{'' if number == 1 else 's'}" for number, name in calls)
    return f"{used.input_tokens} tokens in, {used.output_tokens} out, {counted}"


def why(error: object) -> str:
    """What failed, from a run's or an event's error object: ``rate_limited: The provider …``."""
    if not isinstance(error, dict):
        return one_line(error)
    told = (one_line(error.get("class")), one_line(error.get("message"), 600))
    return ": ".join(part for part in told if part)


def closed(sentence: str) -> str:
    """With a full stop at its end, so that another sentence may follow."""
    return sentence if sentence.endswith((".", "!", "?", "…")) else f"{sentence}."


def advice(error: object) -> str:
    """What the user can do about a failed run; empty when there is nothing."""
    action = error.get("user_action") if isinstance(error, dict) else None
    return {
        "retry": "Submitting it again may help.",
        "settings": "Check the key, the model's name and the limits.",
        "wait": "Wait a while, then submit it again.",
        "fix_input": "Change the input or the instructions.",
    }.get(str(action), "")


def waiting(run: Run) -> str:
    """Why nobody works on the run right now; empty when it is not waiting."""
    if run.waiting is None:
        return ""
    parts = [run.waiting.reason.value.replace("_", " ")]
    if run.waiting.run_id:
        parts.append(f"behind {run.waiting.run_id}")
    if run.waiting.until:
        parts.append(f"until {moment(run.waiting.until)}")
    if run.waiting.error_class:
        parts.append(f"after {run.waiting.error_class}")
    return ", ".join(parts)
