"""The check of providers: each is asked for a token, through the code that model steps call them with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Final
from urllib.parse import urlsplit

from palaver.config.providers import Provider
from palaver.errors import ErrorClass, Failure, classify
from palaver.late import dataclass
from palaver.schemas.models import AgentSpec, Message
from palaver.secrets.redaction import redact

from ..models.call_clock import CallProgress
from ..models.model import ModelPort
from ..protocols import PROTOCOLS

UNKNOWN_MODEL: Final = "palaver-check"
"""The model to ask for where none is named. A provider that says that it has none of this name was reached, and has
taken the key."""
_AT_A_TIME: Final = 32
_LIMITS: Final = ("max_tokens", "max_output_tokens")
"""The protocols' names for the limit of an answer's length."""
_PROMPT: Final = "Answer with one word."
_C = ErrorClass

_WANTS_A_KEY: Final = "wants a key"
_ADVICE: Final[Mapping[str, str]] = {
    "connect_refused": "no server listens at {host}: start the server, or mend base_url",
    "dns": "no host is called {host}, or this machine cannot look it up: mend base_url or the DNS",
    "tls": "what listens at {host} does not speak TLS: base_url may have to begin with http://",
    "tls_certificate": "its certificate is not trusted here: name its authority with SSL_CERT_FILE, or mend base_url",
    "connect_timeout": "this machine gets no connection to {host}: mend base_url, or let it through the firewall",
    "unreachable": "this machine has no way to {host}: mend base_url or the network",
    "protocol_error": "what listens at {host} does not speak HTTP, or https:// is wanted: mend base_url",
    "bad_model_response": "what answers at {url} is no model: base_url mostly ends in /v1",
    "model_not_found": "it has no model {model!r}: name one that it has with --model",
    "total_timeout": "it did not answer in time: try again, or give it more with --timeout",
    "first_token_timeout": "it did not answer in time: try again, or give it more with --timeout",
    _WANTS_A_KEY: "it wants a key: name the variable that has it with api_key_env",
    _C.CONNECTION: "try again; if it stays so, look at {host} and at what is between",
    _C.AUTHENTICATION: "check the key in {key}",
    _C.PERMISSION: "the key in {key} may not use {model!r}: ask for access, or name another model with --model",
    _C.NOT_FOUND: "there is nothing at {url}, or no model {model!r}: base_url mostly ends in /v1",
    _C.QUOTA_EXHAUSTED: "add credit at the provider, or raise its limit",
    _C.RATE_LIMITED: "it was reached, and asks for fewer requests: wait, or lower requests_per_minute",
    _C.PROVIDER_ERROR: "the fault is at the provider: try again in a while",
    _C.INVALID_REQUEST: "it was reached, and does not like the request: read what it says",
}
"""Advice by code or by class."""


@dataclass(frozen=True, slots=True)
class ProviderFinding:
    """The outcome of asking a provider."""

    provider: str
    model: str | None
    """None where none was named."""
    ok: bool
    said: str
    """A sentence: that it answers, or why not."""
    advice: str = ""
    """Advice about it; empty if none is needed."""
    code: str | None = None
    """The code of the failure."""
    provider_said: str | None = None
    """In its own words."""


async def check_all(
    providers: Mapping[str, Provider], model: str | None, seconds: float
) -> AsyncIterator[ProviderFinding]:
    """Ask ``providers`` for a token each, side by side, ``seconds`` long at most; answers as they come.

    ``model`` is the provider's own name of the model; None for one that its table names.
    """
    places = asyncio.Semaphore(_AT_A_TIME)

    async def in_turn(name: str, provider: Provider) -> ProviderFinding:
        async with places:
            return await check(name, provider, model, seconds)

    for answer in asyncio.as_completed([in_turn(*entry) for entry in providers.items()]):
        yield await answer


async def check(name: str, provider: Provider, model: str | None, seconds: float) -> ProviderFinding:
    """Ask one provider. Whatever goes wrong is the finding."""
    if not provider.has_key:
        key = provider.api_key_env
        return ProviderFinding(name, model, False, f"The variable {key} with its key is not set.", f"set {key}", "key")
    named = model or next((listed for listed in (*provider.models, *provider.prices) if listed != "*"), None)
    failure = await _ask(name, provider, named or UNKNOWN_MODEL, seconds)
    if failure and any(limit in _words(failure) for limit in _LIMITS):
        # Some models think before their first token, and refuse such a limit; runs set none unless one is asked for.
        failure = await _ask(name, provider, named or UNKNOWN_MODEL, seconds, max_tokens=None)
    if failure is None:
        return ProviderFinding(
            name, named, True, "It answers." if named else "It answers, whatever the model is called."
        )
    if named is None and _knows_no_such_model(failure):
        advice = "name a model of it, with --model or as `models` in its table, to be sure"
        return ProviderFinding(name, None, True, "It answers, and takes the key.", advice)
    finding = _finding(name, provider, named, failure)
    if _may_be_elsewhere(failure):
        better = await _better(name, provider, named or UNKNOWN_MODEL, seconds)
        finding = replace(finding, advice=better or finding.advice)
    return finding


async def _ask(
    name: str, provider: Provider, model: str, seconds: float, *, max_tokens: int | None = 1
) -> Failure | None:
    """Ask for one token; None if an answer came."""
    agent = AgentSpec(model=f"{name}/{model}", max_output_tokens=max_tokens)
    port = ModelPort({name: provider})
    protocol = port.protocol(agent)
    prompt = protocol.message(Message(role="user", content=_PROMPT))
    try:
        await port.complete(
            agent,
            protocol.body(agent, [prompt], (), port.settings(agent, plain=True)),
            on_begin=lambda: None,
            show=lambda text, thoughts: None,
            time_left=seconds,
            request_id="check",
            reader=protocol.reader(max_calls=1),
            progress=CallProgress(),
        )
    except Exception as error:
        return classify(error, source="model", provider=name, model=model)
    finally:
        await port.close()
    return None


async def _better(name: str, provider: Provider, model: str, seconds: float) -> str:
    """Return what to write in the table so that it does answer; empty if none of the usual omissions is to blame."""
    tries: dict[str, Provider] = {}
    if not urlsplit(provider.base_url).path.rstrip("/").endswith("/v1"):
        place = f"{provider.base_url.rstrip('/')}/v1"
        tries[f"it answers at another address: base_url = {redact(place)!r}"] = provider.model_copy(
            update={"base_url": place}
        )
    for protocol in PROTOCOLS.keys() - {provider.protocol}:
        tries[f"it speaks another protocol: protocol = {protocol!r}"] = provider.model_copy(
            update={"protocol": protocol}
        )
    for advice, other in tries.items():
        failure = await _ask(name, other, model, seconds)
        if failure is None or (model == UNKNOWN_MODEL and _knows_no_such_model(failure)):
            return advice
    return ""


def _may_be_elsewhere(failure: Failure) -> bool:
    """Tell whether the address or the protocol may be to blame."""
    refused = failure.error_class in (_C.NOT_FOUND, _C.INVALID_REQUEST) and not _knows_no_such_model(failure)
    return refused or failure.code == "bad_model_response"


def _knows_no_such_model(failure: Failure) -> bool:
    return failure.error_class in (_C.NOT_FOUND, _C.INVALID_REQUEST) and "model" in f"{failure.code} {_words(failure)}"


def _words(failure: Failure) -> str:
    """Return the provider's words in lower case."""
    return ((failure.provider and failure.provider.message) or "").lower()


def _finding(name: str, provider: Provider, model: str | None, failure: Failure) -> ProviderFinding:
    place = urlsplit(provider.base_url)
    host = f"{place.hostname}{f':{place.port}' if place.port else ''}"
    code = failure.code.removeprefix(f"{name}.")
    if failure.error_class is _C.AUTHENTICATION and not provider.api_key_env:
        code = _WANTS_A_KEY
    elif failure.error_class is _C.NOT_FOUND and _knows_no_such_model(failure):
        code = "model_not_found"
    advice = _ADVICE.get(code) or _ADVICE.get(failure.error_class) or "read what it says"
    formatted = advice.format(
        host=host,
        url=f"{place.scheme}://{host}{place.path.rstrip('/')}{PROTOCOLS[provider.protocol].path}",
        key=provider.api_key_env or "the address",
        model=model or UNKNOWN_MODEL,
    )
    provider_message = failure.provider.message if failure.provider else None
    return ProviderFinding(name, model, False, failure.message, formatted, failure.code, provider_message)
