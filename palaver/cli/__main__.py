"""``python -m palaver.cli``."""

from __future__ import annotations

from palaver.cli import main

main()
