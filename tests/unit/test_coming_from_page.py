"""What the page for people who know Celery shows: its code runs, and what it maps to is there."""

from __future__ import annotations

import re
import sys
from types import ModuleType

import pytest
from celery import Celery, _state

from palaver import tool
from palaver.config.settings import Settings
from palaver.vocabulary.step_kinds import QUEUES
from tests.pages import ROOT, blocks
from tests.scripted_api import ScriptedAPI, answer, run_object

PAGE = ROOT / "docs" / "coming-from.md"


@pytest.fixture
def yours(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of the reader's own Celery application."""
    module = ModuleType("yours")
    # A task of one application is told to each that comes later: not to those of other tests.
    monkeypatch.setattr(_state, "_on_app_finalizers", set())
    app = Celery("yours", broker="memory://", set_as_current=False)

    @app.task(name="add")  # type: ignore[untyped-decorator]
    def add(x: int, y: int) -> int:
        return x + y

    monkeypatch.setitem(sys.modules, "yours", module)
    vars(module).update(app=app, add=add)
    return module


def run_code(name: str) -> dict[str, object]:
    (code,) = [code for kind, code in blocks(PAGE) if kind == "python" and f"def {name}(" in code]
    names: dict[str, object] = {"__name__": "page"}
    exec(code, names)
    return names


@pytest.mark.usefixtures("yours")
def test_a_nightly_run_has_one_key_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    check_orders = run_code("check_orders")["check_orders"]
    with ScriptedAPI() as api:
        monkeypatch.setenv("PALAVER_URL", api.url)
        api.on("POST", "/v1/runs", answer(run_object("queued"), 202), answer(run_object("queued"), 202))
        check_orders()  # type: ignore[operator]
        check_orders()  # type: ignore[operator]
        first, second = api.asked("POST", "/v1/runs")
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
    assert first.headers["idempotency-key"].startswith("check-orders-20")


def test_a_task_of_yours_is_a_tool(yours: ModuleType) -> None:
    assert "`tool(idempotent=True)(your_task)`" in PAGE.read_text()
    declared = tool(idempotent=True)(yours.add).declaration
    assert (declared.name, declared.idempotent, sorted(declared.parameters["properties"])) == ("add", True, ["x", "y"])


def test_settings_and_queues_that_the_page_names_are_there() -> None:
    text = PAGE.read_text()
    named = {name.lower() for name in re.findall(r"PALAVER_([A-Z_]+)", text)} - {"url"}  # the client's
    assert named <= Settings.model_fields.keys()
    assert all(f"`{queue}`" in text for queue in QUEUES)
