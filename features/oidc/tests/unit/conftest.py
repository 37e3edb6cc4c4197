"""An issuer on this machine, for every test of this folder."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from features.oidc import issuer
from features.oidc.tests.unit.local_issuer import LocalIssuer, local_issuer


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take longer than a client waits."""
    monkeypatch.setattr(issuer, "_PATIENCE", 30.0)
    monkeypatch.setattr(issuer, "_DEADLINE", 30.0)


@pytest.fixture
async def there() -> AsyncIterator[LocalIssuer]:
    async with local_issuer() as made:
        yield made
