"""deploy/users.acl goes from a former version to this one and back, as the page on upgrades says.

tests/fixtures/users-of-a-former-version.acl is the file as it was when workers took deliveries by BRPOP.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
import redis

from deploy.check import logins
from deploy.users import users_of_7_0
from features.stack.redis_server import RedisServer
from palaver.config.settings import Settings
from palaver.store.server.needs import Role
from palaver.store.server.preflight import Preflight
from tests.pages import ROOT
from tests.process.test_acl import acl_commands

pytestmark = [pytest.mark.process, pytest.mark.long]

ADD: Final = 0
TAKE_AWAY: Final = 1
"""The two commands of the page."""
ONLY: Final = {
    ("api", "hkeys"): ("hkeys", "{p00}:a"),
    ("api", "rename"): ("rename", "{p00}:a", "{p00}:b"),
    ("worker", "client|id"): ("client", "id"),
    ("worker", "client|list"): ("client", "list"),
    ("worker", "pubsub|numsub"): ("pubsub", "numsub"),
    ("worker", "zremrangebyrank"): ("zremrangebyrank", "{p00}:a", "0", "1"),
    ("worker", "blmpop"): ("blmpop", "1", "1", "model", "right"),
    ("worker", "brpop"): ("brpop", "model", "1"),
    ("flower", "blmpop"): ("blmpop", "1", "1", "x.reply.celery.pidbox", "right"),
    ("flower", "brpop"): ("brpop", "x.reply.celery.pidbox", "1"),
    **{
        (role, name): how
        for role in ("api", "worker")
        for name, how in {
            "asking": ("asking",),
            "cluster|slots": ("cluster", "slots"),
            "spublish": ("spublish", "{p00}:feed:x", "text"),
            "ssubscribe": ("ssubscribe", "{p00}:feed:x"),
            "sunsubscribe": ("sunsubscribe", "{p00}:feed:x"),
        }.items()
    },
}
"""What one of the two files has and the other has not, each as it can be tried."""
ROLES: Final[tuple[Role, ...]] = ("api", "worker", "flower")


def _former() -> str:
    text = (ROOT / "tests" / "fixtures" / "users-of-a-former-version.acl").read_text()
    return users_of_7_0(text) if logins.shipped_file().name == "users-7.0.acl" else text


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One with the users of the former version, who have passwords."""
    default, *lines = _former().splitlines()
    users = tmp_path_factory.mktemp("users") / "users.acl"
    users.write_text("\n".join([default, *(f"{line} >{logins.PASSWORD}" for line in lines), ""]))
    with RedisServer(options={"aclfile": str(users)}, login=logins.admin()) as running:
        yield running


def _load(client: Any, text: str, number: int) -> None:
    for command in acl_commands(text, number):
        assert client.execute_command(*command), command


def _granted(text: str, role: Role) -> set[str]:
    (line,) = (line for line in text.splitlines() if line.startswith(f"user palaver-{role} "))
    return {word[1:] for word in line.split()[2:] if word[0] == "+"}


def _may(client: Any) -> set[tuple[str, str]]:
    """Of what only one of the versions has: the roles and the commands that they may use."""
    answers = {each: client.execute_command("ACL", "DRYRUN", f"palaver-{each[0]}", *how) for each, how in ONLY.items()}
    return {each for each, answer in answers.items() if answer == "OK"}


def _wrong(server: RedisServer, role: Role) -> list[str]:
    """What a process of this version, with the password that it has, finds missing."""
    preflight = Preflight(Settings(redis_url=logins.url_of(f"palaver-{role}", server.port)), role)
    return [each.found for each in preflight.look() if each.level != "ok"]


def test_rights_are_added_first_and_taken_away_last(server: RedisServer) -> None:
    former, shipped = _former(), logins.shipped_file().read_text()
    before, after = ({(role, name) for role in ROLES for name in _granted(text, role)} for text in (former, shipped))
    assert before ^ after == ONLY.keys()
    client: Any
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        assert _may(client) == before - after
        assert "blmpop" in " ".join(_wrong(server, "worker"))
        # Forwards: both versions work, and then this one alone. And back.
        for text, mine, others in ((shipped, after, before), (former, before, after)):
            _load(client, text, ADD)
            assert _may(client) == ONLY.keys()
            assert [_wrong(server, role) for role in ROLES] == [[], [], []]
            _load(client, text, TAKE_AWAY)
            assert _may(client) == mine - others
            assert any(_wrong(server, role) for role in ROLES) == (text == former)


def test_the_user_of_the_server_itself_may_do_everything_afterwards(server: RedisServer) -> None:
    """The former file took that away: a restart would lose runs."""
    client: Any
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        _load(client, logins.shipped_file().read_text(), ADD)
        default = client.acl_getuser("default")
    assert "off" in default["flags"]
    assert (default["categories"], default["keys"], default["channels"]) == (["+@all"], ["~*"], ["&*"])
