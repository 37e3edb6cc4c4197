"""The secrets of this process, removed from texts of others: a provider, a tool or an exception may repeat them.

The secrets of the process (``register_secrets``: its keys and passwords, when it reads its settings and providers)
and those of the conversation that it works for (``add_secrets``) are compared with everything from outside that is
about to be stored, shown or logged (``redact``; ``Passing`` for text that goes by in pieces). The comparison detects
a secret as it is, in lower or upper case, as it stands in a URL, in JSON or in HTML, in base64 wherever it begins, in
hex, and a beginning of it of 16 characters. A text that repeats a secret by mistake looks like that. A person who has
the secret and wants to pass it on can write it in ways that are not compared.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final
from urllib.parse import quote, unquote, unquote_plus

REDACTED: Final = "[redacted]"

_LEAST: Final = 8
"""Characters of a secret that is compared: shorter ones occur in any text."""
_WORD: Final = 16
"""Characters of one that has only letters: fewer may be a word of the language."""
_ENOUGH: Final = 16
"""Characters of a form's beginning that give it away, where it has half as many more."""
_LITERAL: Final = 4
"""Characters of a text that was called a secret, to be looked for as it is."""
_GRAM: Final = 8
_TELLTALE: Final = _ENOUGH + _ENOUGH // 2
"""Characters of a form from which on its beginning gives it away."""
_MANY: Final = 100
"""Finds in one text; what follows them is left out as a whole, so that a flood of them costs no time."""


class Secrets:
    """Some secrets in all the forms in which they are looked for."""

    def __init__(self, values: Collection[str] = (), *, named: bool = False) -> None:
        """Take the values to look for. If they are ``named``, they were called secrets: they are found as they are
        even if they are short."""
        forms = {form for value in values if _tells(value) for form in _forms(value)}
        if named:
            forms.update(value for value in values if len(value) >= _LITERAL)
        self._forms: dict[str, list[str]] = {}
        """The forms, by what gives them away."""
        for form in sorted(forms):
            start = form[:_ENOUGH] if len(form) >= _TELLTALE else form
            self._forms.setdefault(start, []).append(form)
        self._short = tuple(start for start in self._forms if len(start) < 2 * _GRAM - 1)
        self._grams: dict[str, set[str]] = {}
        """The forms by pieces of their tell-tale beginnings: such a beginning has one of these wherever a text is cut
        into such pieces, so one look at each piece is enough, however many secrets there are."""
        for start in self._forms.keys() - set(self._short):
            for i in range(_GRAM):
                self._grams.setdefault(start[i : i + _GRAM], set()).add(start)
        self._beginnings = {form[:length] for form in forms for length in range(1, min(len(form), _TELLTALE))}
        self._parts = {value[i : i + _GRAM].lower() for value in values if _tells(value) for i in _places(value)}
        """The parts that ``redact_parts`` looks for."""
        self._alphabet = frozenset("".join(forms))
        self._longest = max(map(len, forms), default=1)

    def redact(self, text: str) -> str:
        """``text`` without the secrets."""
        return self.cut(text, 0, whole=True)[0] if self._starts_in(text) else text

    def redact_parts(self, text: str) -> str:
        """``text`` without the secrets, and without whatever has eight characters in a row of one."""
        text = self.redact(text)
        if not self._parts:
            return text
        # Character by character: of some letters the small one is two characters, and places would shift.
        lower = "".join(char.lower()[0] for char in text)
        pieces: list[str] = []
        done = 0
        for i in _places(text):
            if lower[i : i + _GRAM] in self._parts:
                if i > done or not pieces:
                    pieces += (text[done:i], REDACTED)
                done = i + _GRAM
        return "".join((*pieces, text[done:]))

    def cut(self, text: str, count: int, *, whole: bool = False) -> tuple[str, str, int]:
        """Return ``text`` without the secrets; the end of it that may be the beginning of one, if it is not ``whole``;
        and the number of secrets in it, added to the ``count`` before."""
        if count > _MANY:
            return "", "", count
        pieces: list[str] = []
        done, end = 0, len(text) if whole else self._open(text, 0)
        for start, stop in self._places(text):
            if start >= end:
                # It may go on behind the end of the text.
                break
            pieces += (text[done:start], REDACTED)
            done, count = stop, count + 1
            if count > _MANY:
                return "".join(pieces), "", count
            if end < done:
                end = self._open(text, done)
        pieces.append(text[done:end])
        return "".join(pieces), text[end:], count

    def _places(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the places of secrets, in order; each is as long as can be, and none is within the one before."""
        at = {start: place for start in self._starts_in(text) if (place := text.find(start)) >= 0}
        while at:
            first = min(at.values())
            stop = max(
                first + _common(form, text[first : first + len(form)])
                for start, place in at.items()
                if place == first
                for form in self._forms[start]
            )
            yield first, stop
            for start, place in tuple(at.items()):
                if place < stop:
                    at[start] = text.find(start, stop)
                    if at[start] < 0:
                        del at[start]

    def _starts_in(self, text: str) -> set[str]:
        """Return the beginnings of forms that may be in ``text``; mostly none."""
        if not self._forms:
            return set()
        grams = self._grams.keys() & [text[i : i + _GRAM] for i in range(0, len(text) - _GRAM + 1, _GRAM)]
        starts = set[str]().union(*(self._grams[gram] for gram in grams)) if grams else set[str]()
        return starts.union(start for start in self._short if start in text) if self._short else starts

    def _open(self, text: str, done: int) -> int:
        """Return where the end of ``text`` begins that may be the beginning of a secret."""
        place, first = len(text), max(done, len(text) - self._longest)
        for i in range(len(text) - 1, max(first - 1, len(text) - _TELLTALE), -1):
            if text[i] not in self._alphabet:
                break
            if text[i:] in self._beginnings:
                place = i
        return min([place, *(self._opened_by(start, text, first) for start in self._starts_in(text[first:]))])

    def _opened_by(self, start: str, text: str, first: int) -> int:
        """The same for secrets of which as much is there as gives them away."""
        at = text.find(start, first)
        while at >= 0:
            if any(len(form) > len(text) - at and form.startswith(text[at:]) for form in self._forms[start]):
                return at
            at = text.find(start, at + 1)
        return len(text)


class Passing:
    """Text that goes by in pieces: what comes out is, together, what ``redact`` makes of the whole, where and when this
    was made."""

    def __init__(self, *secrets: Secrets) -> None:
        self._stages = [_Stage(hidden) for hidden in secrets or compared()]

    @property
    def held(self) -> bool:
        """True if something waits that may be the beginning of a secret, for what follows it."""
        return any(stage.held for stage in self._stages)

    def add(self, text: str, *, last: bool = False) -> str:
        """Take ``text`` in and return what may be shown now; everything if it was the ``last``."""
        for stage in self._stages:
            text, stage.held, stage.count = stage.secrets.cut(stage.held + text, stage.count, whole=last)
        return text


class _Stage:
    def __init__(self, secrets: Secrets) -> None:
        self.secrets = secrets
        self.held = ""
        self.count = 0


_values: Final[set[str]] = set()
_known = Secrets()
_beside: ContextVar[Secrets | None] = ContextVar("beside", default=None)
_everywhere: Secrets | None = None

_names: ContextVar[list[Callable[[str], bool]] | None] = ContextVar("names", default=None)
"""What knows the names of tools in the scope: a list, which the scope empties when it ends."""


def register_secrets(values: Iterable[str | None]) -> None:
    """Keep these secret from here on, in this process."""
    global _known
    fresh = {value for value in values if value} - _values
    if fresh:
        _values.update(fresh)
        _known = Secrets(_values)


@contextmanager
def redaction_scope() -> Iterator[None]:
    """Around the work for one conversation: ``add_secrets`` and ``add_names`` hold until its end."""
    names: list[Callable[[str], bool]] = []
    token, named = _beside.set(None), _names.set(names)
    try:
        yield
    finally:
        _beside.reset(token)
        _names.reset(named)
        # Tasks that were begun in it keep a copy of the context, and would keep what the work has read.
        names.clear()


def add_secrets(secrets: Secrets) -> None:
    """Compare with these, too, until the end of the ``redaction_scope`` that this is called in."""
    _beside.set(secrets)


def add_names(has_name: Callable[[str], bool]) -> None:
    """Until the end of the ``redaction_scope`` that this is called in, take no text that ``has_name`` knows for a key,
    too: names of tools may look like one."""
    names = _names.get()
    assert names is not None, "called outside of a redaction_scope"
    names.append(has_name)


def is_name(text: str) -> bool:
    """Tell whether it is the name of a tool of the conversation that this process works for."""
    return any(has_name(text) for has_name in _names.get() or ())


def add_secrets_everywhere(secrets: Secrets | None) -> None:
    """In a process that works for one conversation at a time: compare with these, too, in each of its threads."""
    global _everywhere
    _everywhere = secrets


def compared() -> tuple[Secrets, ...]:
    """Return the secrets to compare with here and now."""
    beside = _beside.get() or _everywhere
    return (_known,) if beside is None else (_known, beside)


def redact(text: str) -> str:
    """``text`` without the secrets of this process, and of the conversation that it works for."""
    for secrets in compared():
        text = secrets.redact(text)
    return text


def redact_parts(text: str) -> str:
    """``text`` without secrets and without parts of them: for what quotes keys in part."""
    for secrets in compared():
        text = secrets.redact_parts(text)
    return text


_PASSWORDS: Final = ("password", "sentinel_password")
"""The names of passwords in the address of a Redis, behind ``?``."""


def passwords_of(url: str | None) -> Iterator[str]:
    """The passwords in an address, as they are meant: that of its login, and that of the Sentinels that it names."""
    rest, _, query = (url or "").partition("://")[2].partition("?")
    userinfo = rest.partition("/")[0].rpartition("@")[0]
    if password := userinfo.partition(":")[2]:
        yield unquote(password)
    for option in query.split("&"):
        name, _, value = option.partition("=")
        if name in _PASSWORDS and value:
            yield unquote_plus(value)


def _places(text: str) -> range:
    """Return the places where a piece of it of eight characters begins."""
    return range(len(text) - _GRAM + 1)


def _tells(value: str) -> bool:
    return len(value) >= (_WORD if value.isalpha() else _LEAST)


def _forms(value: str) -> Iterator[str]:
    """Yield the forms of one secret; those that are too short to tell are left out."""
    raw = value.encode("utf-8", "surrogatepass")
    percent = quote(raw, safe="")
    forms = [value, value.lower(), value.upper(), percent, percent.replace("%", "%25"), quote(raw)]
    forms += (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], html.escape(value))
    forms += (raw.hex(), raw.hex().upper())
    for offset in range(3):
        # Each begins with the first of base64's characters that has nothing of what stands before the secret.
        encoded = base64.b64encode(b"\0" * offset + raw)[(offset * 8 + 5) // 6 : (offset + len(raw)) * 8 // 6].decode()
        forms += (encoded, encoded.replace("+", "-").replace("/", "_"))
    yield from (form for form in forms if len(form) >= _LEAST)


def _common(form: str, part: str) -> int:
    """Return the number of characters that both begin with."""
    return next((i for i, (a, b) in enumerate(zip(form, part, strict=False)) if a != b), min(len(form), len(part)))
