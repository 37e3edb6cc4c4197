"""Pages of items, as OpenAI's clients walk through them: behind the id of the last one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from api.http.queries import AnyQuery, Number
from palaver.errors import Refused

from .wire import MOST_ITEMS, OpenAiItem, OpenAiItemList


class ItemsQuery(AnyQuery):
    """The page of a list of items."""

    limit: Number = Field(default=20, ge=1, le=MOST_ITEMS, description="Items on a page.")
    order: Literal["asc", "desc"] = Field(default="desc", description="`desc`: the newest first.")
    after: str | None = Field(default=None, max_length=200, description="Only items behind the one of this id.")


def page_of(items: Sequence[dict[str, Any]], query: ItemsQuery) -> OpenAiItemList:
    """Return the page of items, which are all in the order of the conversation.

    Raises:
        Refused: ``invalid_cursor``.
    """
    ordered = list(items) if query.order == "asc" else list(reversed(items))
    begin = 0
    if query.after is not None:
        places = [place for place, item in enumerate(ordered) if item["id"] == query.after]
        if not places:
            raise Refused("invalid_cursor", "There is no item of this id in the list.")
        begin = places[0] + 1
    return list_of(ordered[begin : begin + query.limit], has_more=begin + query.limit < len(ordered))


def list_of(items: Sequence[dict[str, Any]], *, has_more: bool) -> OpenAiItemList:
    """Return a page with these items."""
    # Strict clients want texts of an empty page, too.
    first, last = (items[0]["id"], items[-1]["id"]) if items else ("", "")
    data = [OpenAiItem(item) for item in items]
    return OpenAiItemList(data=data, first_id=first, last_id=last, has_more=has_more)
