"""Keys of what is beyond the reach are those of no tenant: so no route shows one tenant what another one has."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.store.redis import access_keys, agent_keys, fleet_keys, keys, provider_keys
from palaver.store.redis.reach import EVERYTHING, NOBODY, Reach, within
from palaver.vocabulary.ids import new_conversation_id, new_run_id, of_tenant
from tests.feature_cases import modules_of_keys

MODULES = (keys, access_keys, agent_keys, fleet_keys, provider_keys, *modules_of_keys())
IDS = {"run_id": new_run_id("00"), "conversation_id": new_conversation_id(1)}
ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
TAGS = st.text(ALPHABET, min_size=6, max_size=6).filter(lambda tag: tag != NOBODY)


def _of_an_id(module: ModuleType) -> Iterator[Callable[[str], object]]:
    for name, function in inspect.getmembers(module, inspect.isfunction):
        first = next(iter(inspect.signature(function).parameters), "")
        if first in IDS and not name.startswith("_") and function.__module__ == module.__name__:
            yield function


FUNCTIONS = [function for module in MODULES for function in _of_an_id(module)]


def _args(function: Callable[..., object], owner: str) -> list[str]:
    return [of_tenant(IDS[name], owner) if name in IDS else "x" for name in inspect.signature(function).parameters]


def test_the_functions_are_found() -> None:
    assert {keys.run, keys.steps, keys.feed, keys.conversation, keys.log} <= {*FUNCTIONS}


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda each: f"{each.__module__}.{each.__name__}")
@given(owner=TAGS, other=TAGS | st.just(""))
def test_an_id_of_anothers_makes_the_key_of_nobodys(function: Callable[..., object], owner: str, other: str) -> None:
    asked, closed = _args(function, owner), _args(function, NOBODY)
    with within(EVERYTHING):
        own, none = function(*asked), function(*closed)
    with within(Reach(owner)):
        assert function(*asked) == own
    if other != owner:
        with within(Reach(other)):
            assert function(*asked) == none != own
