"""The blocking client is the asyncio one, word by word."""

from __future__ import annotations

import ast
import inspect
from functools import cache
from pathlib import Path

import pytest

from deploy.twin import BY_HAND, SOURCE, TWIN, twins
from palaver.client.aio import concurrency as tasks
from palaver.client.sync import concurrency as threads
from tests.pages import syntax

TWINS = [TWIN / path.name for path in sorted(SOURCE.glob("*.py")) if path.name not in BY_HAND]


@cache
def made() -> dict[Path, str]:
    """What is made of each; when it is compared, and not when tests are collected."""
    return dict(twins())


@pytest.mark.parametrize("path", TWINS, ids=lambda path: path.name)
def test_the_twin_is_current(path: Path) -> None:
    assert path.read_text() == made()[path], "run `make twin`"


@pytest.mark.parametrize("path", TWINS, ids=lambda path: path.name)
def test_nothing_of_asyncio_is_left(path: Path) -> None:
    tree = syntax(path)
    waits = ast.AsyncFunctionDef | ast.AsyncFor | ast.AsyncWith | ast.Await
    assert not [node for node in ast.walk(tree) if isinstance(node, waits)]
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert not {name for name in names if name.startswith("Async") or name in ("asyncio", "aclosing")}


def test_each_says_in_its_first_line_and_in_the_attributes_that_it_is_generated() -> None:
    assert all(path.read_text().startswith("# Generated from ") for path in TWINS)
    lines = (TWIN.parents[2] / ".gitattributes").read_text().splitlines()
    folder = TWIN.relative_to(TWIN.parents[2]).as_posix()
    assert [line.split() for line in lines if line.startswith(folder)] == [
        [f"{folder}/*.py", "linguist-generated"],
        *([f"{folder}/{name}", "-linguist-generated"] for name in sorted(BY_HAND)),
    ]


def test_every_module_has_a_twin() -> None:
    written, there = ({path.name for path in folder.glob("*.py")} for folder in (SOURCE, TWIN))
    assert written == there == {path.name for path in made()} | BY_HAND


def test_what_is_written_twice_has_the_same_names_and_arguments() -> None:
    for name in ("begin", "finished"):
        parameters = [inspect.signature(getattr(module.FunctionCalls, name)).parameters for module in (tasks, threads)]
        assert parameters[0] == parameters[1]
    assert threads.sleep.__name__ == tasks.sleep.__name__
