"""The first words of a user's message: the title of a conversation without one, and the preview of a run in lists."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from palaver.schemas.models import Message
from palaver.secrets.redaction import Secrets, redact

TITLE: Final = 60
"""Characters of a title that is made of them."""
PREVIEW: Final = 120
"""Characters of them that a run keeps."""
_LOOKED_AT: Final = 1_000
"""Characters of a message that are looked at; a secret that begins in the part that is stored ends in them, or shows by
its beginning."""


def first_words(messages: Iterable[Message], most: int, secrets: Collection[str] = ()) -> str | None:
    """The first words of the first message of the user that has any, ``most`` characters, on one line and without
    these secrets and those of this process; None if there is none."""
    for message in messages:
        if message.role == "user" and (text := message.text[:_LOOKED_AT].strip()):
            if secrets:
                text = Secrets(secrets, named=True).redact(text)
            return _cut(" ".join(redact(text).split()), most)
    return None


def _cut(line: str, most: int) -> str:
    if len(line) <= most:
        return line
    words, blank, _ = line[:most].rpartition(" ")
    return f"{words if blank and len(words) > most // 2 else line[: most - 1]}…"
