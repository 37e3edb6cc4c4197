"""Of a long result a model sees the beginning and the end, whatever the tool is and wherever its bound is set."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver import ConfigurationError, Tool, ToolContext, tool
from palaver.schemas.content import ImagePart, TextPart
from palaver.secrets.redaction import register_secrets
from palaver.tools import ToolDeclaration
from palaver.tools.rendering import MAX_RESULT_CHARS, USUAL_RESULT_CHARS, render, rendered
from workers.sources import Toolbox
from workers.sources.functions import Functions

MOST = 1_000
NOTE = re.compile(r"\n\[cut: ([\d,]+) of ([\d,]+) (characters|bytes) are left out here\]\n")


def _ends(text: str) -> tuple[str, str, int]:
    """The beginning, the end, and how many characters are said to be left out."""
    (note,) = NOTE.finditer(text)
    return text[: note.start()], text[note.end() :], int(note[1].replace(",", ""))


@given(st.text(min_size=MOST + 1, max_size=3 * MOST))
def test_the_beginning_the_end_and_a_true_count_are_told(text: str) -> None:
    head, tail, left = _ends(render(text, MOST))
    assert text.startswith(head)
    assert text.endswith(tail)
    assert left == len(text) - len(head) - len(tail) > 0
    assert MOST - 64 <= len(head) + len(tail) <= MOST + 64


@pytest.mark.parametrize(
    "together",
    ["\ud83d\ude00", "e\u0301\u0323", "👩\u200d👩\u200d👧", "🇩🇪", "👍🏽", "❤\ufe0f", "\r\n", "क\u093f"],
    ids=["halves of a pair", "accents", "joined", "flag", "tone", "variation", "line end", "vowel"],
)
@pytest.mark.parametrize("shift", range(5))
def test_a_cut_goes_through_no_character(together: str, shift: int) -> None:
    text = "." * shift + together * MOST
    head, tail, _ = _ends(render(text, MOST))
    whole = together.encode("utf-16", "surrogatepass").decode("utf-16")
    assert head.replace(whole, "").strip(".") == ""
    assert tail.replace(whole, "") == ""
    assert "\ufffd" not in head + tail


def test_bytes_are_cut_between_characters() -> None:
    text = "ä€😀" * MAX_RESULT_CHARS
    for data in (text.encode(), memoryview(text[: 2 * MOST].encode())):
        head, tail, left = _ends(render(data, MOST))
        assert {*head, *tail} == {*"ä€😀"}
        assert left >= MOST


@dataclass
class Row:
    number: int
    text: str


@pytest.mark.parametrize(
    "result",
    [
        [{"row": number} for number in range(1_000)],
        {f"row {number}": number for number in range(1_000)},
        [Row(number, "x" * 50) for number in range(1_000)],
        {"rows": {"all": [[number] for number in range(1_000)]}},
    ],
    ids=["rows", "object", "dataclasses", "nested"],
)
def test_json_is_cut_and_says_so(result: Any) -> None:
    whole = json.dumps(result, default=vars, ensure_ascii=False)
    head, tail, left = _ends(render(result, MOST))
    assert (whole.startswith(head), whole.endswith(tail)) == (True, True)
    assert left == len(whole) - len(head) - len(tail)


@pytest.mark.parametrize(
    "kind", [list, tuple, lambda rows: {"rows": [*rows], "last": "yes"}], ids=["list", "tuple", "in one"]
)
def test_json_of_any_length_has_its_end(kind: Any) -> None:
    result = kind({"row": number, "text": "x" * 40} for number in range(100_000))
    head, note, tail = render(result, MOST).split("\n")
    whole = json.dumps(result)
    assert (whole.startswith(head), whole.endswith(tail)) == (True, True)
    assert note == "[cut: all between is left out: together there are more than 262,144 characters]"
    assert len(head) + len(tail) <= MOST


def test_a_secret_that_a_cut_would_halve_is_not_told() -> None:
    register_secrets([secret := "canary-of-a-result-0123456789"])
    for place in range(-len(secret), 1):
        text = "x" * (MOST // 2 + place) + secret + "y" * MOST + secret + "z" * (MOST // 2 + place)
        shown = render(text, MOST)
        assert "canary-of" not in shown
        assert "6789" not in shown


def test_texts_beside_images_share_the_room() -> None:
    image = ImagePart(type="image", url="data:image/png;base64,AAAA")
    parts = rendered(["x" * 5_000, image, "y" * 5_000, "short"], 3_000)
    assert isinstance(parts, tuple)
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    assert [len(_ends(text)[0] + _ends(text)[1]) for text in texts[:2]] == [1_000, 1_000]
    assert texts[2] == "short"


@tool
def words(number: int) -> str:
    """So many characters."""
    return "w" * number


@tool(max_result=2_000)
def few(number: int) -> str:
    """The same, of which few are shown."""
    return "w" * number


@tool(ends_run=True)
def last(number: int) -> str:
    """The output of a run."""
    return "w" * number


@pytest.mark.parametrize(
    ("name", "agent", "shown"),
    [
        ("words", None, USUAL_RESULT_CHARS),
        ("words", 100_000, 100_000),
        ("words", 1_000, 1_000),
        ("few", None, 2_000),
        ("few", 100_000, 2_000),
        ("few", 1_000, 1_000),
        ("last", None, MAX_RESULT_CHARS),
        ("last", 5_000, 5_000),
    ],
)
async def test_the_tool_and_the_agent_say_how_much(name: str, agent: int | None, shown: int) -> None:
    toolbox = Toolbox([Functions([words, few, last])])
    text = await toolbox.call(name, {"number": 5 << 20}, ToolContext(), agent)
    assert isinstance(text, str)
    head, tail, left = _ends(text)
    assert len(head) + len(tail) == shown
    assert left == (5 << 20) - shown
    assert await toolbox.call(name, {"number": shown}, ToolContext(), agent) == "w" * shown


@pytest.mark.parametrize("most", [0, 999, 262_145, -1])
def test_a_bound_that_is_none_is_refused_where_it_is_declared(most: int) -> None:
    with pytest.raises(ConfigurationError, match="max_result is from 1,000 to 262,144 characters, not"):
        tool(max_result=most)(words.call)
    with pytest.raises(ConfigurationError, match="max_result is from 1,000"):
        Tool("words", "", words.parameters, words.call, max_result=most)


def test_a_declaration_says_its_bound() -> None:
    facts: Mapping[str, Any] = few.declaration.model_dump()
    assert facts["max_result"] == 2_000
    assert ToolDeclaration.model_validate({**facts, "max_result": None}).within(None).max_result == USUAL_RESULT_CHARS
