"""Each process logged in to Redis as the user of its role, as deploy/users.acl has them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import redis

from palaver.testing.ports import HOST
from palaver.testing.redis_server import find_server

from .kit import ROOT

USERS = {"api": "palaver-api", "worker": "palaver-worker", "tools": "palaver-worker", "flower": "palaver-flower"}
"""The user of each role."""
_PASSWORD = "not-a-secret"
_DEFAULT = "user default off"
_SINCE_7_2: Final = (" +client|setinfo", " +waitaof")
"""What an older server does not know, and will not start with: the page on users says to leave it out."""


def shipped_users(root: Path = ROOT) -> list[str]:
    """The lines of the shipped file, without that of the default user, which is off."""
    default, *lines = (root / "deploy" / "users.acl").read_text().splitlines()
    assert default == _DEFAULT
    return lines


def known_to_the_server(line: str) -> str:
    """The line without what the server that tests start does not know."""
    told = subprocess.run([find_server(), "--version"], check=True, capture_output=True, text=True, timeout=10).stdout
    version = re.search(r"v=(\d+)\.(\d+)", told)
    assert version, told
    if (int(version[1]), int(version[2])) < (7, 2):
        for rule in _SINCE_7_2:
            line = line.replace(rule, "")
    return line


def write_users(path: Path, root: Path = ROOT) -> Path:
    """The shipped users, with a password; the test itself stays the default user, who may do everything."""
    told = [f"{known_to_the_server(line)} >{_PASSWORD}" for line in shipped_users(root)]
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
