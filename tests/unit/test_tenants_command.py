"""``palaver tenants set``: what is wrong is said before anything is asked."""

from __future__ import annotations

import pytest

from workers.commands import tenants


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "nothing is set: --weight, --max-in-flight"),
        (("--weight", "0"), "--weight: Input should be greater than or equal to 1"),
        (("--weight", "1001"), "--weight: Input should be less than or equal to 1000"),
        (("--usd-per-day", "0"), "--usd-per-day: Input should be greater than"),
        (("--usd-per-day", "nan"), "--usd-per-day: Input should be"),
        (("--usd-per-month", "2e6"), "--usd-per-month: Input should be less than or equal to 1000000"),
        (("--max-queued", "-1", "--weight", "0"), "; --max-queued: "),
        (("--max-queued", "many"), "invalid _number value: 'many'"),
    ],
)
def test_what_is_no_cap_is_refused(words: tuple[str, ...], said: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        tenants.main(["set", "acme", *words])
    assert end.value.code == 2
    assert said in capfd.readouterr().err
