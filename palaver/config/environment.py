"""Settings that are read from variables of the environment."""

from __future__ import annotations

import os
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict


class FromEnvironment(BaseModel):
    """Settings of a process: ``class Mine(FromEnvironment, prefix="PALAVER_MINE_")``.

    A field is read from the variable of the prefix and its name, whatever letters of that are capitals; one that is
    empty is as good as none. What is no text, number or switch is made of text by a validator, or is pydantic's `Json`.
    Arguments win over the environment.
    """

    # hide_input_in_errors: what does not fit may be a key.
    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, arbitrary_types_allowed=True, hide_input_in_errors=True
    )
    prefix: ClassVar[str] = ""

    def __init_subclass__(cls, prefix: str | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        if prefix is not None:
            cls.prefix = prefix

    def __init__(self, **values: Any) -> None:
        super().__init__(**{**self.given(), **values})

    @classmethod
    def given(cls) -> dict[str, str]:
        """Return the texts that the environment has for fields."""
        found = {name.upper(): value for name, value in os.environ.items() if value}
        fields = {name: f"{cls.prefix}{name}".upper() for name in cls.model_fields}
        return {name: found[variable] for name, variable in fields.items() if variable in found}
