"""The environment of ``make canary``: that of the tests, with some packages in other versions before it.

python -m deploy.canary FOLDER    let the new environment in FOLDER borrow what the one of this Python has
python -m deploy.canary           say in which versions this environment has what Palaver stands on
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Final

from deploy.environments import borrow

_ROOT: Final = Path(__file__).resolve().parent.parent
_TOLD: Final = ("celery", "kombu", "redis", "pydantic", "httpx", "starlette", "uvicorn")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        borrow(Path(sys.argv[1]).resolve(), _ROOT)
    else:
        print(f"Python {sys.version.split()[0]},", ", ".join(f"{name} {version(name)}" for name in _TOLD))
