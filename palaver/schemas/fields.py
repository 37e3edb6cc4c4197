"""The building blocks of several models: the strict base, and the names that users choose."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    FieldSerializationInfo,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainSerializer,
    SecretStr,
    StringConstraints,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from palaver.late import dataclass
from palaver.vocabulary.limits import count_exceeded, limit_of

ModelName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}/[^\s\x00-\x1f]{1,200}$")]
"""``provider/name``: the provider is an entry of the providers file, the rest is the provider's own name."""
ToolName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
ToolReference = Annotated[
    str,
    StringConstraints(pattern=r"^([A-Za-z0-9_-]{1,64}|agent:[A-Za-z0-9][A-Za-z0-9_.-]{0,63}(@[1-9][0-9]{0,8})?)$"),
]
"""A tool by its name, or an agent on the server that is to be one: ``agent:researcher``, ``agent:researcher@7``."""
ServerName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
"""The name of what a tenant keeps on the server: an agent, a schedule."""
AgentName = ServerName
"""The name of an agent on the server."""
AgentReference = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}(@[1-9][0-9]{0,8})?$")]
"""An agent on the server by its name, in its newest version or, with ``@version``, in that one."""
Tag = Annotated[str, StringConstraints(pattern=r"^[^\s\x00-\x1f]{1,64}$")]


SecretName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]


class DataModel(BaseModel):
    """The base of models. What checks and writes one is made when the first is checked or written: many processes never
    see most of them."""

    model_config = ConfigDict(defer_build=True)


def is_none(value: object) -> bool:
    """Tell whether there is nothing to say in a field that is left out then."""
    return value is None


class Strict(DataModel):
    """A request body or a part of one."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class AsItCame:
    """An object that is taken as it is: its type says what it is, and it is not checked.

    It was made by a server, perhaps by a newer one, whose word counts.
    """

    @staticmethod
    def __get_pydantic_core_schema__(source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        described = handler(source)
        return core_schema.dict_schema(
            metadata={"pydantic_js_annotation_functions": [lambda _, describe: describe(described)]}
        )


def _hidden(value: SecretStr, info: FieldSerializationInfo) -> str:
    return value.get_secret_value() if info.context is REVEALED else str(value)


REVEALED: Final = object()
"""The context in which a `SecretText` is written as it is: for the one request that brings it to the API."""


def revealed(secrets: Mapping[str, SecretStr | None]) -> dict[str, str | None]:
    """Secrets as they are, by name."""
    return {name: None if value is None else value.get_secret_value() for name, value in secrets.items()}


_KINDS: Final = {"string": "maxLength", "array": "maxItems", "object": "maxProperties"}


@dataclass(frozen=True, slots=True)
class AtMost:
    """A text, list or object that is refused by its length before anything in it is looked at; a list is a tuple then.

    Pydantic's own ``max_length`` looks at all items first, and finds a fault in each.
    """

    limit: str
    """Its name in ``palaver.vocabulary.limits``."""
    items: str = ""
    """The same for a list, where a text may be one and has another limit."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        json_schema = handler(schema)
        for choice in json_schema.get("anyOf", [json_schema]):
            if keyword := _KINDS.get(choice.get("type", "")):
                choice[keyword] = limit_of(self._name(listed=keyword == "maxItems"))
        return json_schema

    def _name(self, *, listed: bool) -> str:
        return (listed and self.items) or self.limit

    def _check(self, value: object) -> object:
        if isinstance(value, list):
            value = tuple(value)
        if isinstance(value, str | tuple | dict):
            name = self._name(listed=isinstance(value, tuple))
            if len(value) > limit_of(name):
                count_exceeded(name)
                kind, what = ("string_too_long", "characters") if isinstance(value, str) else ("too_long", "entries")
                raise PydanticCustomError(
                    kind, "must have at most {most} {what}", {"most": limit_of(name), "what": what}
                )
        return value


Tags = Annotated[tuple[Tag, ...], AtMost("tags")]
Metadata = Annotated[
    dict[Annotated[str, AtMost("metadata_key")], Annotated[str, AtMost("metadata_value")]], AtMost("metadata")
]
SecretText = Annotated[
    SecretStr, Field(min_length=1), AtMost("secret_value"), PlainSerializer(_hidden, when_used="json")
]
"""A text that comes in and is never shown: neither answers nor logs have it."""
_OF_HEADERS: Final = r"^[!-~]([ -~]*[!-~])?$"
UNFIT_FOR_HEADERS: Final = "must be printable ASCII without blanks around it: no header can carry it"


def fits_a_header(text: str) -> bool:
    """Tell whether a request can have ``text`` in a header."""
    return re.fullmatch(_OF_HEADERS, text) is not None


def _for_headers(secret: SecretStr) -> SecretStr:
    if not fits_a_header(secret.get_secret_value()):
        raise ValueError(UNFIT_FOR_HEADERS)
    return secret


HeaderSecret = Annotated[SecretText, AfterValidator(_for_headers), Field(json_schema_extra={"pattern": _OF_HEADERS})]
"""A secret that goes into a header."""
