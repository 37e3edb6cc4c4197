"""Keys of the store as texts: a typo shows without a look, and nothing of the secret is in what is kept of one."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.secrets.api_keys import KeyParts, is_key_id, new_api_key

LETTERS = "0123456789abcdefghjkmnpqrstvwxyz"


def test_a_key_looks_like_one() -> None:
    key = new_api_key()
    assert re.fullmatch(f"plv_[{LETTERS}]{{12}}_[{LETTERS}]{{52}}_[{LETTERS}]{{7}}", key)
    parts = KeyParts.of(key)
    assert parts is not None
    assert parts.id == key.split("_")[1]
    assert is_key_id(parts.id)
    assert key.split("_")[2] not in repr(parts)


def test_no_two_are_alike() -> None:
    keys = [new_api_key() for _ in range(100)]
    assert len({key.split("_")[1] for key in keys}) == len({key.split("_")[2] for key in keys}) == 100


@given(st.integers(0, 76), st.sampled_from(LETTERS + "_-IO"))
def test_a_typo_shows(place: int, letter: str) -> None:
    key = new_api_key()
    typo = key[:place] + letter + key[place + 1 :]
    assert (KeyParts.of(typo) is None) == (typo != key)


@pytest.mark.parametrize("text", ["", "plv_", "plv___", "sk-123", "plv_" + "0" * 73, "ключ"])
def test_other_texts_are_no_keys(text: str) -> None:
    assert KeyParts.of(text) is None
    assert KeyParts.of(new_api_key() + text + "\n") is None


def test_only_the_whole_secret_opens() -> None:
    one, other = KeyParts.of(new_api_key()), KeyParts.of(new_api_key())
    assert one is not None
    assert other is not None
    assert one.opens(one.digest)
    assert not other.opens(one.digest)
    assert not one.opens("")
