"""The parts of tables that several kinds of sources have."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from palaver.config.secret_files import secret_of
from palaver.errors import ConfigurationError, ToolError
from palaver.schemas import json_schemas
from palaver.schemas.fields import UNFIT_FOR_HEADERS, AtMost, SecretName, Strict, fits_a_header
from palaver.schemas.json_schemas import Unfit
from palaver.tools import ToolContext, ToolDeclaration
from palaver.vocabulary.limits import limit_of

Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
"""The name of an environment variable."""
Timeout = Annotated[float, Field(gt=0, le=limit_of("tool_timeout"))]
"""Seconds that a call may take."""
MaxResult = Annotated[int, Field(ge=limit_of("tool_result_least"), le=limit_of("tool_result"))]
"""Characters of a result that a model sees at most."""


def required(variable: Variable) -> str:
    """Return what an environment variable holds, or its file.

    Raises:
        ConfigurationError: it is not set.
    """
    value = secret_of(variable)
    if value is None:
        raise ConfigurationError(f"{variable} is not set, or hidden from tools")
    return value


def required_for_header(variable: Variable) -> str:
    """Return the same for a header.

    Raises:
        ConfigurationError: it is not set, or no header can carry it.
    """
    value = required(variable)
    if not fits_a_header(value):
        raise ConfigurationError(f"{variable}: {UNFIT_FOR_HEADERS}")
    return value


class HeaderFromSecret(Strict):
    """A header whose value is a secret: of the worker's environment, or of the conversation."""

    env: Variable | None = None
    """The name of an environment variable; with ``_FILE`` behind it, one that names a file."""
    secret: SecretName | None = None
    """The name of a secret of the conversation."""
    prefix: Annotated[str, StringConstraints(pattern=r"^[ -~]*$", max_length=100)] = ""
    """In front of it: ``"Bearer "``."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.env is None) == (self.secret is None):
            raise ValueError("has either env, the name of an environment variable, or secret, one of the conversation")
        return self

    def of_environment(self) -> str | None:
        """The secret in the environment; None if it is one of the conversation.

        Raises:
            ConfigurationError: it is not set, or no header can carry it.
        """
        return None if self.env is None else required_for_header(self.env)

    def of_conversation(self, context: ToolContext) -> str:
        """The secret of the conversation.

        Raises:
            ToolError: it has none, or no header can carry it.
        """
        assert self.secret is not None  # there is one of the two
        value = context.secret(self.secret)
        if not fits_a_header(value):
            raise ToolError(f"the conversation's secret {self.secret!r} {UNFIT_FOR_HEADERS}")
        return value


class ToolTable(Strict):
    """The table of a tool that a file declares: the part that each has."""

    description: Annotated[str, AtMost("tool_description")] = ""
    parameters: dict[str, Any] = Field(default={})
    """JSON schema of the arguments, which are an object."""
    idempotent: bool | None = None
    """Calling it twice is as good as once. None: the kind of the source decides."""
    risky: bool = False
    """Its calls wait for an approval."""
    timeout: Timeout | None = None
    """None: that of the source."""
    max_result: MaxResult | None = None
    """None: that of the source."""

    @field_validator("parameters")
    @classmethod
    def _an_object(cls, schema: dict[str, Any]) -> dict[str, Any]:
        """Raises ValueError if it is no schema of an object, or cannot be held to."""
        if schema.get("type", "object") != "object" or not isinstance(schema.get("properties", {}), dict):
            raise ValueError('must be the JSON schema of an object: type = "object", and its properties')
        try:
            json_schemas.require_fit(schema)
        except Unfit as error:
            raise ValueError(str(error)) from None
        return schema

    def schema_with(self, required: tuple[str, ...] = ()) -> dict[str, Any]:
        """The whole JSON schema: of an object without other properties, unless it says otherwise, in which these are
        required. One of them that it does not describe is a text."""
        properties = {**{name: {"type": "string"} for name in required}, **self.parameters.get("properties", {})}
        needed = list(dict.fromkeys((*self.parameters.get("required", ()), *required)))
        whole = {"type": "object", "additionalProperties": False, **self.parameters, "properties": properties}
        return {**whole, "required": needed} if needed else whole

    def declared(
        self, name: str, schema: dict[str, Any], *, idempotent: bool, timeout: float, max_result: int | None
    ) -> ToolDeclaration:
        """Its declaration; the last three are for what the table leaves open."""
        return ToolDeclaration(
            name=name,
            description=self.description,
            parameters=schema,
            idempotent=idempotent if self.idempotent is None else self.idempotent,
            risky=self.risky,
            timeout=timeout if self.timeout is None else self.timeout,
            max_result=max_result if self.max_result is None else self.max_result,
        )
