"""A hook of the build: in a wheel the packages of a checkout are below ``palaver``, and features name them so there."""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_IMPORT: Final = re.compile(r"^(\s*(?:from|import) )(?=(?:api|workers|features)\b)", re.MULTILINE)


class CustomBuildHook(BuildHookInterface[Any]):
    """Puts the features into the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add each file of a feature, with its imports as a wheel has them. An editable install is the checkout."""
        if version == "editable":
            return
        self._folder = TemporaryDirectory()
        features = Path(self.root, "features")
        for path in sorted(features.rglob("*")):
            place = path.relative_to(features)
            if not path.is_file() or "__pycache__" in place.parts or path == Path(__file__):
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
