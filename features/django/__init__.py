"""Palaver in a Django project, as the application ``palaver.contrib.django``.

    INSTALLED_APPS += ["palaver.contrib.django"]
    PALAVER = {"REDIS_URL": "redis://127.0.0.1:6379/0", "PROVIDERS": BASE_DIR / "providers.toml"}

What projects import is here, and none of it needs Django's applications to be loaded before it is called. Its modules
have one name in a process, ``palaver.contrib.django``: Django knows models and signals by that.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from palaver.feature import Feature

if TYPE_CHECKING:
    from .asking import ask as ask
    from .mounting import asgi as asgi
    from .signals import action_required as action_required
    from .signals import run_ended as run_ended
    from .submitting import RunOnCommit as RunOnCommit
    from .submitting import submit as submit
    from .submitting import submit_on_commit as submit_on_commit
    from .submitting import token_for as token_for

FEATURE: Final = Feature(__name__)
_PUBLIC: Final = {
    "action_required": "signals",
    "asgi": "mounting",
    "ask": "asking",
    "run_ended": "signals",
    "submit": "submitting",
    "submit_on_commit": "submitting",
    "RunOnCommit": "submitting",
    "token_for": "submitting",
}


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PUBLIC[name]}"), name)
