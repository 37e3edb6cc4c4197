"""The bearer of a key, as what submits runs later keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from palaver.late import dataclass
from palaver.vocabulary.scopes import Scope


@dataclass(frozen=True, slots=True)
class Bearer:
    """The bearer of a key, in whose name runs are submitted later."""

    name: str | None = None
    """The name of the key; None without keys."""
    scopes: tuple[Scope, ...] | None = None
    """The scopes that it had; None: all."""
    agents: tuple[str, ...] | None = None
    kind: str = "none"
    """``stored``: the store has keys of this name. ``listed``: the settings have. ``token``: neither has it."""
    operator: bool = False

    def fields(self) -> Mapping[str, Any]:
        """The same, as JSON has it."""
        return {name: getattr(self, name) for name in Bearer.__slots__}

    @classmethod
    def of_fields(cls, fields: Mapping[str, Any]) -> Bearer:
        """The bearer that these fields say."""
        listed = {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
        return cls(**{**fields, **listed})
