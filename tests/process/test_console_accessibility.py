"""Each page of the console as axe-core judges it: names for screen readers, contrast, order, in light and dark. And
each fits a narrow window."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from tests.browser import needs_chromium
from tests.pages import ROOT
from tests.process.console_tour import furnish, serving_all
from tests.process.consoles import Console, tab_at
from tests.process.node import installed

pytestmark = [pytest.mark.process, pytest.mark.chaos, needs_chromium]

JUDGE: Final = "axe.run(document, { resultTypes: ['violations'] }).then((found) => found.violations)"


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The source of axe-core."""
    program = installed(ROOT / "tests" / "clients" / "axe", tmp_path_factory.mktemp("axe"), "AXE")
    return (program.folder / "node_modules" / "axe-core" / "axe.min.js").read_text()


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory, chromium: str) -> Iterator[tuple[Console, Mapping[str, str]]]:
    """The console at a stack that has something for each page, and the pages."""
    with (
        serving_all(tmp_path_factory.mktemp("shown")) as cluster,
        tab_at(cluster.stack.url, chromium) as console,
    ):
        yield console, furnish(cluster)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_violates_a_rule(shown: tuple[Console, Mapping[str, str]], axe: str, scheme: str) -> None:
    console, pages = shown
    console.tab.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    found: dict[str, Any] = {}
    for name, place in pages.items():
        console.visit(place)
        console.tab.evaluate(f"{axe}; 1")
        violations = console.tab.evaluate(JUDGE)
        for each in violations:
            found[f"{name}: {each['id']}"] = [node["html"][:200] for node in each["nodes"]][:3]
    assert found == {}
    console.holds()


def test_no_page_is_wider_than_a_narrow_window(shown: tuple[Console, Mapping[str, str]]) -> None:
    console, pages = shown
    size = {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    console.tab.send("Emulation.setDeviceMetricsOverride", **size)
    wide: dict[str, int] = {}
    for name, place in pages.items():
        console.visit(place)
        console.tab.evaluate("document.querySelector('main h1').append('x'.repeat(100))")  # A name without a blank.
        width = console.tab.evaluate("document.documentElement.scrollWidth")
        if width > 400:
            wide[name] = width
    console.tab.send("Emulation.clearDeviceMetricsOverride")
    assert wide == {}
