"""``manage.py palaver …``: the command ``palaver``, with the settings of the project."""

from __future__ import annotations

import os
import sys
from argparse import REMAINDER
from typing import Any, ClassVar

from django.core.management.base import BaseCommand, CommandParser

from ...project_settings import environment


class PalaverCommand(BaseCommand):
    """Hands over to the command of Palaver, which this process becomes."""

    help = "Palaver with the settings of this project: manage.py palaver serve | worker | api | check | …"
    requires_system_checks: ClassVar[list[str]] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Take all that is behind it."""
        parser.add_argument("words", nargs=REMAINDER, help="as for palaver; none lists its commands")

    def handle(self, *args: Any, words: list[str], **options: Any) -> None:
        """Become it. Its children find the modules of the project where this process does."""
        path = os.pathsep.join(filter(None, (sys.path[0], os.environ.get("PYTHONPATH"))))
        there = {**os.environ, **environment(), "PYTHONPATH": path}
        os.execve(sys.executable, [sys.executable, "-m", "palaver.cli", *(words or ["--help"])], there)


Command = PalaverCommand  # the name that Django looks for
