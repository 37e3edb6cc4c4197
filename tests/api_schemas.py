"""The schemas of a dialect, which a process of the product describes once, and the suite for each API that it makes."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cache, wraps
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode

from api.kit.openapi import Schemas


def describe_once() -> None:
    """From here on models are described once for a process; each document has a copy of that."""
    components = Schemas.components

    @cache
    def described(models: Sequence[tuple[type[BaseModel], JsonSchemaMode]]) -> dict[str, Any]:
        schemas = Schemas()
        schemas._models = dict(models)
        return components(schemas)

    @wraps(components)
    def copied(self: Schemas) -> dict[str, Any]:
        return copy.deepcopy(described(tuple(self._models.items())))

    Schemas.components = copied  # type: ignore[method-assign]
