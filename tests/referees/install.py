"""Installs what the referees need, each below the environment: ``python -m tests.referees.install``.

One that cannot be had is named here, and its tests are skipped.
"""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pkgutil import iter_modules

from tests import referees


def main() -> None:
    """Install what is not there yet."""
    for name in sorted(each.name for each in iter_modules(referees.__path__)):
        if name.startswith("test_") or name == "install":
            continue
        install = getattr(import_module(f"tests.referees.{name}"), "install", None)
        if install is None:
            continue
        try:
            install()
        except (OSError, subprocess.SubprocessError) as error:
            print(f"{name.upper()} IS NOT CHECKED: it could not be installed: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
