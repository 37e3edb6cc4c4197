"""Palaver: agent conversations on Celery.

These names are all that most programs need: the two clients, what an agent and a run are, tools, and the errors.
``__init__.pyi`` lists them. Each is loaded when it is first asked for, so that `import palaver` costs next to nothing.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from palaver.version import __version__ as __version__


def __getattr__(name: str) -> Any:
    homes = _homes()
    if name == "__all__":
        value: Any = sorted(homes)
    elif name in homes:
        value = getattr(import_module(homes[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_homes()})


@cache
def _homes() -> dict[str, str]:
    """The module of each public name, from the imports of the stub."""
    import pkgutil
    import re

    stub = (pkgutil.get_data("palaver", "__init__.pyi") or b"").decode()
    return {name: home for home, name in re.findall(r"^from (\S+) import ([A-Za-z]\w*) as", stub, re.MULTILINE)}
