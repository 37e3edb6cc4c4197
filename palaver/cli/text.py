"""Text from models, tools and servers, made fit for a terminal."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from palaver.schemas.models import Usage

SNIPPET: Final = 200
"""Characters of a tool's arguments or result that a line shows."""


_SHOWN: Final = frozenset("\n\t\u200c\u200d")
"""Exceptions from the categories below: they lay out a text, or join letters of many scripts and emoji."""
_STEERING: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Categories of characters that steer a terminal, or show a text in another order than it is written in."""


def plain(text: str) -> str:
    """As it is, but for what would steer a terminal or hide something: that is shown as an escape, as in Python.

    All text of models, tools, users and servers comes through here or through `visible` before it is shown.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_as_it_is, text.replace("\r\n", "\n")))


def _as_it_is(char: str) -> str:
    return char if char in _SHOWN or unicodedata.category(char) not in _STEERING else repr(char)[1:-1]


def visible(text: str) -> str:
    """On one line, with everything that a terminal would not show as it is written as an escape."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def one_line(value: object, limit: int = SNIPPET) -> str:
    """On one line of at most ``limit`` characters; anything but text as JSON; empty for None."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    line = " ".join(plain(text[: 4 * limit]).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def checked(name: str, found: str, notes: Mapping[str, str | None], *, ok: bool, width: int = 0) -> str:
    """``openai  ok     It answers.`` for what was looked at, with its name in ``width`` columns; below it a line
    for each of the notes that has a text."""
    name = name.ljust(width)
    indent = " " * (len(name) + len("  WRONG  "))
    lines = [f"{name}  {'ok   ' if ok else 'WRONG'}  {found}"]
    return "\n".join([*lines, *(f"{indent}{word}: {text}" for word, text in notes.items() if text)])


def document(value: Any) -> str:
    """JSON on one line, in ASCII so that every terminal and pipe takes it."""
    return json.dumps(value)


def moment(when: datetime | None) -> str:
    """A time in the local zone, which is named unless a person looks; empty for None."""
    if when is None:
        return ""
    local = when.astimezone()
    return (local.replace(tzinfo=None) if sys.stdout.isatty() else local).isoformat(sep=" ", timespec="seconds")


def age(when: datetime) -> str:
    """Return how long ago that was, in one unit: ``45 s``, ``12 min``, ``3 h``, ``4 d``."""
    passed = max(0.0, (datetime.now(UTC) - when).total_seconds())
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if passed >= size:
            return f"{passed // size:.0f} {unit}"
    return f"{passed:.0f} s"


def clock(when: datetime) -> str:
    """The time of day in the local zone."""
    return f"{when.astimezone():%H:%M:%S}"


def amount(number: float) -> str:
    """``81``, ``0.125``, ``0.000018``: never with an exponent."""
    return _written_out(f"{number:.6g}") if number % 1 else f"{number:.0f}"


def dollars(cost: float) -> str:
    """``$12.35``, ``$0.01235``, ``$0.000018``."""
    return f"${cost:.2f}" if cost >= 1 else f"${_written_out(f'{cost:.4g}')}"


def _written_out(number: str) -> str:
    return format(Decimal(number), "f")


def seconds(duration: float) -> str:
    """``0.25 s``, ``45 s``, ``2m 05s``, ``3h 10m``, ``4d 3h``."""
    if duration < 59.5:
        return f"{duration:.3g} s" if duration < 10 else f"{duration:.0f} s"
    whole = round(duration)
    for size, unit, smaller, name in ((86400, "d", 3600, "h"), (3600, "h", 60, "m")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size}{unit} {rest:02}{name}" if unit == "h" else f"{whole // size}{unit} {rest}{name}"
    return f"{whole // 60}m {whole % 60:02}s"


def usage(used: Usage) -> str:
    """Tokens, calls and, where it is known and not nothing, what they cost, in words."""
    calls = ((used.model_calls, "model call"), (used.tool_calls, "tool call"))
    counted = ", ".join(f"{number} {name}{'' if number == 1 else 's'}" for number, name in calls)
    cost = f", {dollars(used.cost_usd)}" if used.cost_usd else ""
    return f"{used.input_tokens} tokens in, {used.output_tokens} out, {counted}{cost}"


def why(error: object) -> str:
    """Return the class and message of a run's or an event's error object: ``rate_limited: The provider …``."""
    if not isinstance(error, dict):
        return one_line(error)
    parts = (one_line(error.get("class")), one_line(error.get("message"), 600))
    return ": ".join(part for part in parts if part)


def provider_message(error: object, limit: int = SNIPPET) -> str:
    """Return what the provider said of an error, in its own words; empty if it said nothing."""
    provider = error.get("provider") if isinstance(error, dict) else None
    return one_line(provider.get("message"), limit) if isinstance(provider, dict) else ""


def cool_down_of(provider: str, cools: Mapping[str, Any]) -> str:
    """Describe a cool-down, the model and its end, from an entry of ``cooling`` of a provider."""
    until = moment(datetime.fromisoformat(cools["until"]))
    return (
        f"{one_line(provider)}/{one_line(cools['model'])} cools down until {until}, {cools.get('waiting')} steps wait"
    )


def turn_of(queue: str, tenant: Mapping[str, Any]) -> str:
    """Describe a tenant that waits for its turn, from an entry of ``tenants`` of a queue."""
    most = tenant.get("max_in_flight")
    why = f"at its cap of {most} steps in flight" if tenant.get("at_cap") else f"weight {tenant.get('weight')}"
    name, first = one_line(tenant.get("tenant")), tenant.get("first_waits_seconds")
    return (
        f"{one_line(queue)}: {tenant.get('waiting')} steps of the tenant {name} wait for their turn, the first for"
        f" {first} s; {tenant.get('in_flight')} are in flight ({why})"
    )


def outage_of(provider: str, outage: Mapping[str, Any]) -> str:
    """Describe an outage, its begin, the next try and the cause, from an entry of ``outages`` of a provider."""
    what = f"{provider}/{outage['model']}" if outage.get("model") else provider
    since, probe = (moment(datetime.fromisoformat(outage[name])) for name in ("since", "next_probe"))
    why = f"{one_line(outage.get('error_class'))}: {one_line(outage.get('message'), 600)}"
    return f"{one_line(what)} is out since {since} (next try {probe}, {outage.get('waiting')} steps wait): {why}"
