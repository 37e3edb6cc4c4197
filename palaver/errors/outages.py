"""Signs of an outage in failures: of a provider, or of one of its models."""

from __future__ import annotations

from typing import Final

from palaver.errors.failure import Failure
from palaver.errors.vocabulary import ErrorClass
from palaver.late import dataclass

_NOT_REACHED: Final = frozenset(
    ["connect_refused", "dns", "tls", "tls_certificate", "proxy", "connect_timeout", "connect_error", "unreachable"]
)
"""No request was sent: its content has nothing to do with it."""
_BROKEN_OFF: Final = frozenset(["connection", "connection_reset", "server_disconnected", "read_error", "write_error"])
"""Without any answer: a server that goes down does that, and one that a request has brought down."""
_SERVICE_DOWN: Final = frozenset((502, 503, 504, 529, *range(520, 528), 530))
"""They speak of the service, other 5xx may be about the request. RFC 9110: a gateway got no answer, a service is not
available; Anthropic: overloaded; Cloudflare: the server behind it is away."""
_OF_THE_SERVER: Final = frozenset((ErrorClass.PROVIDER_ERROR, ErrorClass.RATE_LIMITED))
"""Classes of a 5xx that is not about the prompt: 529 is a rate limit as well."""


@dataclass(frozen=True, slots=True)
class OutageSign:
    """A failure as in an outage."""

    of_model: bool
    """The provider was reached: it may be about the model that was asked for."""
    of_request: bool
    """It may be about the one request: however often that fails, it shows no more."""


def sign_of_outage(failure: Failure) -> OutageSign | None:
    """Return the sign of an outage in a failed model call; None if it does not look like one."""
    if failure.provider is None:
        return None
    if failure.code == "first_token_timeout":
        return OutageSign(of_model=True, of_request=True)
    status = failure.provider.http_status
    if status is None and failure.code in _NOT_REACHED | _BROKEN_OFF:
        return OutageSign(of_model=False, of_request=failure.code in _BROKEN_OFF)
    if status is not None and status >= 500 and failure.error_class in _OF_THE_SERVER:
        return OutageSign(of_model=True, of_request=status not in _SERVICE_DOWN)
    return None
