"""The user who types a command."""

from __future__ import annotations

import getpass
import os


def typed_by() -> str:
    """Return the user, as audits name it."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        # A user of a container may have no name.
        name = str(os.getuid())
    return f"command of {name}"
