"""Gates: calls of tools that end when the test says so, however slow the machine is."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4


class Gate:
    """A file that is there once the gate is open. Calls of the tools ``record…`` wait for it."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / f"gate-{uuid4().hex}"

    @property
    def text(self) -> str:
        """The words of a user that let calls wait at this gate."""
        return f"[[args {json.dumps({'at_gate': str(self._file)})}]]"

    def open(self) -> None:
        self._file.touch()
