"""The tables of services over HTTP.

[http.crm]
base_url = "https://crm.example.com/api"
headers.Authorization = { env = "CRM_TOKEN", prefix = "Bearer " }

[http.crm.tools.find_customer]
path = "/customers/{id}"
description = "Look a customer up."
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from palaver.schemas.fields import UNFIT_FOR_HEADERS, ToolName, fits_a_header
from palaver.schemas.mcp_servers import OF_CONNECTIONS
from palaver.tools import ToolDeclaration
from palaver.vocabulary.addresses import host_and_port, is_ip, never_asked
from workers.sources.services import ServiceTable, at_service
from workers.sources.tables import HeaderFromSecret, MaxResult, Timeout, ToolTable

_PLACE: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SAFE: Final = frozenset({"GET", "HEAD"})
HeaderName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}$")]


class HttpTool(ToolTable, ServiceTable):
    """A request."""

    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] = "GET"
    path: Annotated[str, StringConstraints(pattern=r"^/[!-~]*$", max_length=2000)]
    """Behind the address of the service. An argument stands in it as ``{name}``."""
    send: Literal["query", "json", "form"] | None = None
    """The place of all other arguments. None: in the query of ``GET``, ``HEAD`` and ``DELETE``, in a JSON body
    otherwise."""
    answer: Annotated[str, StringConstraints(pattern=r"^(/[^\s]*)?$", max_length=500)] = ""
    """JSON pointer to the part of a JSON answer that the model gets: ``/data/customer``."""

    @model_validator(mode="after")
    def _well_made(self) -> Self:
        path, _, query = self.path.partition("?")
        if "#" in self.path or "{" in _PLACE.sub("", self.path) or "}" in _PLACE.sub("", self.path):
            raise ValueError("path: has a #, or a brace that is no {argument}")
        if _PLACE.search(query):
            raise ValueError("path: has an argument in its query, where all that are not named go by themselves")
        if any(part in (".", "..") for part in path.split("/")):
            raise ValueError("path: has a part that leads elsewhere")
        if self.method == "HEAD" and (self.sent_in != "query" or self.answer):
            raise ValueError("a HEAD has neither a body nor an answer with one")
        if self.method == "GET" and self.sent_in != "query":
            raise ValueError("a GET has no body: its arguments go into the query")
        return self

    @property
    def places(self) -> tuple[str, ...]:
        """The arguments in the path."""
        return tuple(dict.fromkeys(_PLACE.findall(self.path)))

    def filled(self, segments: Mapping[str, str]) -> str:
        """The path with these texts in place of the arguments."""
        return _PLACE.sub(lambda match: segments[match[1]], self.path)

    @property
    def sent_in(self) -> Literal["query", "json", "form"]:
        """The place of arguments that are not in the path."""
        return self.send or ("query" if self.method in ("GET", "HEAD", "DELETE") else "json")

    def declaration(self, name: str, source: str, section: HttpSection) -> ToolDeclaration:
        """It as a tool of the ``section`` that is named ``source``."""
        schema = self.schema_with(self.places)
        declared = self.declared(
            name,
            schema,
            idempotent=self.method in _SAFE,
            timeout=section.timeout,
            max_result=section.max_result,
        )
        return at_service(declared, self, section, f"http.{source}")


class HttpSection(ServiceTable):
    """A table ``[http.NAME]``."""

    base_url: Annotated[str, StringConstraints(pattern=r"^https?://[^\s/?#@]+(/[^\s?#]*)?$", max_length=2000)]
    private: bool = False
    """True if its name may lead into a private network though it looks like one of the public network."""
    headers: Mapping[HeaderName, str | HeaderFromSecret] = Field(default={}, max_length=32)
    idempotency_header: HeaderName | Literal[""] = "Idempotency-Key"
    """The header with the key of the call; empty for none."""
    timeout: Timeout = 30.0
    max_result: MaxResult | None = None
    connect_timeout: Annotated[float, Field(gt=0, le=60)] = 10.0
    tools: Annotated[Mapping[ToolName, HttpTool], Field(min_length=1)]

    @field_validator("base_url")
    @classmethod
    def _may_be_asked(cls, url: str) -> str:
        """Raises ValueError if nothing is ever asked there."""
        host, _ = host_and_port(url)
        if is_ip(host) and never_asked(host, loopback=True):
            raise ValueError("nothing is asked at this address: clouds keep keys there, or it is none of a machine")
        return url

    @field_validator("headers")
    @classmethod
    def _can_be_sent(cls, headers: Mapping[str, str | HeaderFromSecret]) -> Mapping[str, str | HeaderFromSecret]:
        """Raises ValueError for a header that is not for the file to say, or cannot be sent."""
        for name, value in headers.items():
            if name.lower() in OF_CONNECTIONS:
                raise ValueError(f"{name} is said by how the request is sent")
            if isinstance(value, str) and not fits_a_header(value):
                raise ValueError(f"{name}: {UNFIT_FOR_HEADERS}")
        return headers
