"""Receipts of erasures: what they count."""

from __future__ import annotations

import pytest

from features.offboarding import belongings
from features.offboarding.belongings import counted_kinds
from palaver.store.sides import StoreSide, sides


def test_a_receipt_counts_each_kind_of_thing_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {"runs", "acts", *(side.kind for side in sides().values() if side.kind)} < {*counted_kinds()}

    class Side(StoreSide):
        kind = "runs"

    monkeypatch.setattr(belongings, "sides", lambda: {"other": Side()})
    with pytest.raises(ValueError, match="count runs in receipts"):
        counted_kinds()
