"""The ``ssl_…`` options of an address: how a server's certificate is verified."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from typing import Any, Final

_CERT_REQS: Final = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


def verification(options: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return the options as redis-py and kombu take them. A certificate is verified unless they say otherwise.

    Raises:
        ValueError: one has a value that it cannot have.
    """
    read: dict[str, Any] = {"ssl_cert_reqs": ssl.CERT_REQUIRED, **dict(options)}
    if "ssl_check_hostname" in read:
        read["ssl_check_hostname"] = read["ssl_check_hostname"].lower() != "false"
    required = read["ssl_cert_reqs"]
    if isinstance(required, str):
        try:
            read["ssl_cert_reqs"] = _CERT_REQS[required.lower().removeprefix("cert_")]
        except KeyError:
            raise ValueError(f"`ssl_cert_reqs` is none, optional or required, not {required!r}") from None
    return read
