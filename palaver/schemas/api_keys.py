"""Keys of the API as requests ask for them and answers show them. The key itself is shown once, when it is made."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

from pydantic import Field, StringConstraints

from palaver.schemas.fields import AtMost, DataModel, Strict
from palaver.vocabulary.limits import limit_of
from palaver.vocabulary.scopes import Scope

KeyName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,32}$")]
"""The name of a key, under which the deeds of its bearer are recorded."""
AgentName = Annotated[str, StringConstraints(pattern=r"^[^\s\x00-\x1f]{1,64}$")]
_LONGEST: Final = limit_of("api_key_life")


class KeyRequest(Strict):
    """A key to make: it may do what it has scopes for."""

    name: KeyName
    """The name under which is recorded what its bearer does. Several keys may have it: after a rotation two do."""
    scopes: Annotated[tuple[Scope, ...], AtMost("api_key_scopes")] = ()
    """The parts of the API that it opens: never more than the key has that asks for it."""
    agents: Annotated[tuple[AgentName, ...], AtMost("api_key_agents")] | None = None
    """Agents of the server that it may run, by name; null: any."""
    conversation: str | None = Field(default=None, max_length=64)
    """The one conversation that it is for; null: any."""
    expires_in: int | None = Field(default=None, ge=1, le=_LONGEST)
    """Seconds from now on; null: it does not expire."""
    tenant: str | None = Field(default=None, max_length=63)
    """The tenant that it is of, by name; null: that of the key that asks. Another one only for operators."""
    operator: bool = False
    """True if it sees all tenants. Only operators make such keys."""


class KeyRotation(Strict):
    """The way to replace a key by a new one."""

    overlap: int = Field(default=86_400, ge=0, le=_LONGEST)
    """Seconds for which the old key is valid beside the new one; 0: not any more."""


class KeyInfo(DataModel):
    """A key, without its secret."""

    id: str
    """The part of the key between the first two underscores behind ``plv``."""
    name: str
    tenant: str | None
    """The name of its tenant; null for the default one."""
    scopes: tuple[Scope, ...]
    agents: tuple[str, ...] | None
    conversation: str | None
    operator: bool
    created_at: datetime
    created_by: str | None
    """The name of the key that made it; null if it was made beside the store."""
    expires_at: datetime | None
    last_used_at: datetime | None
    """The minute in which it was last used, as far as that is known: it is written a little later."""


class MadeKey(KeyInfo):
    """A key that was just made."""

    key: str = Field(repr=False)
    """All of it: it is shown this once."""


class KeyList(DataModel):
    """The keys of a tenant, the newest first."""

    data: list[KeyInfo]
