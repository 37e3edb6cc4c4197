"""The options that several commands share."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, get_args

import typer

from palaver.config.text_files import read_text_file, text_in
from palaver.schemas import models
from palaver.schemas.filters import OLDEST
from palaver.vocabulary.durations import in_seconds


def json_object(what: str) -> Callable[[str], dict[str, Any]]:
    """Reads ``what``, a JSON object, from the text of an option, or from the file that it names as ``@FILE``."""

    def read(text: str) -> dict[str, Any]:
        try:
            value = json.loads(read_text_file(text[1:]) if text.startswith("@") else text)
        except (OSError, ValueError) as error:
            raise typer.BadParameter(f"{text[:80]}: {error}") from None
        if not isinstance(value, dict):
            raise typer.BadParameter(f"{what} a JSON object")
        return value

    return read


def agent(text: str) -> dict[str, Any] | str:
    """A whole agent, as JSON or from ``@FILE``; anything else is the name of one on the server."""
    return json_object("an agent is")(text) if text.lstrip()[:1] in ("{", "[", "@") else text


def one_of(names: Iterable[str]) -> Callable[[str], str]:
    """Takes one of these names and nothing else."""
    known = [str(name) for name in names]

    def choose(text: str) -> str:
        if text not in known:
            raise typer.BadParameter(f"{text!r} is not one of {', '.join(known)}")
        return text

    return choose


def limit(text: str) -> tuple[str, float]:
    """``tokens=5000`` as a pair; the API says which names there are."""
    name, _, number = text.partition("=")
    try:
        return name, int(number) if number.isdecimal() else float(number)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not NAME=NUMBER, such as tokens=50000") from None


def a_date(text: str) -> date:
    """``2026-01-31``."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text[:40]!r} is not a date such as 2026-01-31") from None


def duration(text: str) -> float:
    """``90``, ``15m``, ``12h``, ``3d`` in seconds, ten years at most."""
    try:
        seconds = in_seconds(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if seconds > OLDEST:
        raise typer.BadParameter(f"{text[:80]!r} is more than ten years")
    return seconds


def since(text: str) -> datetime:
    """``12h`` ago, or ``2026-01-31T12:00:00Z``; without a zone in the local one."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        return datetime.now(UTC) - timedelta(seconds=duration(text))


def ahead(text: str) -> datetime:
    """``12h`` from now, or ``2026-01-31T12:00:00Z``; without a zone in the local one."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        return datetime.now(UTC) + timedelta(seconds=duration(text))


def entry(text: str) -> tuple[str, str]:
    """``customer=42`` as a pair."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise typer.BadParameter(f"{text!r} is not KEY=VALUE, such as customer=42")
    return name, value


def approvals(choices: list[str] | None) -> str | list[str] | None:
    """Return what an agent's approvals require: one of the three words, or tools; None to leave it to the default."""
    policies = [choice for choice in choices or () if choice in ("never", "risky", "always")]
    if policies and choices and len(choices) > 1:
        raise typer.BadParameter(f"--ask {policies[0]} goes alone")
    return policies[0] if policies else choices or None


def text_or_stdin(text: str) -> str:
    """Return what the user says: the text of the argument, or standard input for ``-``."""
    if text != "-":
        return text
    try:
        return text_in(sys.stdin.buffer.read())
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"standard input is no text: {error}") from None


Agent = Annotated[
    Any,
    typer.Option(
        "--agent",
        "-a",
        parser=agent,
        metavar="JSON|NAME",
        help="The whole agent, or @FILE, or the name of one on the server (support, support@7), in place of --model, "
        "--tool, --ask, --instructions and --max-steps.",
    ),
]
Ask = Annotated[
    list[str] | None,
    typer.Option(
        "--ask",
        metavar="never|risky|always|TOOL",
        help="Which calls wait for an approval: none, those of risky tools (the default), all, or of a tool; "
        "'send_*' is a pattern; repeatable.",
    ),
]
OtherAgent = Annotated[
    Any,
    typer.Option(
        "--agent",
        "-a",
        parser=agent,
        metavar="JSON|NAME",
        help="Another agent, or @FILE, or the name of one on the server.",
    ),
]
Budget = Annotated[
    list[Any] | None,
    typer.Option(
        "--budget",
        "-b",
        parser=limit,
        metavar="NAME=NUMBER",
        help="What it may use up: tokens, tool_calls, cost_usd, seconds; repeatable.",
    ),
]
Metadata = Annotated[
    list[Any] | None,
    typer.Option("--metadata", parser=entry, metavar="KEY=VALUE", help="What to keep on the run; repeatable."),
]
StartAfter = Annotated[
    Any,
    typer.Option("--start-after", parser=ahead, metavar="TIME", help="Not before then: in 10m, 12h, or a date."),
]
StartBy = Annotated[
    Any, typer.Option("--start-by", parser=ahead, metavar="TIME", help="It expires if it has not begun by then.")
]
Deadline = Annotated[
    Any, typer.Option("--deadline", parser=ahead, metavar="TIME", help="It expires if it has not ended by then.")
]
IdempotencyKey = Annotated[
    str | None,
    typer.Option("--idempotency-key", metavar="KEY", help="With the same key again, it is the same run."),
]
RunId = Annotated[str, typer.Argument(metavar="RUN_ID", help="The run, as `palaver list` shows it.")]
MaybeRunId = Annotated[str | None, typer.Argument(metavar="RUN_ID", help="The run; none with a filter or --all.")]
ActionId = Annotated[
    str | None, typer.Argument(metavar="ACTION_ID", help="The pending action, as `palaver show` lists it.")
]
Reason = Annotated[str | None, typer.Option("--reason", "-r", help="Why.")]
OnConflict = Annotated[
    Any,
    typer.Option(
        "--on-conflict",
        parser=one_of(get_args(models.OnConflict)),
        metavar="|".join(get_args(models.OnConflict)),
        help="When the conversation is busy: wait behind its runs (the default), be refused, cancel them, "
        "cancel and withdraw them, or speak into the one that is going on.",
    ),
]
Mode = Annotated[
    Any,
    typer.Option(
        "--mode",
        parser=one_of(get_args(models.CancelMode)),
        metavar="|".join(get_args(models.CancelMode)),
        help="Let what is under way finish, stop it (the default), or also withdraw what was said.",
    ),
]
