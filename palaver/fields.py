"""What several models are made of: the strict base, and the names that users give."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints

ModelName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}/[^\s\x00-\x1f]{1,200}$")]
"""``provider/name``: the provider is an entry of the providers file, the rest is the provider's own name."""
ToolName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Tag = Annotated[str, StringConstraints(pattern=r"^[^\s\x00-\x1f]{1,64}$")]


class Strict(BaseModel):
    """A request body or a part of one."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
