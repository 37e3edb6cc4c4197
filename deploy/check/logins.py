"""Each process logged in to Redis as the user of its role, as deploy/users.acl has them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import redis

from palaver.testing.ports import HOST

from .kit import ROOT

USERS = {"api": "palaver-api", "worker": "palaver-worker", "tools": "palaver-worker", "flower": "palaver-flower"}
"""The user of each role."""
_PASSWORD = "not-a-secret"
_DEFAULT = "user default off"


def shipped_users(root: Path = ROOT) -> list[str]:
    """The lines of the shipped file, without that of the default user, which is off."""
    default, *lines = (root / "deploy" / "users.acl").read_text().splitlines()
    assert default == _DEFAULT
    return lines


def write_users(path: Path, root: Path = ROOT) -> Path:
    """The shipped users, with a password; the test itself stays the default user, who may do everything."""
    told = [f"{line} >{_PASSWORD}" for line in shipped_users(root)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([f"{_DEFAULT.removesuffix('off')}on nopass ~* &* +@all", *told, ""]))
    return path


def url_of(user: str, port: int) -> str:
    """How the user logs in."""
    return f"redis://{user}:{_PASSWORD}@{HOST}:{port}/0"


def secret_of(user: str) -> str:
    """What the chart and the units call the secret that has its URL."""
    return user.replace("palaver", "redis-url")


def environments(port: int) -> Mapping[str, Mapping[str, str]]:
    """What each role needs to log in."""
    return {line: {"PALAVER_REDIS_URL": url_of(user, port)} for line, user in USERS.items()}


def denied(server: redis.Redis) -> list[str]:
    """What users were refused since the server started, oldest first."""
    return [f"{each['username']}: {each['reason']} {each['object']} ({each['context']})" for each in server.acl_log()]
