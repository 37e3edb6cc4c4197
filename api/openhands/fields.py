"""The base of what clients send: fields that are not known here are left out, as later clients have more of them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator


class Known(BaseModel):
    """What is known of an object. docs/reference/openhands.md lists what is ignored."""

    model_config = ConfigDict(frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _leave_out_the_rest(cls, value: Any) -> Any:
        # Bodies are read with all unknown fields forbidden, whatever a model says.
        if not isinstance(value, dict):
            return value
        names = {field.alias or name for name, field in cls.model_fields.items()}
        return {name: given for name, given in value.items() if name in names}
