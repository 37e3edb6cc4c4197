"""Pictures of the console: ``python -m tests.screenshots`` writes docs/console/, each page wide, dark and narrow.

It starts a stack of its own, and needs Chromium.
"""

from __future__ import annotations

import base64
import tempfile
from pathlib import Path
from typing import Final

from tests.browser import browser
from tests.pages import ROOT
from tests.process.console_tour import furnish, serving_all
from tests.process.consoles import tab_at

FOLDER: Final = ROOT / "docs" / "console"
_WIDE, _NARROW, _HEIGHT = 1280, 400, 800
_LOOKS: Final = (("light", _WIDE, ""), ("dark", _WIDE, "-dark"), ("light", _NARROW, "-narrow"))
_QUALITY: Final = 60


def main() -> None:
    """Write them."""
    FOLDER.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as data,
        serving_all(Path(data)) as cluster,
        browser(Path(data)) as chromium,
        tab_at(cluster.stack.url, chromium) as console,
    ):
        for name, place in furnish(cluster).items():
            for scheme, width, suffix in _LOOKS:
                media = [{"name": "prefers-color-scheme", "value": scheme}]
                console.tab.send("Emulation.setEmulatedMedia", features=media)
                size = {"width": width, "height": _HEIGHT, "deviceScaleFactor": 1, "mobile": width == _NARROW}
                console.tab.send("Emulation.setDeviceMetricsOverride", **size)
                console.visit(place)
                picture = console.tab.send("Page.captureScreenshot", format="webp", quality=_QUALITY)["data"]
                (FOLDER / f"{name}{suffix}.webp").write_bytes(base64.b64decode(picture))


if __name__ == "__main__":
    main()
