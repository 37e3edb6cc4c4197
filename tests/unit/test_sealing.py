"""What is sealed opens with its key, at its place, and nowhere else."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.config.settings import settings
from palaver.errors import ConfigurationError
from palaver.secrets.redaction import redact
from palaver.secrets.sealing import KeyMissing, SealBroken, Sealer, key_of

OLD, NEW = (bytes((i * step + 7) % 256 for i in range(32)) for step in (37, 91))
PLACE = ("conv_1", "TOKEN")


@given(st.text(), st.lists(st.text()), st.lists(st.text()))
def test_it_opens_at_its_place_alone(text: str, place: list[str], other: list[str]) -> None:
    sealer = Sealer([NEW])
    sealed = sealer.seal(text, *place)
    assert sealer.open(sealed, *place) == text
    if other != place:
        with pytest.raises(SealBroken):
            sealer.open(sealed, *other)


def test_the_same_text_is_sealed_differently_each_time() -> None:
    sealer = Sealer([NEW])
    assert len({sealer.seal("hunter2", *PLACE) for _ in range(20)}) == 20


def test_the_first_key_seals_and_each_one_opens() -> None:
    before, rotating, after = Sealer([OLD]), Sealer([NEW, OLD]), Sealer([NEW])
    old, new = before.seal("a", *PLACE), rotating.seal("b", *PLACE)
    assert (rotating.open(old, *PLACE), rotating.open(new, *PLACE), after.open(new, *PLACE)) == ("a", "b", "b")
    assert (rotating.is_newest(old), rotating.is_newest(new)) == (False, True)
    for lacking, sealed in ((after, old), (before, new), (Sealer(), new)):
        with pytest.raises(KeyMissing):
            lacking.open(sealed, *PLACE)


def test_without_a_key_nothing_is_sealed() -> None:
    assert not Sealer()
    with pytest.raises(KeyMissing):
        Sealer().seal("a", *PLACE)


def test_whatever_is_changed_does_not_open() -> None:
    sealer = Sealer([NEW])
    sealed = sealer.seal("a secret", *PLACE)
    start = sealed.rindex(".") + 1
    for at in range(start, len(sealed.rstrip("=")) - 1):
        changed = sealed[:at] + ("A" if sealed[at] != "A" else "B") + sealed[at + 1 :]
        with pytest.raises(SealBroken):
            sealer.open(changed, *PLACE)
    for cut in (sealed[:start], sealed[: start + 8], sealed + "!!!!"):
        with pytest.raises(SealBroken):
            sealer.open(cut, *PLACE)
    for strange in ("", "1", "2" + sealed[1:], "1..", "plain text"):
        with pytest.raises(KeyMissing):
            sealer.open(strange, *PLACE)


def test_a_key_may_be_written_in_base64_or_in_hex() -> None:
    raw = bytes(range(200, 232))
    for text in (raw.hex(), base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode()):
        assert key_of(text) == raw


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("hunter2", "entry 1 is not 32 bytes"),
        ("a-long-sentence-that-somebody-thought-of", "entry 1 is not 32 bytes"),
        (base64.b64encode(bytes(range(16))).decode(), "entry 1 is not 32 bytes"),
        (base64.b64encode(bytes(32)).decode(), "entry 1 is not random"),
        (f"{NEW.hex()},{'ab' * 32}", "entry 2 is not random"),
        (" , ", "holds no key"),
    ],
)
def test_a_weak_key_is_refused_and_not_quoted(monkeypatch: pytest.MonkeyPatch, text: str, told: str) -> None:
    settings.cache_clear()
    monkeypatch.setenv("PALAVER_SECRET_KEY", text)
    with pytest.raises(ConfigurationError, match=f"PALAVER_SECRET_KEY: .*{told}") as refused:
        settings()
    assert not text.strip(" ,") or text not in str(refused.value)
    settings.cache_clear()


def test_keys_are_secrets_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    settings.cache_clear()
    old, new = OLD.hex(), base64.b64encode(NEW).decode()
    monkeypatch.setenv("PALAVER_SECRET_KEY", f"{new}, {old}")
    here = settings()
    settings.cache_clear()
    assert old not in repr(here)
    assert new not in repr(here)
    assert redact(f"{old} and {new}") == "[redacted] and [redacted]"
    sealed = Sealer([OLD]).seal("a", *PLACE)
    assert here.sealer.open(sealed, *PLACE) == "a"
