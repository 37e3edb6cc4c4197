"""What a provider said of an error, in its own words: on ``provider.message``, bounded, printable and without keys."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import ProviderHTTPError, classify
from palaver.secrets import redaction as secrets
from palaver.secrets.redaction import Secrets, register_secrets

KEY = "Zq8vTn3LwXk2RbY7mPdJ4sHf"


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_values", set())
    monkeypatch.setattr(secrets, "_known", Secrets())
    register_secrets([KEY])


def said(body: object) -> str | None:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    failure = classify(ProviderHTTPError(400, raw, None, "fake", "m"))
    assert failure.provider is not None
    return failure.provider.message


def test_it_is_in_no_other_part_of_the_failure() -> None:
    failure = classify(ProviderHTTPError(400, b'{"error": {"message": "canary"}}', None, "fake", "m"))
    error = failure.to_error(step="1", attempt=1)
    assert "canary" not in repr(failure) + str(failure) + json.dumps({**error, "provider": None})


@pytest.mark.usefixtures("known")
def test_a_code_has_no_part_of_a_key() -> None:
    """Codes are logged and counted, and so go where what a provider said does not."""
    for code in (KEY, KEY[:12].lower(), f"key.{KEY[4:14]}"):
        failure = classify(ProviderHTTPError(400, json.dumps({"error": {"code": code}}).encode(), None, "fake", "m"))
        assert KEY[4:12].lower() not in failure.code
    named = classify(ProviderHTTPError(400, b'{"error": {"code": "some_code"}}', None, "fake", "m"))
    assert named.code == "fake.some_code"


THINKING = "The reasoning_content in the thinking mode must be passed back"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"error": {"message": THINKING, "type": "invalid_request_error", "param": None, "code": None}}, THINKING),
        ({"type": "error", "error": {"type": "x", "message": "max_tokens: Field required"}, "request_id": "r"},
         "max_tokens: Field required"),
        ([{"error": {"code": 400, "message": "Bad.", "details": [{"reason": "R"}, {"message": "Bad."}]}}], "Bad."),
        ({"error": {"message": "It failed", "metadata": {"raw": json.dumps({"error": {"message": "No."}})}}},
         "It failed: No."),
        ({"error": {"message": "Provider returned error", "metadata": {"raw": "{no JSON"}}},
         "Provider returned error: {no JSON"),
        ({"detail": [{"loc": ["body", "messages", 0], "msg": "Field required", "input": "a prompt"}]},
         "body.messages.0: Field required"),
        ({"object": "error", "message": {"detail": [{"loc": ["body"], "msg": "Field required"}]}},
         "body: Field required"),
        ({"error": "model 'x' not found"}, "model 'x' not found"),
        ({"error": "invalid_request", "error_description": "No."}, "invalid_request: No."),
        ("just text", "just text"),
        (b"just\n  text", "just text"),
        (b"data: {\"error\": {\"message\": \"in a stream\"}}", "in a stream"),
        (b"<!doctype html><head><title>502 Bad &amp; Gateway</title></head><script>alert(1)</script>",
         "502 Bad & Gateway"),
        (b"<html><body><h1 class='x'>Sign in</h1>or else", "Sign in"),
        (b"<?xml version='1.0'?><Error><Code>C</Code><Message>Access Denied</Message></Error>", "Access Denied"),
        (b"<html>nothing to tell", None),
        (b"", None),
        ({"error": {"code": 7}}, None),
        ([], None),
    ],
)  # fmt: skip
def test_it_is_a_sentence_from_the_body_of_any_provider(body: object, message: str | None) -> None:
    assert said(body) == message


@pytest.mark.parametrize(
    "text",
    [
        *("sk-proj-********************abcd", "sk-…abcd", "sk-...abcd", "te***ng", "****abcd", "AbCd••••wxyz"),
        *(
            KEY,
            KEY.upper(),
            KEY[:8],
            KEY[-9:],
            KEY[5:15],
            f"x{KEY[4:12].lower()}x",
            f"İ{KEY[3:14]}İ",
            "eyJhbGciOi.JIUzI1NiIs.InR5cCI6",
        ),
    ],
)
@pytest.mark.usefixtures("known")
def test_a_key_that_is_quoted_whole_or_in_part_is_left_out(text: str) -> None:
    message = said({"error": {"message": f"Incorrect key {text}, look here."}})
    assert message is not None
    assert message.startswith("Incorrect key ")
    assert "[redacted]" in message
    assert message.endswith(", look here.")
    assert not any(text[i : i + 8] in message for i in range(len(text) - 7))


@pytest.mark.parametrize(
    "told",
    ["API key provided: abcdef", "token received: abcdef", "Authorization: Bearer abcdefgh", "key ending in abcdef"],
)
def test_what_is_named_a_key_is_left_out(told: str) -> None:
    assert "abcdef" not in (said(f"Wrong {told}") or "abcdef")


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens: Field required",
        "Function call is missing a thought_signature in functionCall parts. See https://x.example/docs/thought-signatures.",
        "This model's maximum context length is 8192 tokens... please reduce it",
        "`temperature` is not supported with this model",
    ],
)
@pytest.mark.usefixtures("known")
def test_the_sentence_that_helps_stays_whole(text: str) -> None:
    assert said({"error": {"message": text}}) == text


HOSTILE = {
    "a megabyte": b'{"error": {"message": "' + b"a b " * 300_000,
    "levels": b"[" * 500_000,
    "nested": json.dumps([[[[[{"message": f"m{i}"} for i in range(16)]] * 16] * 4]]).encode(),
    "escapes": b'{"error": {"message": "\\u001b]0;owned\\u0007\\u202edrawkcab\\u0000\\u009b31m\\ud800"}}',
    "no text": bytes(range(256)) * 300,
    "UTF-16": "Bad request".encode("utf-16"),
    "letters of two bytes": "é".encode() * 40_000,
    "letters of four bytes": b'{"message": "a' + "😀".encode() * 3_000 + b'"}',
    "titles": b"<" + b"<title " * 9_000,
    "keys": b"key: " * 13_000,
    "addresses": b"://" * 20_000,
    "masks": "aa…".encode() * 13_000,
    "numbers": b'{"message": ' + b"9" * 60_000 + b"}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_body_is_bounded_and_printable(name: str) -> None:
    begun = time.thread_time()
    message = said(HOSTILE[name])
    spent = time.thread_time() - begun
    assert message is None or message.isprintable()
    assert len((message or "").encode()) <= 2048
    print(f"{name}: {spent * 1000:.1f} ms")


@pytest.mark.slow
@given(st.text(max_size=5000))
def test_it_ends_between_two_characters(text: str) -> None:
    message = said({"error": {"message": text}}) or ""
    assert len(message.encode()) <= 2048
    assert "�" not in message or "�" in text or any("\ud800" <= char <= "\udfff" for char in text)


@given(st.binary(max_size=3000))
def test_any_bytes_are_read(body: bytes) -> None:
    message = said(body)
    assert message is None or message.isprintable()
