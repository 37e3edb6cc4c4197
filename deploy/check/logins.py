"""Each process logged in to Redis as the user of its role, as deploy/users.acl has them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import redis

from deploy.users import DEFAULT
from features.stack.ports import HOST
from features.stack.redis_server import find_server

from .kit import ROOT

USERS = {"api": "palaver-api", "worker": "palaver-worker", "tools": "palaver-worker", "flower": "palaver-flower"}
"""The user of each role."""
PASSWORD: Final = "not-a-secret"


def is_before_7_2(program: Path | None = None) -> bool:
    """Tell whether a server does not know these rules: the program, or the one that tests start."""
    said = [str(program or find_server()), "--version"]
    told = subprocess.run(said, check=True, capture_output=True, text=True, timeout=10).stdout
    version = re.search(r"v=(\d+)\.(\d+)", told)
    assert version, told
    return (int(version[1]), int(version[2])) < (7, 2)


def shipped_file(root: Path = ROOT, program: Path | None = None) -> Path:
    """The file for the server that the program is; for the one that tests start, unless given."""
    return root / "deploy" / ("users-7.0.acl" if is_before_7_2(program) else "users.acl")


def shipped_users(root: Path = ROOT, program: Path | None = None) -> list[str]:
    """The lines of the shipped file, without that of the default user."""
    default, *lines = shipped_file(root, program).read_text().splitlines()
    assert default == DEFAULT
    return lines


def write_users(path: Path, root: Path = ROOT, program: Path | None = None) -> Path:
    """The shipped file, with a password for each user that may log in."""
    default, *lines = shipped_file(root, program).read_text().splitlines()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([default, *(f"{line} >{PASSWORD}" for line in lines), ""]))
    return path


def admin() -> tuple[str, str]:
    """The login of a person who starts a server with the shipped users."""
    return "palaver-admin", PASSWORD


def url_of(user: str, port: int) -> str:
    """How the user logs in."""
    return f"redis://{user}:{PASSWORD}@{HOST}:{port}/0"


def secret_of(user: str) -> str:
    """What the chart and the units call the secret that has its URL."""
    return user.replace("palaver", "redis-url")


def environments(port: int) -> Mapping[str, Mapping[str, str]]:
    """What each role needs to log in."""
    return {line: {"PALAVER_REDIS_URL": url_of(user, port)} for line, user in USERS.items()}


def denied(server: redis.Redis) -> list[str]:
    """What users were refused since the server started, oldest first."""
    return [f"{each['username']}: {each['reason']} {each['object']} ({each['context']})" for each in server.acl_log()]
