"""A client for one command, what its errors mean in a shell (one sentence, one exit code), and signs of life."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Annotated, Final, Self

import typer
from pydantic_core import to_jsonable_python

from palaver.cli.doing import action_lines
from palaver.cli.text import document, one_line, plain
from palaver.client import (
    APIError,
    ClientError,
    Conflict,
    ConnectionFailed,
    NotFound,
    Palaver,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from palaver.client.answers import UNEXPECTED
from palaver.errors import PalaverError

REFUSED: Final = 2
"""The command or the request is wrong: usage, configuration, 4xx."""
UNREACHABLE: Final = 3
"""There is no API there, or it cannot answer now."""
INTERRUPTED: Final = 130
"""Ctrl-C: 128 + SIGINT, as shells have it."""
FIRST: Final = 5.0
"""Seconds of quiet before the first word, which comes at most as long again later: within ten, doubt begins."""
LONGEST: Final = 60.0
"""Seconds between two words, about, at most; the pauses double until then."""
_LONGEST: Final = 1000


def say(text: str) -> None:
    """A line on standard error."""
    typer.echo(plain(text), err=True)


def _say_wait(error: ClientError, seconds: float) -> None:
    # What lasts no longer than a blink is not worth a word.
    if seconds >= 1:
        say(f"palaver: {_what(error)}. Trying again in {seconds:.0f} s.")


@dataclass(frozen=True, slots=True)
class ApiAddress:
    """The options that say where the API is and who asks."""

    url: Annotated[
        str | None,
        typer.Option("--url", envvar="PALAVER_URL", help="Where the API is [default: http://127.0.0.1:8080]."),
    ] = None
    api_key: Annotated[
        str | None,
        typer.Option("--api-key", envvar="PALAVER_API_KEY", help="The key for the API; better in the environment."),
    ] = None

    @contextmanager
    def connected(self) -> Iterator[Palaver]:
        """A client; what goes wrong inside ends the command with a sentence on standard error."""
        with _explained(), Palaver(self.url, self.api_key, on_wait=_say_wait) as client:
            yield client


@dataclass(frozen=True, slots=True)
class Api(ApiAddress):
    """The same, and how to answer."""

    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output and nothing else.")] = False

    def show(self, what: object, text: str | Callable[[], None]) -> None:
        """Answer with ``what`` as JSON, or with ``text``, which may be a function that writes it."""
        if self.as_json:
            typer.echo(document(to_jsonable_python(what)))
        elif isinstance(text, str):
            typer.echo(plain(text))
        else:
            text()


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        say("Interrupted.")
        raise typer.Exit(INTERRUPTED) from None
    except (PalaverError, ValueError) as error:
        sentence, code = explain(error)
        for line in (f"palaver: {sentence}", *getattr(error, "__notes__", ())):
            say(line)
        if isinstance(error, Conflict) and error.run_id is not None:
            for line in action_lines(error.run_id, error.pending_actions):
                say(line)
        raise typer.Exit(code) from None


def explain(error: PalaverError | ValueError) -> tuple[str, int]:
    """The sentence and the exit code for an error."""
    what = _what(error)
    match error:
        case ConnectionFailed():
            return f"{what}. Start the API (palaver up), or name another with --url or PALAVER_URL.", UNREACHABLE
        case APIError(code=code) if code == UNEXPECTED:
            return f"{what} Name another with --url or PALAVER_URL.", UNREACHABLE
        case Unavailable():
            return f"{what} (HTTP {error.status}{_number(error)}). Try again in a moment.", UNREACHABLE
        case Unauthorized():
            return f"{what}. Give a key that may do this with PALAVER_API_KEY or --api-key.", REFUSED
        case NotFound():
            return f"{_kind(error)}: {what}. `palaver list` shows the runs there are.", REFUSED
        case TooManyRequests():
            after = "later" if error.retry_after is None else f"in {error.retry_after:.0f} s"
            return f"{what}. Try again {after}.", REFUSED
        case APIError():
            return f"{what} ({error.code}{_number(error)}).", REFUSED
        case _:
            return f"{what}.", REFUSED


def _what(error: PalaverError | ValueError) -> str:
    match error:
        case Conflict():
            # Its pending actions are listed behind the sentence, with the commands.
            text = error.detail
        case ConnectionFailed():
            # How to name another API is said in the words of the command.
            text = f"no answer from {error.url}: {error.reason}"
        case _:
            text = str(error)
    return one_line(text, _LONGEST).rstrip(".")


def _kind(error: APIError) -> str:
    return one_line(error.code).replace("_", " ")


def _number(error: APIError) -> str:
    return f", request {one_line(error.request_id)}" if error.request_id else ""


class QuietNotice:
    """Calls ``say``, from a thread, with the seconds of quiet whenever `heard` was not called for a while."""

    def __init__(self, say: Callable[[float], None], *, first: float = FIRST) -> None:
        self._say = say
        self._first = first
        self._since = time.monotonic()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="progress", daemon=True)

    def heard(self) -> None:
        """Something happened."""
        self._since = time.monotonic()

    def __enter__(self) -> Self:
        self.heard()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        since, threshold = self._since, self._first
        while not self._done.wait(self._first):
            if self._since != since:
                since, threshold = self._since, self._first
            quiet = time.monotonic() - since
            if quiet >= threshold:
                self._say(quiet)
                threshold = quiet + min(quiet, LONGEST)
