"""The tools of a project: found in its applications, and called as a request of Django's is served."""

from __future__ import annotations

from typing import Any

import pytest

from features.django.tests import project

# isort: split
from django.db import connection
from django.test import override_settings

from palaver.contrib.django import project_settings, tools
from palaver.tools import Tool, ToolContext, load_tools


def found() -> dict[str, Tool]:
    return {tool.name: tool for tool in load_tools([tools.__name__])}


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Looks at the connection of this thread, whether it is to be closed."""
    told: list[str] = []
    monkeypatch.setattr(connection, "close_if_unusable_or_obsolete", lambda: told.append("look"), raising=False)
    return told


def test_those_of_applications_and_those_that_are_named() -> None:
    assert {"count_users", "name_of_user", "fail"} < found().keys()
    with override_settings(PALAVER={"TOOLS": "shop.one, features.django.tests.desk.agent_tools"}):
        assert project_settings.tool_modules() == ["features.django.tests.desk.agent_tools", "shop.one"]
    count = found()["count_users"]
    assert (count.is_async, found()["name_of_user"].is_async) == (False, True)
    assert count.declaration.parameters["properties"].keys() == {"prefix"}, "the context is none of the model's"


def test_a_call_looks_at_its_connection_before_and_after(looks: list[str]) -> None:
    project.make_tables()
    project.user("counted")
    count, looks[:] = found()["count_users"], []
    assert count.bind(count.parse('{"prefix": "counted"}'), ToolContext())() == 1
    assert looks == ["look", "look"]
    with pytest.raises(ValueError, match="no such thing"):
        found()["fail"].bind({}, ToolContext())()
    assert looks == ["look"] * 4


async def test_a_coroutine_uses_the_orm_as_django_has_it() -> None:
    from asgiref.sync import sync_to_async

    await sync_to_async(project.make_tables)()
    ann: Any = await sync_to_async(project.user)("looked up")
    name = found()["name_of_user"]
    assert await name.bind(name.parse(f'{{"number": {ann.pk}}}'), ToolContext())() == "looked up"
