"""Judges an error answer of a provider: by its codes first, then its wording, then its status.

Sources: the error pages of OpenAI, Anthropic, Google, Azure, Groq, Mistral and OpenRouter, the messages of vLLM,
llama.cpp, LM Studio, Ollama and LiteLLM. The provider's own words decide, and as they quote prompts and keys they are
stored apart: a failure's message has our sentence, the code, the parameter at fault and the request's number;
``provider.message`` has the words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from palaver.errors.body import ErrorBody, read_body
from palaver.errors.failure import Failure, ProviderDetails
from palaver.errors.headers import asks_for_no_retry, request_id, retry_after
from palaver.errors.length import is_about_length, may_be_about_length
from palaver.errors.vocabulary import FACTS, ErrorClass, Source
from palaver.errors.wordings import Wording, each, words

_C = ErrorClass

_STATUSES: Final[Mapping[int, ErrorClass]] = {
    401: _C.AUTHENTICATION,
    402: _C.QUOTA_EXHAUSTED,
    403: _C.PERMISSION,
    404: _C.NOT_FOUND,
    407: _C.AUTHENTICATION,
    408: _C.TIMEOUT,
    # A lock inside the provider; OpenAI's and Anthropic's own clients retry it too.
    409: _C.PROVIDER_ERROR,
    410: _C.NOT_FOUND,
    421: _C.CONNECTION,
    424: _C.PROVIDER_ERROR,  # Bedrock: the model behind the API failed
    425: _C.PROVIDER_ERROR,
    429: _C.RATE_LIMITED,
    451: _C.PERMISSION,
    499: _C.CONNECTION,  # a proxy's word for "the client hung up"; it was not us, or we would not read it
    529: _C.RATE_LIMITED,  # Anthropic: overloaded
}


def _codes(error_class: ErrorClass, codes: str) -> dict[str, ErrorClass]:
    return dict.fromkeys(codes.split(), error_class)


_DECISIVE_CODES: Final[Mapping[str, ErrorClass]] = {
    **_codes(
        _C.CONTEXT_WINDOW,
        "context_length_exceeded context_overflow context_size_exceeded context_window_exceeded"
        " contextwindowexceedederror exceed_context_size_error input_length_exceeded input_too_long"
        " model_context_window_exceeded model_max_prompt_tokens_exceeded prompt_too_long prompt_tokens_exceeded"
        " request_too_large tokens_limit_reached",
    ),
    **_codes(
        _C.CONTENT_FILTER,
        "content_filter content_filtered content_policy_violation contentpolicyviolationerror"
        " data_inspection_failed moderation_blocked responsibleaipolicyviolation bio_policy"
        " image_content_policy_violation misalignment_policy_violation",
    ),
    **_codes(
        _C.QUOTA_EXHAUSTED,
        "billing_error billing_hard_limit_reached billing_not_active budget_exceeded contract_spend_limit_reached"
        " credit_balance_exhausted enforced_spend_limit_reached exceededbudget exceeded_current_quota_error"
        " insufficient_balance insufficient_credits insufficient_quota linked_organization_billing_unavailable"
        " linked_organization_spend_limit_reached organization_spend_limit_exceeded"
        " organization_usage_limit_exceeded payment_required project_spend_limit_exceeded",
    ),
}
"""These say more than any status they come with."""

_TELLING_CODES: Final[Mapping[str, ErrorClass]] = {
    **_codes(
        _C.AUTHENTICATION,
        "api_key_invalid authentication_error invalid_api_key invalid_authentication_error unauthenticated"
        " no_db_connection",  # LiteLLM, of a key that is not its own: it would look for it in a database
    ),
    **_codes(_C.PERMISSION, "access_denied permission_denied permission_error"),
    **_codes(_C.NOT_FOUND, "deploymentnotfound model_not_found not_found_error"),
    **_codes(
        _C.RATE_LIMITED,
        "engine_overloaded_error overloaded_error rate_limit_error rate_limit_exceeded resource_exhausted"
        " throttlingexception too_many_requests",
    ),
    **_codes(_C.TIMEOUT, "deadline_exceeded modeltimeoutexception request_timeout timeout_error"),
    # Groq: the model wrote a call that does not parse; another try writes another one.
    **_codes(_C.PROVIDER_ERROR, "api_error internal_error internal_server_error server_error tool_use_failed"),
    **_codes(_C.INVALID_REQUEST, "invalid_request_error invalid_argument invalid_prompt invalid_encrypted_content"),
}
"""These decide where the status does not: in a 2xx (an error inside a stream) and in a 400."""


_ABOVE: Final = frozenset({"array_above_max_length", "string_above_max_length"})
_OF_THE_CONVERSATION: Final = re.compile(r"(?:messages|input|prompt)\b(?!.*\.(?:name|\w*id|\w*url|\w*data)$)")
"""Matches what OpenAI calls a part of the conversation. Other fields have a longest length, too."""
_NAMED_FIELD: Final = re.compile(r"'([^']{1,80})': (?:string|array) too long")
_TOO_LARGE_FOR_ANY_MINUTE: Final = Wording(r"must be reduced in order to run")
"""OpenAI's 429 for a prompt above the whole limit of a minute: waiting cannot help, a shorter prompt can."""
_CONTENT: Final = Wording(
    r"content[ _](?:management )?(?:policy|filter)",
    r"safety (?:system|filter|polic|reason|guard|check)",
    each("blocked|rejected|flagged|refused", r" .{0,40}safety"),
    each("input|prompt|request|message|content", r"s? (?:was|were|is|has been|have been) flagged"),
    r"violat\w{1,4} .{0,40}polic",
)
_QUOTA: Final = Wording(
    r"exceeded your (?:current|monthly|daily) quota",
    r"budget has been exceeded",
    r"exceeded (?:\S+ ){0,3}budget",
    r"credit balance is too low",
    r"insufficient (?:account )?(?:balance|credit|fund|quota)",
    r"out of credit",
    r"spend(?:ing)? limit",
    r"reached your specified (?:workspace )?(?:api )?usage limits",  # Anthropic's 400
    words("billing", r"\b(?<!/billing)"),  # not the link to a page, which a limit of a minute shows as well
)
_KEY: Final = Wording(r"api key not valid", r"(?:incorrect|invalid) (?:x-)?api[ -]key")

_LENGTH: Final = frozenset({0, 400, 413, 422, 500})
"""Statuses of a request that is too long. 0 stands for every 2xx; 500 is what some gateways make of the 400 behind
them."""
_WORDING: Final[tuple[tuple[Wording, ErrorClass, frozenset[int]], ...]] = (
    (_TOO_LARGE_FOR_ANY_MINUTE, _C.CONTEXT_WINDOW, frozenset({429})),
    (_QUOTA, _C.QUOTA_EXHAUSTED, frozenset({0, 400, 403, 429})),
    (_CONTENT, _C.CONTENT_FILTER, frozenset({0, 400, 403, 422})),
    (_KEY, _C.AUTHENTICATION, frozenset({0, 400})),
)

_MEDIA: Final = Wording(
    r"image",
    r"picture",
    words("vision|pdf|media", r"\b"),
    r"multi-?modal",
    r"media_type",
    r"mmproj",
    r"图[片像]|画像|이미지",
    r"url sources?\b",
    each("download|fetch", r"\w* .{0,40}(?:url\b|https?:)"),
    r"content\b.{0,40}(?:must|should) be a (?:valid )?string",  # servers of models that read text alone
    r"incorrect padding",
    r"base64",
    r"input_file|file_data",
    each(
        "could not|unable to|failed to|cannot|invalid|unsupported|corrupt",
        r"\w* .{0,40}\b(?:file|document)",
    ),
)
_OF_A_SCHEMA: Final = re.compile(r"(?i)schema|parameters|\.description\b|\.name\b")
_NAMED_TOOL: Final = re.compile(
    r"(?i)(?:function|tool) ['\"`]([A-Za-z0-9_-]{1,64})['\"`]|schema for (?:function|tool) ([A-Za-z0-9_-]{1,64})\b"
)
_PLACED_TOOL: Final = re.compile(
    r"\bfunction_?declarations[.\[](\d{1,4})|\btools[.\[](\d{1,4})(?!.*function_?declar)", re.I
)
_OF_A_TOOL: Final = Wording(r"schema", r"function", r"tools?[\[.]")
_HINTS: Final = (
    (Wording(r"does not support (?:tool|function)"), "tools_unsupported"),
    (
        Wording(r"model .{0,80}(?:not found|does not exist|is not supported)", r"no such model"),
        "model_not_found",
    ),
    (Wording(r"item with id .{1,100} not found"), "item_not_found"),
)
"""Codes for what local servers say in words only."""


def classify_response(
    status: int,
    body: bytes,
    headers: Mapping[str, str],
    *,
    provider: str | None = None,
    model: str | None = None,
    request: str | None = None,
    source: Source = "model",
) -> Failure:
    """The failure that an error answer means. ``request`` is the request's number, if known. Never raises."""
    error_body = read_body(body)
    error_class = _error_class(status, error_body)
    code = _code(status, error_body, provider)
    wait = retry_after(headers)
    return Failure.of(
        error_class,
        _message(error_class, status, error_body, code),
        code=code,
        source=source,
        retryable=False if asks_for_no_retry(headers) else None,
        user_action="settings" if error_class is _C.INVALID_REQUEST and 300 <= status < 400 else None,
        retry_after=error_body.retry_after if wait is None else wait,
        provider=ProviderDetails(
            provider, model, status, request or request_id(headers) or error_body.request_id, error_body.quote
        )
        if provider
        else None,
    )


def may_be_too_long(status: int, body: bytes) -> bool:
    """Tell whether a refusal of an invalid request may be one of a request that is too long. Never raises."""
    return may_be_about_length(status, read_body(body).text)


def is_about_media(body: bytes) -> bool:
    """Tell whether a refusal is about an image or a file of the conversation. Never raises."""
    error_body = read_body(body)
    said = " ".join((*error_body.codes, error_body.param or "", error_body.text))
    return bool(_MEDIA.search(said)) and not _OF_A_TOOL.search(said)


def refused_tool(body: bytes) -> str | int | None:
    """Return the tool whose schema is what a refusal is about, by its name or its place in the request. Never
    raises."""
    error_body = read_body(body)
    said = f"{error_body.param or ''} {error_body.quote}"
    if not _OF_A_SCHEMA.search(said):
        return None
    if named := _NAMED_TOOL.search(said):
        return named[1] or named[2]
    placed = _PLACED_TOOL.search(said)
    return int(placed[1] or placed[2]) if placed else None


def _error_class(status: int, body: ErrorBody) -> ErrorClass:
    if body.html:
        return _of_page(status)
    decisive = next((_DECISIVE_CODES[code] for code in body.codes if code in _DECISIVE_CODES), None)
    if decisive:
        return decisive
    if not _ABOVE.isdisjoint(body.codes):
        named = _NAMED_FIELD.search(body.text)
        if _OF_THE_CONVERSATION.match(body.param or (named[1] if named else "messages")):
            return _C.CONTEXT_WINDOW
    family = 0 if 200 <= status < 300 else status
    if family in _LENGTH and is_about_length(body.text):
        return _C.CONTEXT_WINDOW
    for pattern, error_class, statuses in _WORDING:
        if family in statuses and pattern.search(body.text):
            if status == 429 and error_class is _C.QUOTA_EXHAUSTED and body.retry_after is not None:
                continue  # Google says "current quota" for a minute's limit too, and then names the wait
            return error_class
    if family in (0, 400):
        telling = next((_TELLING_CODES[code] for code in body.codes if code in _TELLING_CODES), None)
        if telling:
            return telling
    if family == 0:
        return _of_status(body.status) if body.status else _C.PROVIDER_ERROR
    return _of_status(status)


def _of_status(status: int) -> ErrorClass:
    if status in _STATUSES:
        return _STATUSES[status]
    return _C.INVALID_REQUEST if 300 <= status < 500 else _C.PROVIDER_ERROR


def _of_page(status: int) -> ErrorClass:
    """A page comes from a proxy, which knows addresses, sizes and rates, but not what a valid request is."""
    error_class = _of_status(status)
    of_proxy = error_class is not _C.INVALID_REQUEST or status < 400 or status == 413
    return error_class if of_proxy else _C.PROVIDER_ERROR


def _code(status: int, body: ErrorBody, provider: str | None) -> str:
    code = body.codes[0] if body.codes else None
    if code is None or _TELLING_CODES.get(code) is _C.INVALID_REQUEST:
        code = next((hint for pattern, hint in _HINTS if pattern.search(body.text)), code)
    if code is None:
        named = body.status if status == 200 else status
        return "error_in_answer" if named is None else f"http_{named}"
    return f"{provider}.{code}" if provider else code


def _message(error_class: ErrorClass, status: int, body: ErrorBody, code: str) -> str:
    facts = [f"HTTP {status}", f"code {code}"]
    if body.param:
        facts.append(f"parameter {body.param}")
    if body.html:
        facts.append("a page in place of JSON")
    return f"{FACTS[error_class].sentence} ({', '.join(facts)})"
