"""Operations on the secrets of conversations."""

from __future__ import annotations

from typing import NamedTuple

from palaver.late import dataclass
from palaver.store.redis.keys import Key
from palaver.store.scripting.contracts.declaration import Script
from palaver.store.scripting.contracts.replies import RefusalCode, Unknown


class NewSecret(NamedTuple):
    """A secret that a conversation is to have, or is not to have any more."""

    name: str
    sealed: str | None
    """None to remove it."""
    instead_of: str | None = None
    """The sealed text that it must have until now, to be sealed anew; None to replace any."""


@dataclass(frozen=True, slots=True)
class Saved:
    """They are as they were to be."""


@dataclass(frozen=True, slots=True)
class Overfull:
    """There would be too many: nothing was changed."""

    code: RefusalCode


class KeepSecrets(Script[Saved | Overfull | Unknown]):
    """Set and remove secrets of a conversation."""

    grows = True

    conversation: Key
    log: Key
    by: str | None
    """The name of the key of who sets them, '' for one without; None if they stay what they are."""
    secrets: tuple[NewSecret, ...]
