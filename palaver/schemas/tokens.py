"""Tokens: what a page is given in the place of a key."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from palaver.schemas.fields import AtMost, Strict
from palaver.vocabulary.limits import limit_of

TokenScope = Literal["runs:submit", "runs:read", "runs:act", "actions:approve"]
"""The scopes that a token may have: what a user does in one conversation."""


class TokenRequest(Strict):
    """A token to make, for one conversation: that of a ``run``, or a ``conversation``."""

    conversation: str | None = Field(default=None, max_length=64)
    run: str | None = Field(default=None, max_length=64)
    """A run, in the place of its conversation."""
    scopes: Annotated[tuple[TokenScope, ...], AtMost("api_key_scopes")] = ("runs:read",)
    """The parts of the API that it opens: never more than the key has that asks for it."""
    expires_in: int = Field(default=300, ge=10, le=limit_of("token_life"))
    """Seconds from now on."""


class Token(BaseModel):
    """A token, which goes where a key does: ``Authorization: Bearer …``."""

    token: str = Field(repr=False)
    token_type: Literal["Bearer"] = "Bearer"
    expires_at: datetime
    scopes: tuple[TokenScope, ...]
    conversation: str
    """The one conversation that it is for."""
