"""The users of Redis, one for each role: ``python -m deploy.users`` writes users.acl and users-7.0.acl.

Features bring their keys: users that have a place for these have all with the hash tags of the installed ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from palaver.feature import hash_tags

DEFAULT: Final = "user default off ~* &* +@all"
"""The first line of the file. This user cannot log in; but servers before the end of 2025 replay their
append-only file in its name, and drop each transaction that it may not run: each script that writes twice."""
_ADMIN: Final = "user palaver-admin on resetchannels ~* &* +@all"
_FOLDER: Final = Path(__file__).parent
_SINCE_7_2: Final = (" +client|setinfo", " +waitaof")
"""What an older server does not know, and will not start with."""
_OF_FEATURES: Final = "FEATURES"
"""The place of the keys of features."""


class _User(NamedTuple):
    """A user, and what it may do."""

    name: str
    commands: str
    keys: str
    channels: str


_USERS: Final[Sequence[_User]] = (
    _User(
        "palaver-api",
        "ping hello auth select client|setinfo client|setname multi exec discard watch unwatch eval evalsha "
        "script|load script|exists wait waitaof time info get set del rename unlink exists expire pexpire pttl "
        "persist hset hget hmget hgetall hdel hexists hstrlen hincrby hkeys hvals hlen xadd xrange xrevrange xlen "
        "xdel xtrim zadd zrem zrange zrangebyscore zremrangebyscore zcard zcount zlexcount zrank zscore zpopmin "
        "lpush llen sadd smembers srem publish subscribe unsubscribe spublish ssubscribe sunsubscribe asking "
        "cluster|slots",
        "~{p??}:* ~{palaver:agents*}:* ~{palaver:audit}:* ~{palaver:keys}:* FEATURES %R~{palaver:provider:*}:* "
        "~{palaver:workers}:* %R~palaver:work* ~palaver:tenants ~model ~model.recovered ~tools ~tools.*",
        "&{p??}:feed:* &{p??}:log:* &palaver:cancel:*",
    ),
    _User(
        "palaver-worker",
        "ping hello auth select client|setinfo client|setname client|id client|list pubsub|numsub multi exec "
        "discard watch unwatch eval evalsha script|load script|exists wait waitaof time info get set del unlink "
        "exists expire pexpire pttl persist hset hget hmget hgetall hdel hexists hstrlen hincrby hvals hlen xadd "
        "xrange xrevrange xlen xdel xtrim zadd zrem zrange zrangebyscore zremrangebyrank zremrangebyscore zcard "
        "zcount zrank zscore zpopmin lpush llen sadd smembers srem blmpop rpop publish subscribe unsubscribe "
        "spublish ssubscribe sunsubscribe asking cluster|slots psubscribe punsubscribe",
        "~{p??}:* ~{palaver:provider:*}:* FEATURES %R~{palaver:agents*}:* %R~{palaver:keys}:key:* "
        "%R~{palaver:keys}:of:* %R~palaver:tenants ~palaver:work* ~{palaver:workers}:* ~model ~model.recovered "
        "~tools ~tools.* ~*.celery.pidbox ~_kombu.*",
        "&{p??}:feed:* &{p??}:log:* &palaver:cancel:* &palaver:providers &/0.celeryev/* &/0.celery.pidbox",
    ),
    _User(
        "palaver-flower",
        "ping hello auth select client|setinfo client|setname multi exec discard watch unwatch time exists del "
        "unlink expire pexpire zadd zrem zrangebyscore lpush llen sadd smembers srem blmpop rpop publish "
        "subscribe unsubscribe psubscribe punsubscribe",
        "%R~model %R~model.recovered %R~tools %R~tools.* ~*.reply.celery.pidbox ~celeryev.* "
        "~_kombu.binding.celeryev ~_kombu.binding_permanent.celeryev ~_kombu.binding.reply.celery.pidbox "
        "~_kombu.binding_permanent.reply.celery.pidbox",
        "&/0.celeryev/* &/0.celery.pidbox",
    ),
)


def users_of_7_0(text: str) -> str:
    """Return the file for servers before 7.2, made of the one for newer ones."""
    for rule in _SINCE_7_2:
        text = text.replace(rule, "")
    return text


def users() -> str:
    """Return users.acl."""
    tags = " ".join(f"~{tag}:*" for tag in hash_tags())
    lines = [DEFAULT]
    for name, commands, keys, channels in _USERS:
        granted = " ".join(f"+{command}" for command in commands.split())
        lines.append(f"user {name} on resetchannels -@all {granted} {keys.replace(_OF_FEATURES, tags)} {channels}")
    return "\n".join([*lines, _ADMIN, ""])


if __name__ == "__main__":
    (_FOLDER / "users.acl").write_text(users())
    (_FOLDER / "users-7.0.acl").write_text(users_of_7_0(users()))
