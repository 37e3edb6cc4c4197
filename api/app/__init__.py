"""The application: what it is made of, its middleware, and which dialects it speaks."""

from __future__ import annotations

from .application import ApiApplication, create_app, require_redis

__all__ = ["ApiApplication", "create_app", "require_redis"]
