"""Tools of other frameworks, each made with its real package, in an environment of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
PYTHON: Final = Path(sys.prefix) / "frameworks" / "bin" / "python"
CALLS: Final[list[tuple[str, dict[str, Any], dict[str, str]]]] = [
    ("lc_order", {"lines": [{"article": "a", "pieces": 2}, {"article": "b"}]}, {"result": "3 pieces"}),
    (
        "lc_order",
        {"lines": [{"pieces": 2}]},
        {"error": "InvalidToolCall", "message": 'lines.0: "article" is a required'},
    ),
    ("lc_find", {"words": "x"}, {"result": "found x"}),
    ("lc_own", {"text": "tea"}, {"error": "ToolError", "message": "no tea today"}),
    ("lc_schema", {"a": 1}, {"result": "['a']"}),
    ("pa_sum", {"numbers": [1, 2], "start": 4}, {"result": "7"}),
    ("pa_sum", {"numbers": ["x"]}, {"error": "InvalidToolCall", "message": "numbers.0: "}),
    ("pa_ask", {"article": "a", "pieces": 3}, {"result": "3 of a"}),
    ("pa_ask", {"article": "a", "pieces": 10}, {"error": "ToolError", "message": "at most nine"}),
    ("oa_double", {"number": 4, "wrapped": True}, {"result": "(8)"}),
    ("oa_context", {"word": "it is"}, {"result": "it is call_7"}),
    ("oa_fails", {"word": "no"}, {"result": "An error occurred while running the tool"}),
    ("oa_raw", {"a": "b"}, {"result": 'oa_raw call_7 {"a": "b"}'}),
    ("safe_find", {"words": "y"}, {"result": "found y"}),
]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process says that loads these tools and calls them; it knows Palaver's features by their entry points."""
    if not (PYTHON.parent.parent / ".installed").exists():
        pytest.skip("TOOLS OF OTHER FRAMEWORKS ARE NOT CHECKED: make check-frameworks installs them")
    palaver, about = distribution("palaver"), tmp_path_factory.mktemp("about") / "palaver.dist-info"
    about.mkdir()
    for file in ("METADATA", "entry_points.txt"):
        (about / file).write_text(palaver.read_text(file) or "")
    calls = json.dumps([(name, arguments) for name, arguments, _ in CALLS])
    done = subprocess.run(
        [PYTHON, "-m", "tests.frameworks.driver"],
        input=calls,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "PYTHONPATH": str(about.parent)},
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_each_is_called_as_its_framework_calls_it(told: dict[str, Any]) -> None:
    for (name, _, expected), answer in zip(CALLS, told["answers"], strict=True):
        assert answer.keys() == expected.keys(), (name, answer)
        for part, text in expected.items():
            assert text in str(answer[part]), (name, answer)


def test_each_is_declared_as_its_framework_declares_it(told: dict[str, Any]) -> None:
    declared = told["declared"]
    ours = {name for name in declared if name[:3] in ("lc_", "pa_", "oa_") or name == "safe_find"}
    assert ours == {name for name, *_ in CALLS}
    assert {name for name in ours if declared[name]["is_async"]} == {
        "lc_find", "oa_context", "oa_double", "oa_fails", "oa_raw", "pa_ask", "safe_find"
    }  # fmt: skip
    assert {name for name in ours if declared[name]["risky"]} == {"oa_context", "pa_ask"}
    assert {name for name in ours if declared[name]["ends_run"]} == {"lc_own"}
    assert {name for name in ours if declared[name]["idempotent"]} == {"safe_find"}
    assert {name: declared[name]["timeout"] for name in ours if declared[name]["timeout"] != 30} == {
        "oa_context": 9, "pa_ask": 7, "safe_find": 5
    }  # fmt: skip
    assert declared["lc_order"]["description"] == "Order something."
    assert declared["pa_sum"]["parameters"]["properties"]["numbers"]["description"] == "The numbers."
    assert declared["oa_double"]["parameters"]["required"] == ["number", "wrapped"]
