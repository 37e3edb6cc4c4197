"""Refusals of requests that are too long, as providers and servers word them, and what only looks like one."""

from __future__ import annotations

import json

import pytest

from palaver.errors import ErrorClass
from palaver.errors.length import may_be_about_length
from palaver.errors.response import classify_response

TOO_LONG = (
    (400, "This model's maximum context length is 8192 tokens. However, your messages resulted in 8545 tokens."),
    (400, "Your input exceeds the context window of this model. Please adjust your input and try again."),
    (400, "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300000 tokens."),
    (400, "prompt is too long: 213462 tokens > 200000 maximum"),
    (400, "input length and `max_tokens` exceed context limit: 198157 + 21333 > 200000, decrease input length"),
    (400, "messages: too many total text bytes: 9000049 > 9000000"),
    (413, "Request exceeds the maximum size"),
    (400, "Input is too long for requested model."),
    (400, "Input Tokens Exceeded: Number of input tokens exceeds maximum length. Please update the input."),
    (400, "400 Bad Request: Too many input tokens. Max input tokens: 8192, request input token count: 10000"),
    (400, "The model returned the following errors: prompt is too long: 200001 tokens > 200000 maximum"),
    (400, "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575)."),
    (400, "Unable to submit request because the input token count is 40000 but model only supports up to 32768."),
    (500, "An unexpected error occurred on our side. Your input context is too long"),
    (400, "Request payload size exceeds the limit: 20971520 bytes."),
    (400, "This model's maximum context length is 4096 tokens. However, your request has 5000 input tokens."),
    (400, "The decoder prompt (length 9000) is longer than the maximum model length of 8192."),
    (400, "Input prompt (9000 tokens) is too long and exceeds limit of 8192"),
    (
        400,
        "'max_tokens' or 'max_completion_tokens' is too large: 500. This model's maximum context length is 4096 tokens "
        "and your request has 4000 input tokens (500 > 4096 - 4000).",
    ),
    (
        400,
        "You passed 40961 input tokens and requested 1000 output tokens. However, the model's context length is only "
        "40960 tokens, resulting in a maximum input length of 39960 tokens.",
    ),
    (400, "The input (9000 tokens) is longer than the model's context length (8192 tokens)."),
    (400, "Requested token count exceeds the model's maximum context length of 8192 tokens."),
    (400, "Input length (9000 tokens) exceeds the maximum allowed length (8191 tokens). Use a shorter input."),
    (422, "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens"),
    (422, "Input validation error: `inputs` must have less than 1024 tokens. Given: 5000"),
    (400, "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it"),
    (500, "input is too large to process. increase the physical batch size"),
    (500, "Context size has been exceeded."),
    (400, "The number of tokens to keep from the initial prompt is greater than the context length."),
    (400, "Trying to keep the first 9000 tokens when context the overflows. However, the model is loaded with context "
          "length of only 4096 tokens, which is not enough."),
    (400, "Reached context length of 4096 tokens with model (arch: llama) that does not currently support overflow."),
    (400, "Cannot truncate prompt with n_keep (9000) >= n_ctx (8192)"),
    (400, "the input length exceeds the context length"),
    (400, "prompt too long; exceeded max context length by 500 tokens"),
    (400, "This endpoint's maximum context length is 131072 tokens. However, you requested about 140064 tokens (130000 "
          "of text input, 10064 in the output). Please reduce the length of either one."),
    (400, "litellm.BadRequestError: litellm.ContextWindowExceededError: prompt is too long"),
    (400, "Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192"),
    (413, "Request too large for model `llama` in organization `o` on tokens per minute (TPM): Limit 6000, Requested "
          "9000, please reduce your message size and try again."),
    (400, "The prompt is too long: 9000, model maximum context length: 8191"),
    (400, "Prompt contains 65673 tokens and 0 draft tokens, too large for model with 32768 maximum context length"),
    (400, "This model's maximum prompt length is 131072 but the request contains 537812 tokens."),
    (400, "InternalError.Algo.InvalidParameter: Range of input length should be [1, 30720]"),
    (400, "Prompt exceeds max length"),
    (400, "Prompt 超长"),
    (400, "输入内容过长"),
    (400, "tokens数量超过上限"),
    (400, "Invalid request: Your request exceeded model token limit: 262144 (requested: 300000)"),
    (400, "invalid params, context window exceeds limit (2013)"),
    (400, "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000."),
    (400, "too many tokens: size limit exceeded by 871 tokens. Try using shorter or fewer inputs."),
    (400, "prompt token count of 51808 exceeds the limit of 12288"),
    (413, "Request body too large for gpt-4o model. Max size: 8000 tokens."),
    (400, "Prompt length (9000) exceeds maximum input length (8192). Set log level to info"),
    (400, "The sum of prompt length (4000.0), query length (0) should not exceed max_num_tokens (2048)"),
    (400, "Input too long. Recieved 9000 tokens, but the maximum input length is 8192 tokens."),
    (400, "Requested input length 9000 exceeds maximum input length 8192"),
    (400, "prompt tokens too long"),
    (400, "Total tokens of image and text exceed max message tokens."),
    (413, "The estimated number of input and maximum output tokens (9000) exceeded this model context window limit."),
    (400, "the number of input tokens 9000 cannot exceed the total tokens limit 8192 for this model"),
    (400, "Prompt has 9000 tokens, which is more than the limit of 8192."),
    (400, "The input_ids length 9000 exceeds session_len 8192"),
    (400, "Prompt length 9000 is greater than max_seq_len 8192"),
    (400, "Requested tokens (9000) exceed context window of 8192"),
    (400, "Conversation length exceeded. Please start a new session"),
    # A wording that is not known: a limit and a larger count in one sentence.
    (400, "Got 131,200 tokens of conversation; the model fits 131,072."),
    (422, "Sequence of 33000 tokens > 32768"),
    (400, "You sent 70000 tokens, the most allowed is 65536"),
    (400, "Your prompt has 140000 tokens. The maximum is 131072."),
    (400, "Token count 250.000 exceeds limit 200.000"),
    (400, "Token count 250 000 exceeds limit of 200 000 tokens"),
    (400, "maximum number of tokens exceeded: 130k > 128k"),
    (400, "Requested 9,216 tokens but the context holds 8,192"),
    (400, "The requested model's context window (8192 tokens) is smaller than the prompt (9000 tokens)"),
    (400, "请求的 token 总数 140000 大于模型最大长度 131072"),
    (400, "对话长度上限\uff0c请新建会话"),
    (400, "提示词过长\uff0c请缩短后重试"),
    (400, "消息太长"),
    (400, "入力が長すぎます"),
    (400, "입력 토큰이 최대 길이를 초과했습니다"),
    (400, "The context window of the model has been exceeded."),
    (400, "Exceeded maximum sequence length"),
    (400, "The prompt (9000 tokens) doesn't fit into the context"),
    (400, "context limit reached"),
    (400, "exceeds the maximum context of 32768 tokens"),
    (400, "The number of prompt tokens must be less than 32768"),
    (413, "Request body exceeds the maximum allowed size"),
    (400, "Invalid 'input[3].content': string too long. Expected a string with maximum length 10485760."),
    (400, "Invalid 'messages': array too long. Expected an array with maximum length 2048, but got 3000."),
    (400, "Your messages exceed the limit"),
)  # fmt: skip
"""Status and words, most of the real servers'."""

INVALID, RATED = "invalid_request", "rate_limited"
OTHERWISE = (
    (400, "max_tokens: 64000 > 32000, which is the maximum allowed number of output tokens for claude-x", INVALID),
    (400, "max_tokens is too large: 100000. This model supports at most 16384 completion tokens, whereas you provided "
          "100000.", INVALID),
    (400, "'max_tokens' or 'max_completion_tokens' is too large: 200000. This model's maximum context length is 131072 "
          "tokens and your request has 12 input tokens (200000 > 131072 - 12).", INVALID),
    (400, "This endpoint's maximum context length is 131072 tokens. However, you requested about 200064 tokens (64 of "
          "text input, 200000 in the output). Please reduce the length of either one.", INVALID),
    (400, "max_new_tokens must be <= 512 tokens. Given: 5000 tokens", INVALID),
    (400, "max_tokens must be greater than thinking.budget_tokens: 4096 > 16000", INVALID),
    (400, "messages.0.content.1.image: image exceeds 5 MB maximum: 6291456 bytes > 5242880 bytes", INVALID),
    (400, "Invalid 'tools': array too long. Expected an array with maximum length 128, but got 300.", INVALID),
    (400, "A maximum of 4 blocks with cache_control may be provided. Found 5.", INVALID),
    (429, "Rate limit reached for gpt-x on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000.", RATED),
    (429, "This request would exceed your organization's rate limit of 30000 input tokens per minute", RATED),
    (429, "Too many tokens, please wait before trying again.", RATED),
    (400, "This request would exceed your rate limit of 30000 tokens per minute: 40000", INVALID),
    (400, "Unsupported value: 'temperature' does not support 2000 with this model, maximum 256.", INVALID),
    (400, "the number of inputs exceeds 2048", INVALID),
    (400, "max_tokens 超过最大限制 4096", INVALID),
    (400, "图片内容过大\uff0c超过10MB", INVALID),
    (429, "您的账户已达到速率限制: 请求token数超过每分钟上限", RATED),
    (400, "tokens超过每分钟限制", INVALID),
    (400, "Error 12345. The input has a field whose maximum is 400.", INVALID),
    (400, "Invalid token id 151643 in prompt: vocabulary has only 151642 entries", INVALID),
    (400, "Invalid 'user': string too long. Expected a string with maximum length 512, but got 600.", INVALID),
    (400, "Invalid 'messages[3].name': string too long. Expected a string with maximum length 512, got 600.", INVALID),
    (400, "No tool output found for function call call_12345678 in message 123456.", INVALID),
)  # fmt: skip


@pytest.mark.parametrize(("status", "words"), TOO_LONG)
def test_what_is_too_long_is_known_by_its_words(status: int, words: str) -> None:
    for body in ({"error": {"message": words}}, {"object": "error", "message": words}, {"detail": words}):
        failure = classify_response(status, json.dumps(body).encode(), {}, provider="fake")
        assert failure.error_class is ErrorClass.CONTEXT_WINDOW, body
    assert classify_response(status, words.encode(), {}).error_class is ErrorClass.CONTEXT_WINDOW


@pytest.mark.parametrize(("status", "words", "error_class"), OTHERWISE)
def test_what_only_looks_like_it_is_what_it_is(status: int, words: str, error_class: str) -> None:
    body = json.dumps({"error": {"message": words}}).encode()
    assert classify_response(status, body, {}, provider="fake").error_class == error_class


def test_a_rate_within_a_stream_is_no_length() -> None:
    body = b'{"error": {"type": "throttlingException", "message": "Too many tokens, please wait before trying again."}}'
    assert classify_response(200, body, {}).error_class == "rate_limited"


@pytest.mark.parametrize("code", ["input_too_long", "prompt_tokens_exceeded", "context_overflow"])
def test_codes_say_it_without_words(code: str) -> None:
    body = json.dumps({"error": {"code": code, "message": "…"}}).encode()
    assert classify_response(400, body, {}).error_class is ErrorClass.CONTEXT_WINDOW


@pytest.mark.parametrize(
    ("param", "error_class"),
    [
        ("messages", "context_window"),
        ("messages[3].content", "context_window"),
        ("input[0].output", "context_window"),
        ("messages[3].tool_call_id", "invalid_request"),
        ("tools[0].function.description", "invalid_request"),
        ("user", "invalid_request"),
    ],
)
def test_a_field_that_is_above_its_length_is_part_of_the_conversation_or_not(param: str, error_class: str) -> None:
    for code in ("string_above_max_length", "array_above_max_length"):
        body = json.dumps({"error": {"code": code, "param": param, "message": "too long"}}).encode()
        assert classify_response(400, body, {}).error_class == error_class
        body = json.dumps({"error": {"code": code, "message": f"Invalid '{param}': string too long."}}).encode()
        assert classify_response(400, body, {}).error_class == error_class
        body = json.dumps({"error": {"code": code, "message": "it is too long"}}).encode()
        assert classify_response(400, body, {}).error_class == "context_window"


@pytest.mark.parametrize(
    ("status", "text", "may_be"),
    [
        (400, "", True),
        (413, "", True),
        (413, "too big", True),
        (422, "the prompt is above the limit", True),
        (400, "possible causes: input exceeds what is allowed, or the request contains invalid parameters", True),
        (400, "слишком длинный запрос", True),
        (400, "unknown parameter: 'foo'", False),
        (400, "context deadline exceeded", False),
        (400, "the prompt cache key is too long: 300 > 64", False),
        (400, "your project has exceeded its token limit for this month", False),
        (400, "max_tokens is above the limit", False),
        (400, "the image in the input exceeds the limit", False),
        (429, "", False),
        (404, "", False),
    ],
)
def test_a_refusal_that_may_be_one(status: int, text: str, may_be: bool) -> None:
    assert may_be_about_length(status, text) is may_be
