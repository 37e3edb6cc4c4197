"""What the page on tools says of a team's own Celery tasks."""

from __future__ import annotations

from celery import Celery

from palaver import tool

app = Celery("yours", broker="memory://")


@app.task  # type: ignore[untyped-decorator]
def add(x: int, y: int = 1) -> int:
    """Add two numbers."""
    return x + y


def test_a_celery_task_is_a_tool_that_runs_here() -> None:
    tool_of_it = tool(idempotent=True, name="add_numbers")(add)
    declared = tool_of_it.declaration
    assert (declared.name, declared.description) == ("add_numbers", "Add two numbers.")
    assert sorted(declared.parameters["properties"]) == ["x", "y"]
    assert tool_of_it(**tool_of_it.parse('{"x": 2, "y": 3}')) == 5
