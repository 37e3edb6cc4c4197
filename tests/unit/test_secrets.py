"""Secrets of this process are found in what others say, whole or in pieces, and nothing else is."""

from __future__ import annotations

import base64
import html
import io
import json
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from urllib.parse import quote, quote_plus

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.config.settings import Settings
from palaver.errors import ErrorClass, Failure, ProviderHTTPError, classify
from palaver.errors.failure import ProviderDetails
from palaver.secrets import redaction as secrets
from palaver.secrets.redaction import Passing, Secrets, passwords_of, redact, register_secrets
from workers.broker.logs import set_formats
from workers.protocols.chat_completions.answer import Completion

KEY = "sk-Canary/7+fOx&2b7d9e0c41aa55e3"
PLAIN = "evil2canaryplain"
KNOWN = Secrets((KEY, PLAIN, "hunter2!"))
LONG = "".join(f"line {n} of a key\n" for n in range(60))
LONG_KNOWN = Secrets([LONG], named=True)
BASIC = base64.b64encode(f"user:{KEY}".encode()).decode()


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_values", set())
    monkeypatch.setattr(secrets, "_known", Secrets())
    register_secrets([KEY, PLAIN, None, ""])


@pytest.mark.parametrize(
    "text",
    [
        *(KEY, KEY.lower(), KEY.upper(), f"Bearer {KEY}", f"x{KEY}x", KEY * 3, f"'{KEY[:20]}…'"),
        *(quote(KEY), quote(KEY, safe=""), quote_plus(KEY), html.escape(KEY), json.dumps(KEY)),
        *(KEY.encode().hex(), KEY.encode().hex().upper(), BASIC),
        *(base64.b64encode(b"x" * i + KEY.encode() + b"y").decode() for i in range(6)),
        *(base64.urlsafe_b64encode(b"x" * i + KEY.encode() + b"y").decode() for i in range(6)),
    ],
)
def test_a_secret_is_found_in_all_its_forms(text: str) -> None:
    hidden = KNOWN.redact(f"before {text} after")
    assert hidden.startswith("before ")
    assert hidden.endswith(" after")
    assert "[redacted]" in hidden
    left = hidden.lower()
    assert not any(KEY[i : i + 8].lower() in left for i in range(len(KEY) - 8)), hidden


@given(st.text())
def test_other_text_stays_as_it_is(text: str) -> None:
    assert Secrets(("no such text anywhere",)).redact(text) == text
    assert Secrets().redact(text) == text


@pytest.mark.parametrize("weak", ["", "short", "password", "postgresql"])
def test_what_is_short_or_may_be_a_word_is_not_compared(weak: str) -> None:
    assert Secrets((weak,)).redact(f"the {weak} is wrong") == f"the {weak} is wrong"


_PARTS = st.sampled_from(
    (KEY, PLAIN, KEY[:20], KEY[:9], PLAIN[:7], "sk-", "s", "S", "hunter2!", "hunter", BASIC, " ", "and")
)


@given(st.lists(_PARTS, max_size=12).map("".join), st.lists(st.integers(min_value=0, max_value=300), max_size=40))
def test_in_pieces_it_is_the_same_as_in_whole(text: str, cuts: list[int]) -> None:
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    passing = Passing(KNOWN)
    shown = "".join(passing.add(text[a:b]) for a, b in pairwise(places)) + passing.add("", last=True)
    assert shown == KNOWN.redact(text)


def test_what_cannot_begin_a_secret_is_shown_at_once() -> None:
    passing = Passing(KNOWN)
    assert [passing.add(text) for text in ("The answer i", "s", " 42. s", "k-", "Canadian")] == [
        "The answer i", "", "s 42. ", "", "sk-Canadian",
    ]  # fmt: skip


@pytest.mark.slow
def test_a_flood_of_secrets_costs_no_time_and_leaves_none() -> None:
    def seconds(times: int) -> float:
        text = f"{PLAIN} and " * times
        begun = time.process_time()
        assert PLAIN not in KNOWN.redact(text)
        return time.process_time() - begun

    assert KNOWN.redact(f"{PLAIN} and " * 1000).count("[redacted]") == 101
    seconds(100)
    # A hundred times as long a text takes a hundred times as long; one square in it would be ten thousand times.
    assert min(seconds(50_000) for _ in range(3)) < 500 * max(seconds(500), 1e-4)


def test_an_error_has_none_wherever_the_provider_puts_it(known: None) -> None:
    for text in (KEY, PLAIN, f"req_{PLAIN}", BASIC):
        body = json.dumps({"error": {"message": text, "code": text, "type": text, "param": text, "request_id": text}})
        error = ProviderHTTPError(401, body.encode(), {"x-request-id": text, "request-id": text}, provider="fake")
        told = json.dumps(classify(error, source="model").to_error(step="1", attempt=1)).lower()
        assert not any(each.lower() in told for each in (KEY, PLAIN, BASIC)), told


def test_a_failure_has_none_whoever_makes_it(known: None) -> None:
    failure = Failure.of(
        ErrorClass.TOOL_ERROR,
        " " * 1_990 + KEY,
        code=f"fake.{PLAIN}",
        provider=ProviderDetails("fake", request_id=f"req_{PLAIN}"),
    )
    assert KEY[:3] not in failure.message
    assert failure.code == "tool_error"
    assert failure.provider is not None
    assert failure.provider.request_id is None


def test_an_answer_has_none(known: None) -> None:
    call = {"id": PLAIN, "function": {"name": PLAIN, "arguments": json.dumps({"to": KEY})}}
    message = {"content": f"The key is {KEY}.", "tool_calls": [call]}
    completion = Completion()
    completion.read(json.dumps({"choices": [{"message": message}]}).encode())
    reply = completion.reply()
    assert reply.content == "The key is [redacted]."
    (made,) = reply.tool_calls
    assert (made.id, made.name, made.arguments) == ("call00000", "[redacted]", '{"to": "[redacted]"}')


def test_settings_know_what_they_keep_secret(monkeypatch: pytest.MonkeyPatch, known: None) -> None:
    settings = Settings(
        redis_url="redis://user:p%40ssw0rd-1@127.0.0.1:6379/0",
        broker_url="amqp://user:rabbit-5@127.0.0.1//",
        api_keys="alice=the-key-of-alice-1,the-key-of-bob-no-2",
    )
    assert settings.secrets == ("the-key-of-alice-1", "the-key-of-bob-no-2", "p@ssw0rd-1", "rabbit-5")
    register_secrets(settings.secrets)
    assert redact("p@ssw0rd-1 p%40ssw0rd-1 rabbit-5 the-key-of-bob-no-2") == " ".join(["[redacted]"] * 4)
    assert not list(passwords_of("http://["))
    assert not list(passwords_of(None))
    url = "redis+sentinel://u:own%40@a:1,[::1]:2/m/0?sentinel_username=w&sentinel_password=of+all%2F"
    assert list(passwords_of(url)) == ["own@", "of all/"]
    cluster = Settings(redis_url="redis+cluster://u:the%2Fone%40@a:1,[::1]:2/0", broker_url="redis://:br0ker-1@b/0")
    assert cluster.secrets == ("the/one@", "br0ker-1")


def test_a_log_line_has_none(known: None) -> None:
    logger, written = logging.Logger("of a test"), io.StringIO()
    logger.addHandler(logging.StreamHandler(written))
    set_formats(logger)
    set_formats(logger)
    try:
        raise ValueError(f"the key {KEY} is wrong")
    except ValueError:
        logger.exception("asked with %s", PLAIN)
    text = written.getvalue()
    assert text.startswith("asked with [redacted]\nTraceback")
    assert "ValueError: the key [redacted] is wrong" in text


def test_secrets_of_a_conversation_are_found_while_it_is_worked_for() -> None:
    text = "the token is tok-conversation-1 and the pin is 4711"
    with secrets.redaction_scope():
        secrets.add_secrets(Secrets(["tok-conversation-1", "4711"], named=True))
        assert redact(text) == "the token is [redacted] and the pin is [redacted]"
        passing = Passing()
        with secrets.redaction_scope():
            assert redact(text) == text
    assert redact(text) == text
    # What goes by in pieces is compared with what was known where it began.
    assert "".join((passing.add(text[:20]), passing.add(text[20:], last=True))) == (
        "the token is [redacted] and the pin is [redacted]"
    )


def test_every_thread_of_a_process_for_one_conversation_finds_them() -> None:
    secrets.add_secrets_everywhere(Secrets(["tok-conversation-1"], named=True))
    try:
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(redact, "tok-conversation-1").result() == "[redacted]"
    finally:
        secrets.add_secrets_everywhere(None)
    assert redact("tok-conversation-1") == "tok-conversation-1"


@pytest.mark.parametrize("value", ["1234", "production", "p@ss", "ümläut"])
def test_a_short_one_is_found_if_somebody_called_it_a_secret(value: str) -> None:
    assert Secrets([value]).redact(f"x {value} y") == f"x {value} y"
    assert Secrets([value], named=True).redact(f"x {value} y") == "x [redacted] y"


@pytest.mark.slow
@hypothesis.settings(deadline=None)
@given(st.integers(1, 400), st.integers(0, 60))
def test_a_long_one_is_found_in_pieces_of_any_size(size: int, before: int) -> None:
    text = "y" * before + f"before {LONG} after"
    passing = Passing(LONG_KNOWN)
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    shown = "".join(passing.add(piece) for piece in pieces) + passing.add("", last=True)
    assert shown == "y" * before + "before [redacted] after"


def test_the_end_of_a_text_that_begins_like_a_long_one_is_held_back() -> None:
    for cut in range(len(LONG)):
        shown = Passing(LONG_KNOWN).add(f"so: {LONG[:cut]}")
        assert shown == "so: ", cut
