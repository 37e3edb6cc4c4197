"""A model as ``GET /v1/models`` lists it, and the SDK gives it back."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from palaver.schemas.fields import DataModel

ANY_OTHER: Final = "*"
"""The name that stands for all models of a provider that are not listed by their own."""


class ListedPrice(DataModel):
    """A model's price, in US dollars per million tokens."""

    input: float
    output: float
    """The price of the answer, reasoning included."""
    cached_input: float | None = None
    """The price of input tokens that came from the provider's cache; None: as ``input``."""
    cache_write: float | None = None
    """The price of input tokens that went into it; None: as ``input``."""


class ListedModel(DataModel):
    """A model that runs may name. The limits are those of its provider, for all models of it together."""

    id: str
    """As runs name it, ``provider/name``; ``provider/*`` stands for any other name, which the provider may know."""
    provider: str
    name: str
    """The provider's own name of it."""
    protocol: str
    """The protocol that the provider speaks."""
    callable: bool | None
    """True if a worker can call the provider, or could within the last hour; None while a worker of an older version
    does not say."""
    cooling_until: datetime | None
    """The provider asked for fewer requests: the model is not called before."""
    max_in_flight: int | None
    requests_per_minute: int | None
    tokens_per_minute: int | None
    price: ListedPrice | None
    """The price; None if none is set."""
