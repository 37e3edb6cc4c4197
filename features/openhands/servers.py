"""The MCP servers of an agent as OpenHands' client has them, as servers of an ``AgentSpec``: values of headers become
secrets of the conversation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any, Final

from pydantic import SecretStr

from palaver.errors import FieldError
from palaver.late import dataclass
from palaver.schemas.fields import UNFIT_FOR_HEADERS, fits_a_header

_CODE: Final = "unsupported_option"
_WRAPPER: Final = "mcpServers"
_TRANSPORTS: Final = (None, "http", "streamable-http", "streamable_http")
_NAMED: Final = re.compile(r"((?:[A-Za-z][A-Za-z-]{0,30} )?)\$\{([A-Za-z0-9_.-]{1,64})\}")
"""A value that names a secret of the conversation: ``Bearer ${TOKEN}``."""
_LONGEST_NAME: Final = 64


@dataclass(frozen=True, slots=True)
class OpenHandsServers:
    """The servers, as the fields of a spec have them, and the secrets that come with them."""

    servers: Mapping[str, Mapping[str, Any]]
    secrets: Mapping[str, SecretStr] = field(default_factory=dict)


def servers_of(config: Mapping[str, Any]) -> OpenHandsServers:
    """Return the servers of an ``mcp_config`` without faults."""
    secrets: dict[str, SecretStr] = {}
    servers = {name: _server(name, given, secrets) for name, given in config.get(_WRAPPER, config).items()}
    return OpenHandsServers(servers, secrets)


def faults(config: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield a fault for everything in an ``mcp_config`` that is not done here."""
    listed, wrapped = config.get(_WRAPPER, config), f"/{_WRAPPER}" if _WRAPPER in config else ""
    place = f"/agent/mcp_config{wrapped}"
    if not isinstance(listed, dict):
        yield FieldError(place, _CODE, "must be an object: each server by its name")
        return
    for name, given in listed.items():
        yield from _faults(f"{place}/{_short(name)}", given)


def _faults(place: str, given: Any) -> Iterator[FieldError]:
    if not isinstance(given, dict):
        yield FieldError(place, _CODE, "must be an object")
        return
    if "command" in given:
        why = "a command is never started for a request: an operator declares it as [mcp.NAME], for agent.tools"
        yield FieldError(f"{place}/command", _CODE, why)
    elif not isinstance(given.get("url"), str):
        yield FieldError(f"{place}/url", _CODE, "is missing: servers are asked by streamable HTTP")
    if (transport := given.get("transport", given.get("type"))) not in _TRANSPORTS:
        why = f"{_short(str(transport))!r} is not spoken here: give the server's address for streamable HTTP"
        yield FieldError(f"{place}/transport", _CODE, why)
    auth = given.get("auth")
    if auth == "oauth" or not isinstance(auth, str | None):
        why = "nobody is here who could sign in: give a token, as a header Authorization"
        yield FieldError(f"{place}/auth", _CODE, why)
    headers = given.get("headers") or {}
    if not isinstance(headers, dict):
        yield FieldError(f"{place}/headers", _CODE, "must be an object")
        return
    for header, value in headers.items():
        if not isinstance(value, str) or not fits_a_header(value):
            yield FieldError(f"{place}/headers/{_short(header)}", _CODE, UNFIT_FOR_HEADERS)


def _server(name: str, given: Mapping[str, Any], secrets: dict[str, SecretStr]) -> dict[str, Any]:
    values: dict[str, str] = dict(given.get("headers") or {})
    if auth := given.get("auth"):
        values = {**{header: value for header, value in values.items() if header.lower() != "authorization"},
                  "Authorization": f"Bearer {auth}"}  # fmt: skip
    headers: dict[str, dict[str, str]] = {}
    for number, (header, value) in enumerate(values.items(), 1):
        if named := _NAMED.fullmatch(value):
            headers[header] = {"prefix": named[1], "secret": named[2]}
            continue
        secret = f"mcp.{re.sub(r'[^A-Za-z0-9_.-]', '_', name)[:32]}.{number}"
        secrets[secret] = SecretStr(value)
        headers[header] = {"secret": secret}
    return {"url": given["url"], "headers": headers}


def _short(name: str) -> str:
    return name[:_LONGEST_NAME]
