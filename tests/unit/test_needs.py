"""What a role asks Redis about at its start is what deploy/users.acl grants it, and nothing that anybody could miss."""

from __future__ import annotations

import re
from typing import Final

import pytest

from deploy.check.logins import shipped_users
from deploy.users import users, users_of_7_0
from palaver.feature import hash_tags
from palaver.store.scripting.additions import all_lua_files
from palaver.store.server.needs import Place, Role, needs
from tests.feature_cases import of_the_whole
from tests.pages import ROOT

_UNASKED: Final = {
    *("auth", "client|setinfo", "client|setname", "discard", "exec", "hello", "multi", "select", "unwatch", "watch"),
    *("script|exists", "wait", "waitaof"),
}
"""The libraries' own: a transaction cannot ask for them, or they are not missed, or PALAVER_DURABILITY asks."""
_CELERYS: Final = {
    *("del", "exists", "expire", "lpush", "pexpire", "rpop", "sadd", "smembers", "srem", "subscribe", "time"),
    *("unlink", "unsubscribe", "zadd", "zrem", "zrangebyscore", "blmpop"),
}
"""Of Flower: what kombu has for its mailboxes. It only shows what comes without them."""


def _granted(role: Role) -> set[str]:
    (line,) = (line for line in shipped_users() if line.startswith(f"user palaver-{role} "))
    return {word[1:] for word in line.split() if word.startswith("+")}


def _asked(role: Role) -> set[str]:
    commands = needs(role, ("store", "broker"), clustered=True)
    return {"|".join(each[:2]) if f"{each[0]}|" in _SUB else each[0] for each in commands}


_SUB: Final = ("client|", "cluster|", "pubsub|", "script|")


@pytest.mark.parametrize("role", ["api", "worker", "flower"])
def test_it_asks_for_what_the_shipped_users_have(role: Role) -> None:
    optional = _UNASKED | (_CELERYS if role == "flower" else {"sadd", "smembers", "srem"} if role == "api" else set())
    assert _granted(role) - optional == _asked(role) - optional
    assert _asked(role) <= _granted(role)


@of_the_whole
def test_the_shipped_users_have_the_keys_of_each_feature() -> None:
    made = "`python -m deploy.users` makes it"
    assert (ROOT / "deploy" / "users.acl").read_text() == users(), made
    assert (ROOT / "deploy" / "users-7.0.acl").read_text() == users_of_7_0(users()), made
    assert all(users().count(f" ~{tag}:* ") == 2 for tag in hash_tags())


def test_events_go_by_the_database() -> None:
    assert ("psubscribe", "/3.celeryev/*") in needs("worker", ("broker",), 3)


def test_every_command_of_a_script_is_granted_to_somebody() -> None:
    """A script that calls what no role may call fails under the shipped users, and nowhere else."""
    called = {name.lower() for text in all_lua_files().values() for name in re.findall(r"redis\.p?call\('(\w+)'", text)}
    assert len(called) > 20
    assert called <= _granted("api") | _granted("worker")


def test_what_a_cluster_is_asked_is_asked_of_no_other_server() -> None:
    more = set(needs("worker", ("store",), clustered=True)) - set(needs("worker", ("store",)))
    names = {"asking", "cluster", "hincrby", "spublish", "ssubscribe", "sunsubscribe"}
    assert {command[0] for command in more} == names
    assert needs("flower", ("store",), clustered=True) == ()


def test_who_asks_nothing_of_the_store_waits_for_no_promise() -> None:
    both: tuple[Place, ...] = ("store", "broker")
    assert ("waitaof", "1", "0", "1") in needs("api", both, durability="fsync")
    assert needs("flower", both, durability="fsync") == needs("flower", both)
