"""The person who types a command beside the store."""

from __future__ import annotations

import getpass
import os


def typist() -> str:
    """Return who types this, as acts have it in the place of an address."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        # A user of a container may have no name.
        name = str(os.getuid())
    return f"command of {name}"
