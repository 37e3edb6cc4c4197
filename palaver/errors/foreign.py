"""The exceptions of libraries, classified one by one.

They are recognised by the top-level package and the name of a class on their method resolution order, so that
nothing is imported: the wheel works without redis or aiohttp. An unclassified subclass inherits its nearest
classified base, and the tests fail for every exported class that is not classified by its own name.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping
from typing import Final

from palaver.errors.vocabulary import ErrorClass, Source, UserAction
from palaver.late import dataclass

_C = ErrorClass


@dataclass(frozen=True, slots=True)
class Classification:
    """The facts about an exception before its circumstances."""

    error_class: ErrorClass
    code: str
    sentence: str | None = None
    retryable: bool | None = None
    user_action: UserAction | None = None
    source: Source | None = None
    vague: bool = False
    """A wrapper: what caused it may say more."""


def vague(error_class: ErrorClass, code: str) -> Classification:
    """Return the facts about a wrapper, whose cause may say more."""
    return Classification(error_class, code, vague=True)


def unforeseen(code: str) -> Classification:
    """Return the facts about a mistake of the code that uses the library."""
    return Classification(_C.INTERNAL, code)


_CONNECTION: Final = vague(_C.CONNECTION, "connection")
_TIMEOUT: Final = vague(_C.TIMEOUT, "timeout")
CONNECT_TIMEOUT: Final = Classification(_C.TIMEOUT, "connect_timeout", "No connection came about in time.", vague=True)
READ_TIMEOUT: Final = Classification(_C.TIMEOUT, "read_timeout", "The answer stopped coming in time.")
REFUSED: Final = Classification(_C.CONNECTION, "connect_refused", "The connection was refused.")
_RESET: Final = Classification(_C.CONNECTION, "connection_reset", "The connection was reset.")
DNS: Final = Classification(_C.CONNECTION, "dns", "The host name could not be resolved.", user_action="settings")
_TLS: Final = Classification(_C.CONNECTION, "tls", "The TLS handshake failed.", user_action="settings")
_CERTIFICATE: Final = Classification(
    _C.CONNECTION, "tls_certificate", "The certificate could not be verified.", user_action="settings"
)
DISCONNECTED: Final = Classification(_C.CONNECTION, "server_disconnected", "The server closed the connection.")
TRUNCATED: Final = Classification(_C.CONNECTION, "stream_truncated", "The answer broke off before its end.")
PROXY: Final = Classification(_C.CONNECTION, "proxy", "The proxy failed.", user_action="settings")
BAD_RESPONSE: Final = Classification(_C.PROVIDER_ERROR, "bad_model_response", "The answer could not be read.")
BAD_ADDRESS: Final = Classification(
    _C.INVALID_REQUEST, "invalid_url", "The address cannot be used.", user_action="settings"
)
REDIRECTS: Final = Classification(
    _C.INVALID_REQUEST, "too_many_redirects", "The address redirects elsewhere.", user_action="settings"
)
HTTP_ERROR: Final = Classification(_C.PROVIDER_ERROR, "http_error")
"""An exception that carries an answer: the answer is classified."""
BAD_HTTP: Final = Classification(_C.CONNECTION, "protocol_error", "The server broke the HTTP protocol.")


def _store(code: str, sentence: str) -> Classification:
    return Classification(_C.STORAGE, code, sentence, source="store")


_STORE_AWAY: Final = _store("store_unavailable", "The store cannot be reached.")
_STORE_FULL: Final = _store("store_out_of_memory", "The store takes no writes: Redis is out of memory.")
_STORE_LOADING: Final = _store("store_loading", "The store is loading its data.")
_STORE_READ_ONLY: Final = _store("store_read_only", "The store takes no writes: this Redis is a replica.")
_STORE_DISK: Final = _store("store_read_only", "The store takes no writes: Redis cannot write to its disk.")
_STORE_ALONE: Final = _store("store_read_only", "The store takes no writes: Redis has too few replicas.")
_STORE_MOVING: Final = _store("store_failing_over", "The store is failing over.")
_STORE_ODD: Final = _store("store_error", "The store failed to answer.")
_STORE_REFUSES: Final = Classification(
    _C.STORAGE,
    "store_access",
    "The store refuses our credentials.",
    retryable=False,
    user_action="settings",
    source="store",
)
_STORE_MISUSED: Final = Classification(_C.INTERNAL, "store_misused", source="store")

FINDINGS: Final[Mapping[str, Mapping[str, Classification]]] = {
    "httpx": {
        "HTTPError": _CONNECTION,
        "RequestError": _CONNECTION,
        "TransportError": _CONNECTION,
        "NetworkError": _CONNECTION,
        "ConnectError": vague(_C.CONNECTION, "connect_error"),
        "ReadError": vague(_C.CONNECTION, "read_error"),
        "WriteError": vague(_C.CONNECTION, "write_error"),
        "CloseError": vague(_C.CONNECTION, "close_error"),
        "TimeoutException": _TIMEOUT,
        "ConnectTimeout": CONNECT_TIMEOUT,
        "ReadTimeout": READ_TIMEOUT,
        "WriteTimeout": Classification(_C.TIMEOUT, "write_timeout", "The request could not be sent in time."),
        "PoolTimeout": Classification(_C.TIMEOUT, "pool_timeout", "No connection of the pool came free in time."),
        "ProxyError": PROXY,
        "ProtocolError": BAD_HTTP,
        "RemoteProtocolError": BAD_HTTP,
        "LocalProtocolError": unforeseen("local_protocol_error"),
        "UnsupportedProtocol": BAD_ADDRESS,
        "InvalidURL": BAD_ADDRESS,
        "TooManyRedirects": REDIRECTS,
        "DecodingError": BAD_RESPONSE,
        "HTTPStatusError": HTTP_ERROR,
        "CookieConflict": unforeseen("cookie_conflict"),
        "StreamError": unforeseen("stream_misused"),
        "StreamConsumed": unforeseen("stream_misused"),
        "StreamClosed": unforeseen("stream_misused"),
        "ResponseNotRead": unforeseen("stream_misused"),
        "RequestNotRead": unforeseen("stream_misused"),
    },
    "aiohttp": {
        "ClientError": _CONNECTION,
        "ClientConnectionError": _CONNECTION,
        "ClientOSError": _CONNECTION,
        "ClientConnectorError": vague(_C.CONNECTION, "connect_error"),
        "ClientConnectorDNSError": DNS,
        "ClientConnectorSSLError": _TLS,
        "ClientSSLError": _TLS,
        "ClientConnectorCertificateError": _CERTIFICATE,
        "ServerFingerprintMismatch": _CERTIFICATE,
        "ClientConnectionResetError": _RESET,
        "ClientPayloadError": TRUNCATED,
        "ClientProxyConnectionError": PROXY,
        "ClientHttpProxyError": PROXY,
        "ServerConnectionError": _CONNECTION,
        "ServerDisconnectedError": DISCONNECTED,
        "ServerTimeoutError": _TIMEOUT,
        "ConnectionTimeoutError": CONNECT_TIMEOUT,
        "SocketTimeoutError": READ_TIMEOUT,
        "UploadAbortedError": vague(_C.CONNECTION, "write_error"),
        "ClientResponseError": HTTP_ERROR,
        "ContentTypeError": BAD_RESPONSE,
        "WSServerHandshakeError": HTTP_ERROR,
        "TooManyRedirects": REDIRECTS,
        "RedirectClientError": REDIRECTS,
        "InvalidURL": BAD_ADDRESS,
        "InvalidUrlClientError": BAD_ADDRESS,
        "InvalidUrlRedirectClientError": BAD_ADDRESS,
        "NonHttpUrlClientError": BAD_ADDRESS,
        "NonHttpUrlRedirectClientError": BAD_ADDRESS,
        "HttpProcessingError": BAD_HTTP,
        "EofStream": TRUNCATED,
        "WebSocketError": BAD_HTTP,
        "WSMessageTypeError": unforeseen("websocket_misused"),
        "BadContentDispositionHeader": unforeseen("warning"),
        "BadContentDispositionParam": unforeseen("warning"),
    },
    "redis": {
        "RedisError": _STORE_ODD,
        "ConnectionError": _STORE_AWAY,
        "TimeoutError": _store("store_timeout", "The store did not answer in time."),
        "MaxConnectionsError": _store("store_pool_exhausted", "All connections to the store are in use."),
        "MasterNotFoundError": _STORE_MOVING,
        "SlaveNotFoundError": _STORE_MOVING,
        "BusyLoadingError": _STORE_LOADING,
        "OutOfMemoryError": _STORE_FULL,
        "ReadOnlyError": _STORE_READ_ONLY,
        "ClusterError": _STORE_MOVING,
        "ClusterDownError": _STORE_MOVING,
        "MasterDownError": _STORE_MOVING,
        "TryAgainError": _STORE_MOVING,
        "AskError": _STORE_MOVING,
        "MovedError": _STORE_MOVING,
        "SlotNotCoveredError": _STORE_MOVING,
        "RedisClusterException": _STORE_MOVING,
        # A restarted server has forgotten its scripts; the next attempt loads them.
        "NoScriptError": _store("store_script_missing", "The store has forgotten a script."),
        "WatchError": _store("store_contended", "Another client wrote at the same time."),
        # The server refused a command of the transaction, which it does when it is full or read-only.
        "ExecAbortError": _store("store_transaction_refused", "The store refused a transaction."),
        "InvalidResponse": _STORE_ODD,
        "AuthenticationError": _STORE_REFUSES,
        "AuthorizationError": _STORE_REFUSES,
        "ExternalAuthProviderError": _STORE_AWAY,
        "NoPermissionError": _STORE_REFUSES,
        "AuthenticationWrongNumberOfArgsError": _STORE_REFUSES,
        "ResponseError": _STORE_MISUSED,
        "ModuleError": _STORE_MISUSED,
        "NoSuchFieldsetError": _STORE_MISUSED,
        "DataError": _STORE_MISUSED,
        "PubSubError": _STORE_MISUSED,
        "LockError": _STORE_MISUSED,
        "LockNotOwnedError": _STORE_MISUSED,
        "ClusterCrossSlotError": _STORE_MISUSED,
        "CrossSlotTransactionError": _STORE_MISUSED,
        "InvalidPipelineStack": _STORE_MISUSED,
        "IncorrectPolicyType": _STORE_MISUSED,
        "ChildDeadlockedError": _STORE_MISUSED,
    },
    "kombu": {"OperationalError": _store("broker_unavailable", "The broker cannot be reached.")},
    "billiard": {
        "SoftTimeLimitExceeded": Classification(_C.TIMEOUT, "soft_time_limit", source="engine"),
        "WorkerLostError": Classification(_C.WORKER_LOST, "worker_lost"),
    },
    "asyncio": {"IncompleteReadError": TRUNCATED},
    "pydantic_core": {"ValidationError": unforeseen("validation")},
    "json": {"JSONDecodeError": unforeseen("json")},
    "socket": {"gaierror": DNS, "herror": DNS},
    "ssl": {
        "SSLError": _TLS,
        "SSLCertVerificationError": _CERTIFICATE,
        "SSLEOFError": DISCONNECTED,
        "SSLZeroReturnError": DISCONNECTED,
    },
    "builtins": {
        "ConnectionRefusedError": REFUSED,
        "ConnectionResetError": _RESET,
        "ConnectionAbortedError": _RESET,
        "BrokenPipeError": _RESET,
        "ConnectionError": _CONNECTION,
        "TimeoutError": Classification(_C.TIMEOUT, "timeout"),
        "MemoryError": unforeseen("out_of_memory"),
        "RecursionError": unforeseen("recursion"),
        "UnicodeDecodeError": unforeseen("encoding"),
    },
}

_EXHAUSTED: Final = Classification(
    _C.CONNECTION, "out_of_sockets", "This machine has no sockets left.", user_action="wait"
)
_UNREACHABLE: Final = Classification(_C.CONNECTION, "unreachable", "The host cannot be reached.")
_ERRNOS: Final[Mapping[int, Classification]] = {
    errno.ECONNREFUSED: REFUSED,
    errno.ECONNRESET: _RESET,
    errno.ECONNABORTED: _RESET,
    errno.EPIPE: _RESET,
    errno.ETIMEDOUT: Classification(_C.TIMEOUT, "connect_timeout", "No connection came about in time."),
    **dict.fromkeys((errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN), _UNREACHABLE),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.EADDRNOTAVAIL), _EXHAUSTED),
}

_REDIS_WORDS: Final[Mapping[str, Classification]] = {
    "OOM": _STORE_FULL,
    "LOADING": _STORE_LOADING,
    "BUSY": _store("store_busy", "The store is busy with a script."),
    "MISCONF": _STORE_DISK,
    "READONLY": _STORE_READ_ONLY,
    "NOREPLICAS": _STORE_ALONE,
    "MASTERDOWN": _STORE_MOVING,
    "CLUSTERDOWN": _STORE_MOVING,
    "TRYAGAIN": _STORE_MOVING,
}
"""The first word of a server's error."""
_REDIS_WORD: Final = re.compile(rf"(?:^|-)({'|'.join(_REDIS_WORDS)})\b")  # a Lua script passes errors on as -WORD
_OF_PIPELINE: Final = " of pipeline caused error: "
"""The text that redis-py puts before the error of a command in a pipeline, behind the command; the error follows in
quotes."""


def find(error: BaseException) -> Classification | None:
    """Return the facts about an exception by its class and errno; None if it is not classified.

    Causes are not followed.
    """
    if isinstance(error, UnicodeError) and "idna" in text_of(error):
        return BAD_ADDRESS  # No host can have this name.
    classified = (
        FINDINGS.get(kind.__module__.partition(".")[0], {}).get(kind.__name__) for kind in type(error).__mro__
    )
    nearest = next((each for each in classified if each), None)
    if isinstance(error, OSError) and error.errno is not None and (nearest is None or nearest.vague):
        return _ERRNOS.get(error.errno, nearest)
    if nearest is _STORE_MISUSED:
        message = text_of(error).rpartition(_OF_PIPELINE)[2].lstrip("('\"")
        word = _REDIS_WORD.search(message[:256])
        return _REDIS_WORDS[word.group(1)] if word else nearest
    if nearest is BAD_HTTP and "peer closed" in text_of(error):
        return TRUNCATED
    if nearest is BAD_HTTP and "disconnected" in text_of(error).lower():
        return DISCONNECTED
    return nearest


def text_of(error: BaseException) -> str:
    """``str(error)``, or nothing if even that raises."""
    try:
        return str(error)
    except Exception:
        return ""
