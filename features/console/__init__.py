"""The console: pages for people in this server's own files, which ask the public API and nothing else."""

from __future__ import annotations

from .dialect import CONSOLE

__all__ = ["CONSOLE"]
