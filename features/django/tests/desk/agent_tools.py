"""What its agent can do."""

from __future__ import annotations

from typing import Any

from palaver import ToolContext, tool


@tool
def count_users(context: ToolContext, prefix: str = "") -> int:
    """Count users."""
    from django.contrib.auth.models import User

    assert context.run_id
    return int(User.objects.filter(username__startswith=prefix).count())


@tool(idempotent=True)
async def name_of_user(number: int) -> Any:
    """Look a user up."""
    from django.contrib.auth.models import User

    return (await User.objects.aget(pk=number)).username


@tool
def fail() -> None:
    """Fail."""
    raise ValueError("no such thing")
