"""A plugin of pytest, ``-p tests.contract.called``: the names of all scripts that tests have called, in a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from palaver.store.scripting.scripts import Scripts

FILE: Final = "PALAVER_TEST_CALLED"
"""The variable that says where they are written to."""
_called: set[str] = set()


def pytest_sessionstart() -> None:
    """From here on, note what is called, alone or in a pipeline."""
    run, pipeline = Scripts.run, Scripts._pipeline

    async def noted(self: Scripts, script: Any) -> Any:
        _called.add(script.name)
        return await run(self, script)

    async def all_noted(self: Scripts, scripts: Sequence[Any], then: Sequence[Any], *, visit: bool = False) -> Any:
        _called.update(script.name for script in scripts)
        return await pipeline(self, scripts, then, visit=visit)

    Scripts.run = noted  # type: ignore[method-assign]
    Scripts._pipeline = all_noted  # type: ignore[method-assign]


def pytest_sessionfinish() -> None:
    """Write them."""
    Path(os.environ[FILE]).write_text("\n".join(sorted(_called)))
