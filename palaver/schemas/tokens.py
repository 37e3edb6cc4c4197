"""Tokens: what a page is given in the place of a key."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from palaver.schemas.fields import AtMost, DataModel, Strict
from palaver.vocabulary.limits import limit_of

TokenScope = Literal["runs:submit", "runs:read", "runs:act", "actions:approve"]
"""The scopes that a token may have: what a user does in one conversation."""


Subject = Annotated[str, StringConstraints(pattern=r"^[!-~]+$", max_length=limit_of("token_subject"))]
"""The person who has a token, as the server that asks for it knows them: printable ASCII without blanks."""


class TokenRequest(Strict):
    """A token to make, for one conversation: that of a ``run``, or a ``conversation``."""

    conversation: str | None = Field(default=None, max_length=64)
    run: str | None = Field(default=None, max_length=64)
    """A run, in the place of its conversation."""
    scopes: Annotated[tuple[TokenScope, ...], AtMost("api_key_scopes")] = ("runs:read",)
    """The parts of the API that it opens: never more than the key has that asks for it."""
    expires_in: int = Field(default=300, ge=10, le=limit_of("token_life"))
    """Seconds from now on."""
    subject: Subject | None = None
    """The person whom the token is for, such as ``user:17``: what is done with it is done by ``key/subject``. An id of
    yours: it is shown wherever it is told who did something, and is no secret."""


class Token(DataModel):
    """A token, which goes where a key does: ``Authorization: Bearer …``."""

    token: str = Field(repr=False)
    token_type: Literal["Bearer"] = "Bearer"
    expires_at: datetime
    scopes: tuple[TokenScope, ...]
    conversation: str
    """The one conversation that it is for."""
    subject: str | None = None
    """The person whom it is for, if it says one."""
