"""The blocking client is the asyncio one, word by word."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

from deploy.twin import TWIN, twins
from palaver.client import tasks, threads
from tests.pages import syntax

TWINS = twins()


@pytest.mark.parametrize("path", TWINS, ids=lambda path: path.name)
def test_the_twin_is_current(path: Path) -> None:
    assert path.read_text() == TWINS[path], "run `python -m deploy.twin`"


@pytest.mark.parametrize("path", TWINS, ids=lambda path: path.name)
def test_nothing_of_asyncio_is_left(path: Path) -> None:
    tree = syntax(path)
    waits = ast.AsyncFunctionDef | ast.AsyncFor | ast.AsyncWith | ast.Await
    assert not [node for node in ast.walk(tree) if isinstance(node, waits)]
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert not {name for name in names if name.startswith("Async") or name in ("asyncio", "aclosing")}


def test_none_is_left_of_a_module_that_is_gone() -> None:
    assert {*TWIN.glob("*.py")} == TWINS.keys()


def test_what_is_written_twice_has_the_same_names_and_arguments() -> None:
    kinds = (tasks.AsyncFunctionCalls, threads.FunctionCalls)
    for name in ("begin", "finished"):
        parameters = [inspect.signature(getattr(kind, name)).parameters for kind in kinds]
        assert parameters[0] == parameters[1]
    assert threads.sleep.__name__ == tasks.sleep.__name__
