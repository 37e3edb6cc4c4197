"""The version, said once: of the package, of the command, and of what connects to Redis."""

from __future__ import annotations

__version__ = "1.0.0rc1"
