"""The model of a test: it answers as its script says, in order, and keeps what it was sent."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Self, get_args

Broken = Literal["connection", "timeout", "cut"]
"""Failures without an answer: no connection, no answer in time, an answer that breaks off."""


@dataclass
class ScriptedTurn:
    """An answer of the model: words, calls of tools, or both."""

    text: str = ""
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """The name of each tool, and the arguments."""
    finish_reason: str | None = None
    tokens: tuple[int, int] | None = None
    """Tokens of the prompt and of the answer; None: counted by length."""


@dataclass(frozen=True)
class ScriptedFailure:
    """A failure of the provider."""

    status: int | Broken
    code: str | None
    message: str
    retry_after: float | None = None


@dataclass(frozen=True)
class ModelRequest:
    """A request as the model was sent it."""

    body: dict[str, Any]
    """The body, as OpenAI's chat completions have it."""

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages, the system's among them."""
        messages: list[dict[str, Any]] = self.body["messages"]
        return messages

    @property
    def tools(self) -> list[str]:
        """The names of the tools that it was offered."""
        return [each["function"]["name"] for each in self.body.get("tools", ())]


class ScriptedModel:
    """A model with a script: ``model.calls("refund", order=4711).says("Done.")`` are two answers.

    Whatever provider and model an agent names, this one answers.
    """

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []
        """The requests so far, also those that failed."""
        self.beyond: AssertionError | None = None
        """It was asked for more than its script has."""
        self._script: list[ScriptedTurn | ScriptedFailure] = []
        self._next = 0

    def says(self, text: str, *, finish_reason: str | None = None, tokens: tuple[int, int] | None = None) -> Self:
        """Add an answer in words. ``finish_reason`` is as on the wire, such as ``length`` or ``content_filter``;
        ``tokens`` are those of the prompt and of the answer, for tests of budgets."""
        self._script.append(ScriptedTurn(text, finish_reason=finish_reason, tokens=tokens))
        return self

    def calls(self, tool: str, /, **arguments: Any) -> Self:
        """Add an answer that calls a tool."""
        self._script.append(ScriptedTurn(calls=[(tool, arguments)]))
        return self

    def and_calls(self, tool: str, /, **arguments: Any) -> Self:
        """Add a call to the answer before, behind its words and calls.

        Raises:
            ValueError: there is no answer before.
        """
        turn = self._script[-1] if self._script else None
        if not isinstance(turn, ScriptedTurn):
            raise ValueError("and_calls adds to the answer before: begin one with says or calls")
        turn.calls.append((tool, arguments))
        return self

    def fails(
        self,
        how: int | Broken,
        *,
        retry_after: float | None = None,
        code: str | None = None,
        message: str = "scripted failure",
    ) -> Self:
        """Add a failure: a status of HTTP from 400 on, with ``Retry-After`` in seconds and the provider's own code;
        or ``connection``, ``timeout`` or ``cut``.

        Raises:
            ValueError: it is none of these.
        """
        if isinstance(how, int) and not 400 <= how <= 599:
            raise ValueError(f"{how} is no status of a failure: 400 to 599")
        if not isinstance(how, int) and how not in get_args(Broken):
            raise ValueError(f"{how!r} is no failure: a status of HTTP, or {', '.join(get_args(Broken))}")
        if retry_after is not None and not isinstance(how, int):
            raise ValueError("retry_after comes with a status: what has no answer has no header")
        self._script.append(ScriptedFailure(how, code, message, retry_after))
        return self

    def answer(self, body: dict[str, Any]) -> ScriptedTurn | ScriptedFailure:
        """Return the next of the script for a request. One beyond it fails for good, and is kept for the test."""
        self.requests.append(ModelRequest(body))
        if self._next < len(self._script):
            self._next += 1
            return self._script[self._next - 1]
        last = body["messages"][-1] if body["messages"] else None
        self.beyond = AssertionError(
            f"the model was asked {len(self.requests)} times, and its script has {len(self._script)} answers. "
            f"The last message of the request: {last!r:.1000}"
        )
        return ScriptedFailure(400, "script_is_over", str(self.beyond))

    def check_all_asked(self) -> None:
        """See that it was asked for the whole script.

        Raises:
            AssertionError: it was not; says for what.
        """
        left = self._script[self._next :]
        self._next = len(self._script)
        if left:
            raise AssertionError(
                f"the model was not asked for {len(left)} of its {self._next} answers: {left[0]!r:.1000} is the first"
            )
