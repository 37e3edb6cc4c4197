"""Redis with the shipped files, ended and started again: what it answered before is there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import redis

from deploy.users import DEFAULT, users_of_7_0
from features.stack.redis_server import RedisServer, RedisServerError, find_server

from . import logins
from .kit import Kit, Skipped

OTHERS: Final = "PALAVER_TEST_REDIS_SERVERS"
"""Names more server programs, with `:` between them."""
_WRITE: Final = "for _, key in ipairs(KEYS) do redis.call('SET', key, 1) end"
_KEYS: Final = ("{p00}:run:a", "{p00}:run:b")


def programs() -> list[Path]:
    """Servers: the one that tests start, an installed one, and those that PALAVER_TEST_REDIS_SERVERS names."""
    named = [Path(each) for each in os.environ.get(OTHERS, "").split(":") if each]
    installed = [Path(each) for each in ("/usr/bin/redis-server", "/usr/bin/valkey-server")]
    found = [find_server(), *named, *(each for each in installed if each.exists())]
    return [*dict.fromkeys(found)]


def restarts(kit: Kit) -> list[str]:
    """The files for old and new servers agree, and each server has after a restart what a script wrote before."""
    users, older = ((kit.root / "deploy" / name).read_text() for name in ("users.acl", "users-7.0.acl"))
    if users.splitlines()[0] != DEFAULT:
        return [f"users.acl: the first line is not {DEFAULT!r}: a restart of Redis before 2026 loses runs"]
    if older != users_of_7_0(users):
        return ["users-7.0.acl: is not users.acl without what servers before 7.2 do not know"]
    faults = [fault for program in programs() for fault in _lost(kit, program)]
    if not faults and not any("redis" in program.name for program in programs()):
        raise Skipped("there is no Redis here, and Valkey kept everything: apt-get install redis-server")
    return faults


def _lost(kit: Kit, program: Path) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="palaver-check-") as folder:
        users = logins.write_users(Path(folder) / "users.acl", kit.root, program)
        try:
            with RedisServer(
                data_dir=Path(folder) / "redis",
                options={"include": str(kit.redis_conf), "aclfile": str(users)},
                login=logins.admin(),
                program=program,
            ) as server:
                for end in (server.kill, server.stop):
                    with redis.Redis.from_url(logins.url_of("palaver-api", server.port)) as api:
                        api.eval(_WRITE, len(_KEYS), *_KEYS)
                    end()
                    server.start()
                    with redis.Redis.from_url(server.url) as admin:
                        left = admin.exists(*_KEYS)
                        admin.delete(*_KEYS)
                    if left != len(_KEYS):
                        yield f"{program}: {end.__name__} and start: {left} of {len(_KEYS)} keys are left"
        except RedisServerError as error:
            yield f"{program}: {error}"
