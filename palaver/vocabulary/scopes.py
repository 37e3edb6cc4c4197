"""Scopes: the parts of the API that a key opens. Each route names the one that it needs."""

from __future__ import annotations

from typing import Final, Literal, get_args

Scope = Literal[
    "runs:submit",
    "runs:read",
    "runs:act",
    "actions:approve",
    "agents:write",
    "usage:read",
    "webhooks:write",
    "admin",
]
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
