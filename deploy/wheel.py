"""A hook of the build: it makes the blocking client, and puts the features below ``palaver``."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_IMPORT: Final = re.compile(r"^(\s*(?:from|import) )(?=(?:api|workers|features)\b)", re.MULTILINE)


class CustomBuildHook(BuildHookInterface[Any]):
    """Adds to the wheel what is not in it as it stands."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the blocking client, and each file of a feature but its tests. An editable install is the checkout: it
        has these."""
        twin = runpy.run_path(str(Path(self.root, "deploy", "twin.py")))
        twin["main"]()
        if version == "editable":
            # Those of others are loaded by others, and not by `palaver.feature.loaded`.
            plugins = self.metadata.core.entry_points["pytest11"]
            plugins.update({name: place.removeprefix("palaver.") for name, place in plugins.items()})
            return
        for path in twin["twins"]():
            build_data["force_include"][str(path)] = str(path.relative_to(self.root))
        self._folder = TemporaryDirectory()
        features = Path(self.root, "features")
        for path in sorted(features.rglob("*")):
            place = path.relative_to(features)
            if not path.is_file() or {"__pycache__", "conftest.py", "tests"} & {*place.parts}:
                continue
            source = path
            if path.suffix == ".py":
                source = Path(self._folder.name, place)
                source.parent.mkdir(parents=True, exist_ok=True)
                source.write_text(_IMPORT.sub(r"\1palaver.", path.read_text()))
            build_data["force_include"][str(source)] = f"palaver/features/{place}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the copies."""
        if version != "editable":
            self._folder.cleanup()
