"""A run as clients of another protocol have been shown it: for the state machines of dialects."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from palaver.errors import FACTS, ErrorClass
from palaver.events import EventKind
from palaver.vocabulary.lifecycle import RunStatus, StopReason, WaitReason

_STATUS: Final[Mapping[str, RunStatus]] = {
    EventKind.RUN_QUEUED: RunStatus.QUEUED,
    EventKind.RUN_PAUSED: RunStatus.PAUSED,
    EventKind.RUN_CANCELLING: RunStatus.CANCELLING,
}
"""By the kind of an event; others are of a run that is running."""
ADVICE: Final[Mapping[str, str]] = {
    "retry": " Try again.",
    "wait": " Try again later.",
    "settings": "",
    "fix_input": "",
    "none": "",
}
"""The words behind the sentence about a failure, by its user action. Settings are for the operator of the server."""
_UNFORESEEN: Final = FACTS[ErrorClass.INTERNAL].sentence
Content = str | Sequence[Mapping[str, Any]]
"""The content of a message, as events have it."""
TextIn = Callable[[Content], str]
"""A function that says what the text of a message is."""


def text_in(content: Content) -> str:
    """Return the text of a message, without what is not text."""
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if part["type"] == "text")


def status_in(kind: str, data: Mapping[str, Any]) -> tuple[RunStatus, dict[str, Any]]:
    """Return the status that an event says of a run, and its ``reason``, ``code`` and ``delay`` where the run waits."""
    why: dict[str, Any] = {}
    match kind:
        case EventKind.RUN_QUEUED:
            why = {"reason": WaitReason.CONVERSATION_BUSY}
        case EventKind.RUN_WAITING:
            why = {name: data[name] for name in ("reason", "code", "delay")}
        case EventKind.RUN_RETRYING:
            why = {"reason": WaitReason.BACKOFF, "code": data["error"]["class"], "delay": data["delay"]}
    return _STATUS.get(kind, RunStatus.RUNNING), why


def failure_sentence(error: Mapping[str, Any] | None, stop_reason: str) -> str:
    """Return a sentence for a person who chats about the failure that ended a run: that of its class, which is ours.
    What the provider said is for the operator of the server."""
    if error is None:
        return "There was no time left for this." if stop_reason == StopReason.DEADLINE else _UNFORESEEN
    facts = FACTS.get(error["class"])
    return _UNFORESEEN if facts is None else facts.sentence + ADVICE.get(error["user_action"], "")


class ShownText:
    """The text of a model step as far as a client has it: no more than its length and its checksum, for the log has the
    text itself."""

    def __init__(self) -> None:
        self._length = self._checksum = 0

    def __bool__(self) -> bool:
        """True if there is any."""
        return self._length > 0

    def add(self, length: int, raw: bytes) -> None:
        """Note that so many letters were shown, which are these bytes."""
        self._length += length
        self._checksum = zlib.crc32(raw, self._checksum)

    def forget(self) -> None:
        """Begin with a text anew."""
        self._length = self._checksum = 0

    def rest_of(self, text: str) -> str | None:
        """Return the part of the step's ``text`` that is still to be shown; None if something else was."""
        begun = text[: self._length]
        same = len(begun) == self._length and zlib.crc32(begun.encode()) == self._checksum
        return text[self._length :] if same else None
