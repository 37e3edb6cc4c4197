"""The models that runs may name."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Final, get_args

from palaver.config.providers import Provider
from palaver.errors import Refused
from palaver.late import dataclass
from palaver.operations.admission import may_name
from palaver.operations.backend import Backend, Caller, within_deadline
from palaver.schemas.fields import ModelName
from palaver.schemas.listed_model import ANY_OTHER, ListedModel, ListedPrice
from palaver.store.fleet.provider_states import ProviderUsage
from palaver.vocabulary.limits import count_exceeded, limit_of

_MODEL: Final = re.compile(get_args(ModelName)[1].pattern)


@dataclass(frozen=True, slots=True)
class ModelPage:
    """A page of models by id, and the cursor of the next page; None on the last one."""

    models: Sequence[ListedModel]
    next_cursor: str | None


async def list_models(backend: Backend, *, limit: int, cursor: str | None) -> ModelPage:
    """Return the models that tables of providers name, by id, and for each provider ``*``: any other name.

    Raises:
        Refused: ``invalid_cursor``.
    """
    known = sorted((provider, name) for provider, table in backend.providers.items() for name in _names(table))
    begin = bisect_right(known, _place(cursor)) if cursor else 0
    shown = known[begin : begin + limit]
    callable_ = await within_deadline(backend.catalog.providers())
    names = dict.fromkeys(provider for provider, _ in shown)
    states = {state.name: state for state in await within_deadline(backend.store.providers.state(names))}
    models = [_listed(*model, backend.providers, states, callable_) for model in shown]
    return ModelPage(models, _cursor(shown[-1]) if begin + limit < len(known) else None)


async def nameable_models(backend: Backend, caller: Caller) -> Sequence[str]:
    """Return the models of providers that requests of the caller may name, as far as tables name them, by id."""
    known = sorted(
        f"{provider}/{name}"
        for provider, table in backend.providers.items()
        for name in _names(table)
        if name != ANY_OTHER
    )
    return await may_name(known, backend, caller)


async def is_nameable(backend: Backend, model: str, caller: Caller) -> bool:
    """Tell whether a request of the caller may name a model of a provider, whether its table names it or not."""
    known = model.partition("/")[0] in backend.providers and _MODEL.fullmatch(model) is not None
    return known and bool(await may_name([model], backend, caller))


def _names(provider: Provider) -> set[str]:
    return {*provider.models, *provider.prices, ANY_OTHER}


def _listed(
    name: str,
    model: str,
    providers: Mapping[str, Provider],
    states: Mapping[str, ProviderUsage],
    callable_: frozenset[str] | None,
) -> ListedModel:
    provider = providers[name]
    price = provider.price(model)
    return ListedModel(
        id=f"{name}/{model}",
        provider=name,
        name=model,
        protocol=provider.protocol,
        callable=None if callable_ is None else name in callable_,
        # The process that would know is away, if there is no state.
        cooling_until=states[name].model_cools_until(model) if name in states else None,
        max_in_flight=provider.max_in_flight,
        requests_per_minute=provider.requests_per_minute,
        tokens_per_minute=provider.tokens_per_minute,
        price=None if price is None else ListedPrice(**price.model_dump()),
    )


def _cursor(last: tuple[str, str]) -> str:
    return urlsafe_b64encode("/".join(last).encode()).decode()


def _place(cursor: str) -> tuple[str, str]:
    """Return the last model of the page before. Raises Refused."""
    if len(cursor) > limit_of("cursor"):
        count_exceeded("cursor")
    try:
        provider, slash, name = urlsafe_b64decode(cursor[: limit_of("cursor")].encode("ascii")).decode().partition("/")
    except ValueError:
        slash = ""
    if not slash or len(cursor) > limit_of("cursor"):
        raise Refused("invalid_cursor", "The cursor is not one that a list of models gave.")
    return provider, name
