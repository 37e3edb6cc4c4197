"""What a provider's error answer means; what it says in its own words is test_provider_message.py."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import ErrorClass, Failure, ProviderHTTPError, classify, retry_after
from palaver.errors.body import read_body
from palaver.errors.failure import MAX_MESSAGE, safe_text
from palaver.errors.response import is_about_media, refused_tool
from palaver.secrets.redaction import add_names, redaction_scope
from palaver.vocabulary.limits import exceeded

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


def answer(status: int, body: object = b"", headers: Mapping[str, str] | None = None) -> Failure:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return classify(ProviderHTTPError(status, raw, headers, "fake", "m", "req_1"))


def openai(code: str | None = None, message: str = "…", kind: str = "invalid_request_error") -> object:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def anthropic(kind: str, message: str = "…") -> object:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_2"}


SPENT = {
    "type": "error",
    "error": {
        "type": "rate_limit_error",
        "message": "This request would exceed your limit.",
        "details": {"error_code": "enforced_spend_limit_reached"},
    },
}


@pytest.mark.parametrize(
    ("status", "error_class"),
    [
        *(
            (301, "invalid_request"),
            (400, "invalid_request"),
            (401, "authentication"),
            (402, "quota_exhausted"),
        ),
        *((403, "permission"), (404, "not_found"), (405, "invalid_request"), (407, "authentication")),
        *((408, "timeout"), (409, "provider_error"), (410, "not_found"), (413, "invalid_request")),
        *((418, "invalid_request"), (421, "connection"), (422, "invalid_request"), (424, "provider_error")),
        *((425, "provider_error"), (429, "rate_limited"), (431, "invalid_request"), (451, "permission")),
        *((499, "connection"), (500, "provider_error"), (502, "provider_error"), (503, "provider_error")),
        *((504, "provider_error"), (520, "provider_error"), (529, "rate_limited"), (599, "provider_error")),
        *((100, "provider_error"), (0, "provider_error"), (999, "provider_error")),
    ],
)
def test_a_status_alone(status: int, error_class: str) -> None:
    failure = answer(status)
    assert (failure.error_class, failure.code) == (error_class, f"http_{status}")


@pytest.mark.parametrize(
    ("status", "body", "error_class", "code"),
    [
        (429, openai("rate_limit_exceeded"), "rate_limited", "fake.rate_limit_exceeded"),
        (
            429,
            openai("insufficient_quota", kind="insufficient_quota"),
            "quota_exhausted",
            "fake.insufficient_quota",
        ),
        (429, openai(message="You exceeded your current quota, please check"), "quota_exhausted", None),
        (429, openai(message="Check your billing details"), "quota_exhausted", None),
        (429, openai(message="too many tokens per minute, slow down"), "rate_limited", None),
        (429, openai(message="More at https://x.example/account/billing"), "rate_limited", None),
        (429, openai(message="must be reduced in order to run successfully"), "context_window", None),
        (429, b"slow down", "rate_limited", "http_429"),
        (400, openai("context_length_exceeded"), "context_window", "fake.context_length_exceeded"),
        (400, openai(message="This model's maximum context length is 4097 tokens."), "context_window", None),
        (400, anthropic("invalid_request_error", "prompt is too long: 9 tokens > 8"), "context_window", None),
        (400, {"message": "Input is too long for requested model."}, "context_window", "http_400"),
        (400, openai(message="Your input exceeds the context window of this model"), "context_window", None),
        (400, openai(message="Please reduce the length of the messages"), "context_window", None),
        (400, openai(message="the request exceeds the available context size"), "context_window", None),
        (400, openai(message="The input token count (9) exceeds the maximum"), "context_window", None),
        (400, openai(message="too many tokens"), "context_window", None),
        (400, b"length of prompt_tokens must be less than max_seq_len", "context_window", "http_400"),
        (413, openai(message="the prompt is too long"), "context_window", None),
        (413, openai(message="Request too large for model `x`, reduce your message size"), "context_window", None),
        (422, openai(message="`inputs` must have less than 1024 tokens. Given: 5000"), "context_window", None),
        (422, openai(message="`inputs` tokens + `max_new_tokens` must be <= 4097"), "context_window", None),
        (422, openai(message="`max_new_tokens` must be <= 512"), "invalid_request", None),
        (400, openai(message="prompt token count of 9 exceeds the limit of 8"), "context_window", None),
        (400, openai(message="Prompt exceeds max length"), "context_window", None),
        (400, openai(message="the number of inputs exceeds 2048"), "invalid_request", None),
        (413, b"<html>413 Request Entity Too Large</html>", "invalid_request", "http_413"),
        (500, openai(message="litellm: maximum context length is 5", kind="x"), "context_window", None),
        (400, openai("content_policy_violation"), "content_filter", "fake.content_policy_violation"),
        (400, openai("content_filter"), "content_filter", "fake.content_filter"),
        (400, openai(message="rejected as a result of our safety system"), "content_filter", None),
        (400, openai(message="triggered the content management policy"), "content_filter", None),
        (403, {"error": {"code": 403, "message": "your input was flagged"}}, "content_filter", "http_403"),
        (400, openai(message="Invalid value at safety_settings"), "invalid_request", None),
        (400, openai(message="Budget has been exceeded! Cost 1"), "quota_exhausted", None),
        (400, anthropic("invalid_request_error", "Your credit balance is too low"), "quota_exhausted", None),
        (402, {"error": {"message": "Insufficient Balance"}}, "quota_exhausted", "http_402"),
        (400, openai("tool_use_failed"), "provider_error", "fake.tool_use_failed"),
        (400, openai(message="API key not valid. Please pass one"), "authentication", None),
        (401, openai("invalid_api_key"), "authentication", "fake.invalid_api_key"),
        (403, openai("model_not_found"), "permission", "fake.model_not_found"),
        (404, openai("model_not_found"), "not_found", "fake.model_not_found"),
        (404, {"error": "model 'x' not found, try pulling it first"}, "not_found", "fake.model_not_found"),
        (400, {"error": "x does not support tools"}, "invalid_request", "fake.tools_unsupported"),
        (
            422,
            {"detail": [{"loc": ["body"], "msg": "too short", "type": "short"}]},
            "invalid_request",
            "fake.short",
        ),
        (529, anthropic("overloaded_error"), "rate_limited", "fake.overloaded_error"),
        (400, openai("invalid_encrypted_content"), "invalid_request", "fake.invalid_encrypted_content"),
        (200, openai("invalid_encrypted_content"), "invalid_request", "fake.invalid_encrypted_content"),
        (
            404,
            openai(None, "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false."),
            "not_found",
            "fake.item_not_found",
        ),
        (
            400,
            openai(None, "Item 'fc_1' of type 'function_call' was provided without its required 'reasoning' item."),
            "invalid_request",
            None,
        ),
        (413, anthropic("request_too_large"), "context_window", "fake.request_too_large"),
        (400, anthropic("invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"), "context_window", None),
        (504, anthropic("timeout_error"), "provider_error", "fake.timeout_error"),
        (429, anthropic("rate_limit_error"), "rate_limited", "fake.rate_limit_error"),
        (429, SPENT, "quota_exhausted", "fake.enforced_spend_limit_reached"),
        (
            400,
            anthropic("invalid_request_error", "You have reached your specified workspace API usage limits."),
            "quota_exhausted",
            None,
        ),
        (500, anthropic("api_error"), "provider_error", "fake.api_error"),
        (200, anthropic("overloaded_error"), "rate_limited", "fake.overloaded_error"),
        (200, {"error": {"code": 429, "message": "…"}}, "rate_limited", "http_429"),
        (200, {"error": {"code": "503", "message": "…"}}, "provider_error", "http_503"),
        (200, openai("server_error", kind="server_error"), "provider_error", "fake.server_error"),
        (200, b"<!DOCTYPE html><html>", "provider_error", "error_in_answer"),
        (400, b"<html>Bad Request</html>", "provider_error", "http_400"),
        (502, b"<html>Bad Gateway</html>", "provider_error", "http_502"),
        (404, b"<html>nginx</html>", "not_found", "http_404"),
        (301, b"<html>moved</html>", "invalid_request", "http_301"),
        (429, b"data: " + json.dumps(openai("insufficient_quota")).encode(), "quota_exhausted", None),
        (429, [openai("insufficient_quota")], "quota_exhausted", None),
    ],
    ids=lambda value: str(value)[:70],
)
def test_a_body_says_more(status: int, body: object, error_class: str, code: str | None) -> None:
    failure = answer(status, body)
    assert failure.error_class == error_class
    assert code is None or failure.code == code


def test_googles_quota_of_a_minute_is_a_rate_limit_with_its_wait() -> None:
    detail = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "12.5s"}
    error = {
        "code": 429,
        "status": "RESOURCE_EXHAUSTED",
        "message": "You exceeded your current quota, check billing",
    }
    failure = answer(429, [{"error": {**error, "details": [detail]}}])
    assert (failure.error_class, failure.retry_after) == (ErrorClass.RATE_LIMITED, 12.5)


def test_a_prompt_quoted_in_the_body_does_not_change_the_verdict() -> None:
    quoted = {
        "loc": ["body"],
        "msg": "Field required",
        "input": {"content": "prompt is too long, insufficient_quota"},
    }
    assert answer(422, {"detail": [quoted]}).error_class == "invalid_request"


def test_the_failure_says_where_to_look_and_shows_nothing_else() -> None:
    body = {
        "error": {
            "message": "CANARY sk-CANARY-123456",
            "code": "CANARY prompt",
            "param": "messages[3].content",
        }
    }
    failure = answer(400, body)
    where = "(HTTP 400, code http_400, parameter messages[3].content)"
    assert failure.message == f"The provider refused the request as invalid. {where}"
    error = failure.to_error(step="3", attempt=2)
    provider = {"name": "fake", "model": "m", "http_status": 400, "request_id": "req_1"}
    assert error["provider"] == provider | {"message": "CANARY [redacted]"}
    assert "CANARY" not in json.dumps({**error, "provider": None}) + repr(failure)
    assert (error["class"], error["step"], error["attempt"]) == ("invalid_request", "3", 2)


def test_the_answer_inside_an_exception_of_httpx_is_judged() -> None:
    request = httpx.Request("POST", "http://127.0.0.1/v1")
    response = httpx.Response(429, headers={"retry-after": "7", "x-request-id": "r9"}, request=request)
    failure = classify(httpx.HTTPStatusError("", request=request, response=response), source="model", provider="p")
    assert (failure.error_class, failure.retry_after) == ("rate_limited", 7)
    assert failure.provider is not None
    assert failure.provider.request_id == "r9"
    unread = httpx.Response(503, stream=httpx.ByteStream(b"x"), request=request)
    assert classify(httpx.HTTPStatusError("", request=request, response=unread)).error_class == "provider_error"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "3"}, 3.0),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"RETRY-AFTER": "0"}, 0.0),
        ({"Retry-After": "-5"}, 0.0),
        ({"Retry-After": "1e9"}, 1e9),
        ({"Retry-After": format_datetime(NOW + timedelta(seconds=90), usegmt=True)}, 90.0),
        ({"Retry-After": format_datetime(NOW - timedelta(days=1), usegmt=True)}, 0.0),
        ({"Retry-After": "Thursday, 01-Jan-26 12:00:10 GMT"}, 10.0),
        ({"Retry-After": "Thu, 01 Jan 2026 14:00:10 GMT", "Date": "Thu, 01 Jan 2026 14:00:00 GMT"}, 10.0),
        ({"Retry-After": "Thu, 01 Jan 2026 11:00:10 GMT", "date": "Thu, 01 Jan 2026 11:00:00 GMT"}, 10.0),
        ({"Retry-After": "Thu, 01 Jan 2026 12:00:10 GMT", "Date": "junk"}, 10.0),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "junk", "retry-after": "9"}, 9.0),
        *(({"Retry-After": junk}, None) for junk in ("", "soon", "nan", "inf", "1_0", "٣", "9" * 99, "0x10", "1 2")),
        ({"Retry-After": "Mon, 99 Foo 2026 99:99:99 GMT"}, None),
        ({}, None),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOW) == seconds


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(["Retry-After", "retry-after-ms", "x"]), st.text(max_size=60)))
def test_retry_after_is_total(headers: dict[str, str]) -> None:
    seconds = retry_after(headers, NOW)
    assert seconds is None or 0 <= seconds < float("inf")


@given(st.datetimes(min_value=datetime(1900, 1, 1), timezones=st.just(UTC)))
def test_retry_after_reads_every_date(then: datetime) -> None:
    seconds = retry_after({"Retry-After": format_datetime(then, usegmt=True)}, NOW)
    assert seconds == max((then.replace(microsecond=0) - NOW).total_seconds(), 0)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["error", "message", "code", "type", "status", "detail", "param", "retryDelay"])
            | st.text(max_size=5),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@given(st.binary(max_size=300) | JSON.map(lambda value: json.dumps(value).encode()), st.integers(-1, 1000))
def test_every_body_and_status_is_judged(body: bytes, status: int) -> None:
    failure = answer(status, body)
    error = failure.to_error(step=None, attempt=None)
    json.dumps(error).encode()
    assert len(error["message"]) <= MAX_MESSAGE
    assert error["message"].isprintable()


@pytest.mark.parametrize(("before", "behind"), [(0, 60_000), (60_000, 0)], ids=["at the beginning", "at the end"])
def test_words_around_a_long_quote_are_judged(before: int, behind: int) -> None:
    message = f"{'x ' * (before // 2)}this model's maximum context length is 8192 tokens{' x' * (behind // 2)}"
    assert answer(400, openai(message=message)).error_class == "context_window"
    assert answer(400, message.encode()).error_class == "context_window"


def test_of_thousands_of_errors_the_outer_one_is_among_those_that_are_looked_at() -> None:
    beyond = exceeded["error_parts"]
    inner = [{"errors": [{"message": "…"}] * 16}] * 16
    body = {"error": {"code": "context_length_exceeded", "message": "too long", "errors": inner, "details": inner}}
    failure = answer(400, body)
    assert (failure.error_class, failure.code) == ("context_window", "fake.context_length_exceeded")
    assert exceeded["error_parts"] > beyond


def test_an_error_answer_is_judged_once_for_each_model() -> None:
    error = ProviderHTTPError(429, json.dumps(openai("rate_limit_exceeded")).encode())
    first = classify(error, source="model", provider="fake", model="m")
    assert classify(error, source="model", provider="fake", model="m") is first
    other = classify(error, source="model", provider="other", model="m")
    assert (first.code, other.code) == ("fake.rate_limit_exceeded", "other.rate_limit_exceeded")


def test_a_body_nested_beyond_recursion_is_text() -> None:
    assert read_body(b"[" * 60_000).codes == ()
    assert answer(500, b'{"error":' * 7_000).error_class == "provider_error"


@pytest.mark.parametrize(
    "secret",
    [
        "sk-proj-abcdefghijk",
        "Bearer abcdefghijkl",
        "https://user:hunter22@host/path",
        "?api_key=abcdefgh",
        "https://host/path?key=hunter22",
        "password: hunter22",
        "AKIAABCDEFGHIJKLMNOP",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.x",
        "ghp_abcdefghijklmnop",
        "hf_AbcdefGhijklMnopqrStuvwxYzabcdEfgh",
        "sk_live_4eC39HqLyjWDarjtT1zdp7dc",
        "wJalrXUtnFEMI_K7MDENG_bPxRfiCYEXAMPLEKEY_AbCdEfGh12",
        "0123456789abcdef0123456789abcdef0123456789abcdef",
    ],
)
def test_what_looks_like_a_key_is_not_shown(secret: str) -> None:
    shown = classify(ValueError(f"at {secret} it broke"), source="tool").message
    assert secret not in shown
    assert "hunter22" not in shown
    assert "[redacted]" in shown


@pytest.mark.parametrize(
    "text",
    [
        "KeyError: 'order_id'",
        "no file /a/very/long/path/of/many/parts/to/a/file.txt",
        "there is no tool 'hf_list'; did you mean 'hf_list_models'?",
        "there are: sk_learn_predict, pk_lookup, rk_rank_rows, gsk_find, xai_search_web.",
        "call search_internal_customer_support_knowledge_base first",
        "call github__create_pull_request_review_comment_reply first",
        "call AKIA_tool_of_the_day or eyJ_read_a_token first",
        "run run_00k3v9x2m4q8w1z5c7b6n0j3h2g4 of conv_00k3v9x2m4q8w1z5c7b6n0j3h2g4 has ended",
        "commit 74ee32e5a9c1b0d8f7e6a5b4c3d2e1f001234567 is not there",
        "model openai/gpt-5.1-mini-2026-01-31 is not there",
        "quarterly_report_of_the_finance_department_2026_final_v2.xlsx is no file",
    ],
)
def test_what_a_model_needs_to_know_is_kept(text: str) -> None:
    assert safe_text(text) == text


def test_a_name_that_is_known_is_kept_where_it_is_known() -> None:
    text = "there are: sk_4eC39HqLyjWDarjtT1zdp7dc, getCustomer2InformationFromTheInternalDatabase."
    with redaction_scope():
        add_names({"sk_4eC39HqLyjWDarjtT1zdp7dc", "getCustomer2InformationFromTheInternalDatabase"}.__contains__)
        assert safe_text(text) == text
        assert "[redacted]" in safe_text("sk_4eC39HqLyjWDarjtT1zdp7dd")
    assert safe_text(text) == "there are: [redacted], [redacted]."


@given(st.text(max_size=3000), st.integers(1, MAX_MESSAGE))
def test_safe_text_is_one_short_printable_line(text: str, limit: int) -> None:
    safe = safe_text(text, limit)
    assert len(safe) <= limit
    assert safe.isprintable()


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("Rate limit reached for x. Please try again in 4s.", 4),
        ("Please try again in 1m30.5s. Visit our page", 90.5),
        ("Please try again in 250ms.", 0.25),
        ("Please retry after 20 seconds.", 20),
        ("Please wait 52 seconds before retrying", 52),
        ("try again in 2 minutes and 3 seconds", 123),
        ("Please retry in 34.074824224s.", 34.074824224),
        ("Please try again in 6h", 21_600),
        ("try again in about 1 hour", 3600),
        ("try again later", None),
        ("try again in 4 short steps", None),
    ],
)
def test_a_wait_in_words(words: str, seconds: float | None) -> None:
    for body in (openai("rate_limit_exceeded", words), words.encode()):
        assert answer(429, body).retry_after == seconds
    assert answer(429, openai(None, words), {"Retry-After": "7"}).retry_after == 7


@pytest.mark.parametrize("name", ["x-should-retry", "X-Should-Retry", "llm_provider-x-should-retry"])
def test_a_provider_that_says_that_another_try_is_in_vain(name: str) -> None:
    assert not answer(503, b"", {name: "false"}).retryable
    assert answer(503, b"", {name: "true"}).retryable
    assert not answer(400, b"", {name: "true"}).retryable


@pytest.mark.parametrize(
    ("body", "about"),
    [
        (anthropic("invalid_request_error", "messages.3.content.1.image.source: Could not process image"), True),
        (anthropic("invalid_request_error", "messages.0.content.0.image.source: image exceeds 5 MB maximum"), True),
        (anthropic("invalid_request_error", "messages.2.content.0.pdf.source: The PDF specified was not valid."), True),
        (openai("invalid_image_format", "You uploaded an unsupported image."), True),
        (openai("image_parse_error", "…"), True),
        (openai(None, "Invalid MIME type. Only image types are supported."), True),
        (openai(None, "Failed to download the file from the provided URL"), True),
        (openai(None, "No endpoints found that support image input"), True),
        (openai(None, "x is not a multimodal model"), True),
        (openai(None, "Error while downloading https://example.com/a.png. Upstream status code: 403."), True),
        (anthropic("invalid_request_error", "URL sources are not supported"), True),
        (openai(None, "messages[0].content must be a string"), True),
        (openai(None, "messages.0.content: Input should be a valid string"), True),
        (openai(None, "the mmproj is not loaded"), True),
        (openai(None, "Incorrect padding"), True),
        (openai("1210", "图片输入格式/解析错误"), True),
        (openai(None, "Invalid schema for function 'crop_image': …"), False),
        (anthropic("invalid_request_error", "tools.3.custom.input_schema.properties: image/x"), False),
        (openai("unsupported_value", "Unsupported value: 'temperature'"), False),
        (b"", False),
    ],
)  # fmt: skip
def test_what_is_refused_may_be_an_image_or_a_file(body: object, about: bool) -> None:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    assert is_about_media(text) is about


@pytest.mark.parametrize(
    ("body", "which"),
    [
        (anthropic("invalid_request_error", "tools.12.custom.input_schema: JSON schema is invalid."), 12),
        (openai(None, "Invalid schema for function 'crop_image': …"), "crop_image"),
        ({"error": {"message": "array schema missing items", "param": "tools[3].function.parameters"}}, 3),
        (openai(None, "Invalid 'tools': array too long. Expected an array with maximum length 128."), None),
        (openai(None, 'Tool "crop_image" has an invalid JSON schema'), "crop_image"),
        (openai(None, "Invalid JSON schema for tool crop_image"), "crop_image"),
        (openai(None, "Invalid 'tools[1].function.description': string too long."), 1),
        (anthropic("invalid_request_error", "tools.7.custom.name: String should have at most 64 characters"), 7),
        (openai(None, "* GenerateContentRequest.tools[0].function_declarations[4].parameters: no OBJECT"), 4),
        (openai(None, "Invalid schema for response_format 'it'"), None),
        (anthropic("invalid_request_error", "tools: Tool names must be unique."), None),
        ({}, None),
    ],
)
def test_a_refusal_may_name_a_tool(body: object, which: str | int | None) -> None:
    assert refused_tool(json.dumps(body).encode()) == which
