"""Asks the servers behind the store and the broker, before they are trusted and again each minute, whether they keep
the data that is written, and whether this role may do there what it has to (ADR 0126).

It blocks, and has a connection of its own only while it asks: any process can do it in a thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    RedisError,
    ResponseError,
)
from redis.retry import Retry

from palaver.config.brokers import is_redis, redis_py_options, user_of
from palaver.config.clusters import cluster_of, is_cluster
from palaver.config.sentinels import by_sentinels, sentinels_of
from palaver.config.settings import Settings
from palaver.errors import ConfigurationError, classify
from palaver.store.redis.connection import fields_of, is_absent, is_closed
from palaver.store.redis.pool import driver
from palaver.store.server.findings import (
    AWAY,
    LOGIN,
    Finding,
    judge,
    mode,
    rights,
    split,
    strangers,
    unanswered,
    unasked,
    unlooked,
    unscripted,
    unwritable,
)
from palaver.store.server.needs import ESSENTIAL, Command, Place, Role, needs
from palaver.store.server.server_state import ServerState
from palaver.telemetry.outage_log import outage_reason

log = logging.getLogger("palaver.preflight")

EVERY: Final = 60.0
"""Seconds between two looks."""
_AGAIN: Final = 5.0
"""The same while steps are refused: that is about to be mended."""
_WAITS: Final[Mapping[str, Any]] = {
    "socket_timeout": 5.0,
    "socket_connect_timeout": 2.0,
    "retry": Retry(NoBackoff(), 0),
    "driver_info": driver(),
}
_QUEUED: Final = b"QUEUED"
_OF_STATE: Final = frozenset({"store_read_only", "store_out_of_memory"})
"""Codes of refusals of writes that have nothing to do with the user."""
_OF_STEPS: Final = ESSENTIAL | {LOGIN}


class Preflight:
    """The findings of a role about its servers, and the memory of which have been logged."""

    def __init__(self, settings: Settings, role: Role) -> None:
        self._settings = settings
        self._role = role
        self._logged: dict[tuple[str, str], str] = {}
        self.refused: tuple[str, ...] = ()
        """Commands that a step needs and that this process was refused at the last look, or `login`; empty if nothing
        was refused, or there was no answer."""
        self._ended = threading.Event()

    def look(self) -> list[Finding]:
        """Return all findings. Waits for the servers, some seconds at most for each."""
        here = self._settings
        both = here.deliveries_url == here.store_url
        findings = list(_examine("store", here.store_url, {}, self._role, here, both=both))
        if not both and is_redis(here.deliveries_url):
            address, options = redis_py_options(here.deliveries_url)
            findings += _examine("broker", address, options, self._role, here, both=False)
        self.refused = tuple(dict.fromkeys(name for finding in findings for name in finding.names if name in _OF_STEPS))
        return findings

    def require(self) -> None:
        """Look, before anything is begun. Of a server that is away nothing is known, and nothing refused.

        Raises:
            ConfigurationError: nothing can work with this server; or something is wrong, and PALAVER_REDIS_CHECK is
                ``fatal``.
        """
        findings = self.look()
        fatal = self._settings.redis_check == "fatal"
        refused = [
            finding
            for finding in findings
            if finding.never or (fatal and finding.level != "ok" and finding.check not in ("answer", AWAY))
        ]
        if refused:
            raise ConfigurationError("; and ".join(finding.sentence for finding in refused))

    def tell(self, findings: Sequence[Finding]) -> None:
        """Log each fault: once, and again when it changes. That a server is away, others log."""
        if any(finding.check == "answer" for finding in findings):
            return
        wrong = {(finding.place, finding.check): finding for finding in findings if finding.level != "ok"}
        for about in self._logged.keys() - wrong.keys():
            log.info("the Redis of the %s is well again: %s", *about)
        for about, finding in wrong.items():
            if self._logged.get(about) != finding.sentence:
                log.log(logging.ERROR if finding.level == "error" else logging.WARNING, "%s", finding.sentence)
        self._logged = {about: finding.sentence for about, finding in wrong.items()}

    def watch(self) -> None:
        """Look now and each minute, and log what changed, until `end`. For a thread."""
        while True:
            try:
                self.tell(self.look())
            except Exception:
                log.exception("the look at Redis failed")
            if self._ended.wait(_AGAIN if self.refused else EVERY):
                return

    def start(self) -> None:
        """`watch` in a thread, which ends with the process."""
        threading.Thread(target=self.watch, name="preflight", daemon=True).start()

    def end(self) -> None:
        """Watch no more."""
        self._ended.set()


def _examine(
    place: Place, url: str, options: dict[str, Any], role: Role, settings: Settings, *, both: bool
) -> Iterator[Finding]:
    user = user_of(url) or "the default user"
    if is_cluster(url):
        yield from _examine_cluster(url, user, role, settings)
        return
    if by_sentinels(url):
        # Not above: a process whose Redis is one server does without.
        from palaver.store.server.sentinel_findings import look_at_sentinels

        found = list(look_at_sentinels(place, sentinels_of(url)))
        yield from found
        if any(finding.level == "error" for finding in found):
            return
    client = _client(url, options)
    db = client.connection_pool.connection_kwargs.get("db") or 0
    commands = needs(role, ("store", "broker") if both else (place,), db, settings.durability)
    if not commands:
        return
    try:
        yield from _findings(client, place, user, commands, settings)
    except (AuthenticationError, AuthorizationError) as error:
        yield strangers(place, user, _first_word(error))
    except BusyLoadingError:
        yield unanswered(place, "it loads its data")
    except (RedisError, OSError) as error:
        yield unanswered(place, type(error).__name__)
    finally:
        with suppress(RedisError, OSError):
            client.close()


def _examine_cluster(url: str, user: str, role: Role, settings: Settings) -> Iterator[Finding]:
    commands = needs(role, ("store",), 0, settings.durability, clustered=True)
    if not commands:
        return
    # Not above, as with Sentinels.
    from palaver.store.server.cluster_findings import look_at_cluster

    def look(client: Redis, key: str | None) -> Sequence[Finding]:
        try:
            return list(_findings(client, "store", user, commands, settings, key))
        except (AuthenticationError, AuthorizationError) as error:
            return [strangers("store", user, _first_word(error))]

    yield from look_at_cluster(cluster_of(url), user, _WAITS, look)


def _client(url: str, options: Mapping[str, Any]) -> Redis:
    if by_sentinels(url):
        from palaver.store.redis.sentinel import blocking

        return Redis.from_pool(blocking.pool(sentinels_of(url), **_WAITS))
    return Redis.from_url(url, **_WAITS, **options)


def _findings(
    client: Any, place: Place, user: str, commands: Sequence[Command], settings: Settings, key: str | None = None
) -> Iterator[Finding]:
    """Yield what one server is found to be; ``key`` is one that it has, if it is a master of a cluster."""
    keeps = ("info",) in commands
    if keeps:
        try:
            state = ServerState.of(client.info())
        except ResponseError as error:
            yield unlooked(place, user, _first_word(error))
        else:
            replicas = _replicas(settings) if place == "store" else 0
            clustered = place == "store" and settings.clustered
            yield from judge(place, state, replicas, clustered=clustered)
            if place == "store" and (by_sentinels(settings.store_url) or (clustered and state.replicas)):
                yield split(state, replicas)
    elif told := _told_mode(client):
        yield mode(place, told)
    asked = _refused(client, commands)
    if asked is None:
        yield unasked(place, user)
    refused, unknown, unwritten = asked or ([], [], "")
    if unwritten:
        yield unwritable(place, unwritten)
    if asked is not None:
        yield from rights(place, user, refused, unknown)
    if keeps and "eval" not in (*refused, *unknown) and (why := _unscripted(client, key)):
        yield unscripted(place, why)


def _told_mode(client: Any) -> str | None:
    """Return what a server is that cannot be asked for INFO; None if it does not say."""
    try:
        return fields_of(client.execute_command("HELLO")).get("mode")
    except ResponseError:
        return None


def _refused(client: Any, commands: Sequence[Command]) -> tuple[list[str], list[str], str] | None:
    """Return those of these commands that the user may not use, those that the server does not have, and why it writes
    nothing now, if it does not; None if it cannot be asked so.

    All are queued in a transaction that is discarded: the server checks rights when it queues, and runs nothing. So
    first comes a command that does no harm, to see that it does queue.
    """
    connection = client.connection_pool.get_connection()
    try:
        begun = _answers(connection, [("MULTI",), ("PING",)])
        if isinstance(begun[0], Exception):
            return (["multi"], [], "") if is_closed(begun[0]) else ([], ["multi"], "")
        # One whose disk is full refuses even this, before it would queue it.
        unwritten = _unwritten(begun[1])
        if begun[1] != _QUEUED and not unwritten:
            return None
        refused, unknown = [], []
        for command, answer in zip(commands, _answers(connection, commands), strict=True):
            if isinstance(answer, Exception) and is_closed(answer):
                refused.append(_name(command))
            elif isinstance(answer, Exception) and is_absent(answer):
                unknown.append(_name(command))
            else:
                unwritten = unwritten or _unwritten(answer)
        _answers(connection, [("DISCARD",)])
        return refused, unknown, unwritten
    finally:
        connection.disconnect()
        client.connection_pool.release(connection)


def _unwritten(answer: Any) -> str:
    """Why the server refuses writes of every user; empty if it does not."""
    refused = isinstance(answer, Exception) and classify(answer).code in _OF_STATE
    return outage_reason(answer).partition(".")[0] if refused else ""


def _answers(connection: Any, commands: Sequence[Command]) -> list[Any]:
    connection.send_packed_command(connection.pack_commands(commands))
    answers: list[Any] = []
    for _ in commands:
        try:
            answers.append(connection.read_response())
        except ResponseError as error:
            answers.append(error)
    return answers


def _unscripted(client: Any, key: str | None) -> str | None:
    """Why a script does not run, by its digest if there is a ``key``, as with the client of a cluster; None if it
    does."""
    try:
        ran = client.eval("return cjson.encode({1})", 0)
        if key is not None:
            client.evalsha(client.script_load("return redis.call('exists', KEYS[1])"), 1, key)
    except ResponseError as error:
        return _first_word(error)
    return None if ran == b"[1]" else "it answers something else"


def _name(command: Command) -> str:
    """The command as rules of an ACL name it, with its subcommand."""
    return "|".join(command[:2]) if command[0] in ("client", "cluster", "pubsub", "script") else command[0]


def _first_word(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _replicas(settings: Settings) -> int:
    kind, _, number = settings.durability.partition("=")
    return int(number) if kind == "replicas" else 0
