"""Connections of a thread to whichever server is the primary: kombu's, and those of the look before all else."""

from __future__ import annotations

from typing import Any

from redis._parsers.hiredis import _HiredisParser
from redis.backoff import NoBackoff
from redis.connection import Connection, ConnectionPool
from redis.exceptions import AuthenticationError, ConnectionError, RedisError, ResponseError, TimeoutError
from redis.retry import Retry

from palaver.config.sentinels import Sentinels
from palaver.config.server_lists import HostPort
from palaver.store.redis.sentinel.discovery import (
    QUESTION,
    ROLE,
    AskingOrder,
    AskSentinel,
    DemotedError,
    Outcome,
    TryServer,
    options_of,
    primary_in,
    primary_search,
    require_primary,
)
from palaver.store.redis.tls import ThreadTlsConnection


def followed(sentinels: Sentinels) -> dict[str, Any]:
    """Return the options with which connections of redis-py's follow the primary; its login is not among them."""
    return {
        "connection_class": _ThreadSSLConnection if sentinels.tls else _ThreadConnection,
        "sentinels": sentinels,
        "order": AskingOrder(sentinels),
    }


def pool(sentinels: Sentinels, **options: Any) -> ConnectionPool:
    """Return a pool of connections to the primary."""
    login = sentinels.login.options() if sentinels.login else {}
    return ConnectionPool(**followed(sentinels), db=sentinels.db, **login, **dict(sentinels.tls), **options)


def ask(sentinels: Sentinels, place: HostPort, seconds: float, *commands: tuple[str, ...]) -> list[Any]:
    """Return the answers of one Sentinel to commands, errors to single ones among them. It has ``seconds`` to connect,
    and again for each answer.

    Raises what Redis raises where there is no connection, or no login.
    """
    kind: Any = ThreadTlsConnection if sentinels.tls else Connection
    connection: Any = kind(retry=Retry(NoBackoff(), 0), **options_of(sentinels, place, seconds))
    try:
        connection.connect()
        return [_answer(connection, command) for command in commands]
    finally:
        connection.disconnect()


def _answer(connection: Any, command: tuple[str, ...]) -> Any:
    connection.send_command(*command)
    try:
        return connection.read_response()
    except ResponseError as error:
        return error


class _ThreadParser(_HiredisParser):
    EXCEPTION_CLASSES: dict[str, Any] = {**_HiredisParser.EXCEPTION_CLASSES, "READONLY": DemotedError}  # noqa: RUF012


class _ThreadConnection(Connection):
    """A connection to the primary, as long as that is one. It notices no announcement: its user asks often
    whether the server is there."""

    def __init__(self, *, sentinels: Sentinels, order: AskingOrder, **options: Any) -> None:
        self._sentinels, self._order = sentinels, order
        super().__init__(**options | {"parser_class": _ThreadParser})  # type: ignore[no-untyped-call]

    def connect_check_health(self, check_health: bool = True, retry_socket_connect: bool = True) -> None:
        """Connect to the primary, whichever server that is.

        Raises what Redis raises; ConnectionError too if no Sentinel knows one.
        """
        if self._sock:
            return
        search, came = primary_search(self._sentinels, self._order), None
        while True:
            match search.send(came):
                case AskSentinel(sentinel, seconds):
                    came = self._ask(sentinel, seconds)
                case TryServer(server):
                    came = self._fault(server)
                    if came is None:
                        return

    def _ask(self, sentinel: HostPort, seconds: float) -> Outcome:
        try:
            (answer,) = ask(self._sentinels, sentinel, seconds, ("SENTINEL", QUESTION, self._sentinels.service))
            return answer if isinstance(answer, RedisError) else primary_in(answer)
        except (RedisError, OSError) as error:
            return error

    def _fault(self, server: HostPort) -> Exception | None:
        """Connect to a server; return why that is not the primary, if it is not. A login that it refuses is raised."""
        self.host, self.port = server.host, server.port
        try:
            super().connect_check_health(retry_socket_connect=False)
        except AuthenticationError:
            raise
        except (ConnectionError, TimeoutError) as error:
            return error
        return None

    def on_connect_check_health(self, check_health: bool = True) -> None:
        """Log in, and see that it is the primary."""
        super().on_connect_check_health(check_health)
        self.send_command(ROLE, check_health=False)  # type: ignore[no-untyped-call]
        require_primary(self.read_response())


class _ThreadSSLConnection(_ThreadConnection, ThreadTlsConnection):
    """The same, with TLS."""
