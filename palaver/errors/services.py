"""The exceptions of libraries with which tools call services, beside those of ``foreign.py``; and those that say that
nothing was sent.

As there, classes are recognised by names, and nothing is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from palaver.errors.foreign import (
    BAD_ADDRESS,
    BAD_HTTP,
    BAD_RESPONSE,
    CONNECT_TIMEOUT,
    DISCONNECTED,
    DNS,
    HTTP_ERROR,
    PROXY,
    READ_TIMEOUT,
    REDIRECTS,
    REFUSED,
    TRUNCATED,
    Classification,
    find,
    text_of,
    unforeseen,
    vague,
)
from palaver.errors.vocabulary import ErrorClass

_C = ErrorClass

_CONNECTION: Final = vague(_C.CONNECTION, "connection")
_TLS: Final = vague(_C.CONNECTION, "tls")
_TIMEOUT: Final = Classification(_C.TIMEOUT, "timeout")
_POOL: Final = Classification(_C.TIMEOUT, "pool_timeout")
_DATABASE: Final = Classification(_C.PROVIDER_ERROR, "database_error")
_DATABASE_GONE: Final = Classification(_C.CONNECTION, "connection")

_CLASSIFICATIONS: Final[Mapping[str, Mapping[str, Classification]]] = {
    "requests": {
        "RequestException": _CONNECTION,
        "ConnectionError": _CONNECTION,
        "ConnectTimeout": CONNECT_TIMEOUT,
        "Timeout": _TIMEOUT,
        "ReadTimeout": READ_TIMEOUT,
        "SSLError": _TLS,
        "ProxyError": PROXY,
        "HTTPError": HTTP_ERROR,
        "ChunkedEncodingError": TRUNCATED,
        "ContentDecodingError": BAD_RESPONSE,
        "InvalidJSONError": unforeseen("json"),
        "TooManyRedirects": REDIRECTS,
        "RetryError": _CONNECTION,
        "MissingSchema": BAD_ADDRESS,
        "InvalidSchema": BAD_ADDRESS,
        "InvalidURL": BAD_ADDRESS,
        "InvalidHeader": unforeseen("header"),
        "StreamConsumedError": unforeseen("stream_misused"),
    },
    "urllib3": {
        "HTTPError": _CONNECTION,
        "MaxRetryError": _CONNECTION,
        "NewConnectionError": vague(_C.CONNECTION, "connect_error"),
        "NameResolutionError": DNS,
        "ConnectTimeoutError": CONNECT_TIMEOUT,
        "ReadTimeoutError": READ_TIMEOUT,
        "TimeoutError": _TIMEOUT,
        "ProtocolError": _CONNECTION,
        "IncompleteRead": TRUNCATED,
        "SSLError": _TLS,
        "ProxyError": PROXY,
        "DecodeError": BAD_RESPONSE,
        "EmptyPoolError": _POOL,
        "LocationValueError": BAD_ADDRESS,
    },
    "urllib": {"URLError": _CONNECTION, "HTTPError": HTTP_ERROR, "ContentTooShortError": TRUNCATED},
    "http": {"HTTPException": BAD_HTTP, "RemoteDisconnected": DISCONNECTED, "IncompleteRead": TRUNCATED},
    "sqlalchemy": {
        "DBAPIError": unforeseen("database_error"),
        "OperationalError": _DATABASE,
        "InternalError": _DATABASE,
        "InterfaceError": _DATABASE_GONE,
        "DisconnectionError": _DATABASE_GONE,
        "TimeoutError": _POOL,
    },
    "subprocess": {"TimeoutExpired": _TIMEOUT},
}

_GRPC: Final[Mapping[str, Classification]] = {
    "UNAVAILABLE": Classification(_C.CONNECTION, "unavailable"),
    "DEADLINE_EXCEEDED": _TIMEOUT,
    "RESOURCE_EXHAUSTED": Classification(_C.RATE_LIMITED, "resource_exhausted"),
    "UNAUTHENTICATED": Classification(_C.AUTHENTICATION, "unauthenticated"),
    "PERMISSION_DENIED": Classification(_C.PERMISSION, "permission_denied"),
    "NOT_FOUND": Classification(_C.NOT_FOUND, "not_found"),
    "UNIMPLEMENTED": Classification(_C.NOT_FOUND, "unimplemented"),
    **{
        name: Classification(_C.INVALID_REQUEST, name.lower())
        for name in ("INVALID_ARGUMENT", "ALREADY_EXISTS", "FAILED_PRECONDITION", "OUT_OF_RANGE")
    },
    **{
        name: Classification(_C.PROVIDER_ERROR, name.lower())
        for name in ("ABORTED", "DATA_LOSS", "INTERNAL", "UNKNOWN")
    },
}
"""By the name of the status."""
_NO_CHANNEL: Final = "failed to connect to all addresses"
"""gRPC's words for a call that found no connection."""

_UNSENT: Final[Mapping[str, frozenset[str]]] = {
    "httpx": frozenset(("ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError", "UnsupportedProtocol")),
    "aiohttp": frozenset(
        (
            "ClientConnectorError",
            "ClientHttpProxyError",
            "ConnectionTimeoutError",
            "ServerFingerprintMismatch",
        )
    ),
    "requests": frozenset(("ConnectTimeout", "MissingSchema", "InvalidSchema", "InvalidURL")),
    "urllib3": frozenset(("NewConnectionError", "NameResolutionError", "ConnectTimeoutError", "EmptyPoolError")),
    "sqlalchemy": frozenset(("TimeoutError",)),
}
"""Raised before a request is sent: no connection came about, or none of the pool came free. Not a word of redis-py is
among them: it sends a command again by itself, so the attempt that failed last need not be the only one."""
_UNDECIDED: Final[Mapping[str, frozenset[str]]] = {
    "requests": frozenset(("ConnectionError", "ProxyError", "SSLError")),
    "urllib3": frozenset(("MaxRetryError", "ProxyError", "SSLError")),
    "urllib": frozenset(("URLError",)),
}
"""Wrappers: what they wrap says whether anything was sent."""
_UNSENT_BELOW: Final = frozenset(("ConnectionRefusedError", "gaierror", "SSLCertVerificationError"))
"""Of the standard library: what a connection can fail with only as it is made."""
_BELOW: Final = frozenset(("builtins", "socket", "ssl", "http"))
_ABOVE: Final = frozenset(("httpx", "aiohttp", "requests", "urllib3", "urllib", "redis", "sqlalchemy", "grpc"))


def find_in_tool(error: BaseException) -> Classification | None:
    """Return the facts about an exception of a tool's by its class; None if it is not classified. Causes are not
    followed."""
    if _is(error, "grpc", ("RpcError",)):
        return _GRPC.get(_grpc_status(error))
    if _is(error, "sqlalchemy", ("DBAPIError",)) and getattr(error, "connection_invalidated", False):
        return _DATABASE_GONE
    for kind in type(error).__mro__:
        found = _CLASSIFICATIONS.get(kind.__module__.partition(".")[0], {}).get(kind.__name__)
        if found is not None:
            return REFUSED if found.code == "connect_error" and "refused" in text_of(error).lower() else found
    return find(error)


def is_unsent(chain: list[BaseException]) -> bool:
    """Tell whether an exception says that nothing was sent: the first of ``chain``, with what caused it behind it, and
    what it was raised amidst.

    Nothing of a library may be among these that speaks of a request that was sent: a tool that tries again by itself,
    and then finds no peer there, has sent one. And an exception that is unknown says nothing, whatever caused it.
    """
    above = [error for error in chain if _package(error) in _ABOVE]
    decided = [error for error in above if _says_unsent(error) or not _is_undecided(error)]
    if decided:
        return chain[0] in above and all(map(_says_unsent, decided))
    below = [error for error in chain if error not in above and _package(error) in _BELOW]
    known = chain[0] in above or chain[0] in below
    return known and bool(below) and all(type(error).__name__ in _UNSENT_BELOW for error in below)


def _says_unsent(error: BaseException) -> bool:
    if _is(error, "grpc", ("RpcError",)):
        details = getattr(error, "details", None)
        return _grpc_status(error) == "UNAVAILABLE" and callable(details) and _NO_CHANNEL in str(details())
    return any(_is(error, package, names) for package, names in _UNSENT.items())


def _is_undecided(error: BaseException) -> bool:
    return any(type(error).__name__ in names and _package(error) == package for package, names in _UNDECIDED.items())


def _grpc_status(error: BaseException) -> str:
    code = getattr(error, "code", None)
    return str(getattr(code(), "name", "")) if callable(code) else ""


def _is(error: BaseException, package: str, names: tuple[str, ...] | frozenset[str]) -> bool:
    return any(kind.__name__ in names and kind.__module__.partition(".")[0] == package for kind in type(error).__mro__)


def _package(error: BaseException) -> str:
    """The package whose exception it is, or the nearest one that it is derived from and that is known here."""
    packages = (kind.__module__.partition(".")[0] for kind in type(error).__mro__)
    return next((package for package in packages if package in _ABOVE), type(error).__module__.partition(".")[0])
