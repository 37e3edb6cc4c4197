"""Answers that are as large as may be and as costly to read as they can be: of each protocol, streamed and not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import count
from typing import Final

from palaver.vocabulary.limits import limit_of

FILLERS: Final[Mapping[str, str]] = {
    "numbers": "1",
    "fractions": "1.5",
    "texts": '""',
    "nulls": "null",
    "lists": "[]",
    "objects": "{}",
    "fields": '{"a":1}',
    "types": '{"type":"x"}',
}
"""What fills a list or, with names, an object."""
_IN_LIST: Final = 16
"""Entries of a list of errors that are looked at."""
_ROOM: Final = 1024
"""Bytes for what stands around it."""

CHAT: Final = {
    "top": '{"x":%s,"choices":[]}',
    "choices": '{"choices":%s}',
    "content": '{"choices":[{"delta":{"content":%s}}]}',
    "thinking": '{"choices":[{"delta":{"content":[{"type":"thinking","thinking":%s}]}}]}',
    "unknown": '{"choices":[{"delta":{"x":%s}}]}',
    "calls": '{"choices":[{"delta":{"tool_calls":%s}}]}',
    "call": '{"choices":[{"delta":{"tool_calls":[{"index":0,"extra_content":%s}]}}]}',
    "arguments": '{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"a","arguments":{"x":%s}}}]}}]}',
    "extra": '{"choices":[{"delta":{"extra_content":%s}}]}',
    "details": '{"choices":[{"delta":{"reasoning_details":%s}}]}',
    "blocks": '{"choices":[{"delta":{"thinking_blocks":%s}}]}',
    "usage": '{"usage":{"prompt_tokens_details":%s},"choices":[]}',
    "error": '{"error":%s}',
}
MESSAGES: Final = {
    "top": '{"type":"ping","x":%s}',
    "text": '{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"","x":%s}}',
    "input": '{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","name":"a","input":{"x":%s}}}',
    "unknown": '{"type":"content_block_start","index":0,"content_block":{"type":"new","x":%s}}',
    "thinking": '{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","x":%s}}',
    "start": '{"type":"message_start","message":{"usage":{"x":%s}}}',
    "usage": '{"type":"message_delta","delta":{},"usage":{"output_tokens":%s}}',
    "details": '{"type":"message_delta","delta":{"stop_reason":"x","stop_details":%s}}',
    "error": '{"type":"error","error":%s}',
}
RESPONSES: Final = {
    "top": '{"type":"response.created","x":%s}',
    "output": '{"type":"response.completed","response":{"output":%s}}',
    "items": '{"type":"response.completed","response":{"output":[{"type":"message","content":%s}]}}',
    "summary": '{"type":"response.completed","response":{"output":[{"type":"reasoning","summary":%s}]}}',
    "added": '{"type":"response.output_item.added","output_index":0,"item":{"type":"message","x":%s}}',
    "done": '{"type":"response.output_item.done","output_index":0,"item":{"type":"message","content":%s}}',
    "unknown": '{"type":"response.output_item.done","output_index":0,"item":{"type":"new","x":%s}}',
    "call": '{"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","arguments":%s}}',
    "usage": '{"type":"response.completed","response":{"usage":{"input_tokens_details":%s},"output":[]}}',
    "error": '{"type":"response.failed","response":{"error":%s}}',
}
CHAT_DOCUMENTS: Final = {name: line.replace('"delta"', '"message"') for name, line in CHAT.items()}
MESSAGES_DOCUMENTS: Final = {
    "top": '{"x":%s,"stop_reason":"end_turn","content":[]}',
    "content": '{"stop_reason":"end_turn","content":%s}',
    "text": '{"stop_reason":"end_turn","content":[{"type":"text","text":"a","x":%s}]}',
    "input": '{"stop_reason":"end_turn","content":[{"type":"tool_use","name":"a","input":{"x":%s}}]}',
    "unknown": '{"stop_reason":"end_turn","content":[{"type":"new","x":%s}]}',
    "usage": '{"stop_reason":"end_turn","content":[],"usage":%s}',
    "error": '{"error":%s}',
}
RESPONSES_DOCUMENTS: Final = {
    "top": '{"x":%s,"output":[]}',
    "output": '{"output":%s}',
    "items": '{"output":[{"type":"message","content":%s}]}',
    "summary": '{"output":[{"type":"reasoning","summary":%s}]}',
    "unknown": '{"output":[{"type":"new","x":%s}]}',
    "usage": '{"usage":{"input_tokens_details":%s},"output":[]}',
    "error": '{"error":%s,"output":[]}',
}
STREAMED: Final = {"chat_completions": CHAT, "anthropic": MESSAGES, "responses": RESPONSES}
"""Lines, by the protocol and what they are about; with a place for what fills them."""
WHOLE: Final = {"chat_completions": CHAT_DOCUMENTS, "anthropic": MESSAGES_DOCUMENTS, "responses": RESPONSES_DOCUMENTS}


def shapes(protocol: str, *, streamed: bool, about: str = "") -> Iterator[tuple[str, bytes]]:
    """Each answer by its name, or those that are about one place."""
    size = limit_of("answer_line") if streamed else limit_of("answer_document")
    patterns = (STREAMED if streamed else WHOLE)[protocol]
    for place, pattern in [(about, patterns[about])] if about else patterns.items():
        for what, filling in _fillings(size - _ROOM):
            document = pattern.replace("%s", filling).encode()
            yield f"{place} of {what}", b"data: " + document + b"\n\n" if streamed else document


_NESTED: Final = ("errors", "details", "error", "detail", "metadata", "innererror", "inner_error", "message")
"""Fields of an error in which others are looked for."""
_ERRORS: Final = {
    "no words": "{}",
    "codes": '{"code":"a%d"}',
    "kinds of codes": '{"code":"a%d","type":"b%d","status":"c%d","reason":"d%d","error_code":"e%d"}',
    "long codes": '{"code":"' + "a-b" * 20 + '%d"}',
    "messages": '{"msg":"%d"}',
    "kinds of messages": '{"msg":"a%d","title":"b%d","raw":"c%d"}',
    "messages that are errors": '{"msg":"[{\\"msg\\":\\"%d\\"}]"}',
}
_WORDS: Final = ("\n", "é", "model ", "larger than ", "exceed a ", "violates ", "-a.-a", "://", "key ", "aa...", "a")
"""What patterns for the words of an error, and for keys in it, find often, or almost."""


def error_bodies() -> Iterator[tuple[str, bytes]]:
    """The bodies of error answers, each by its name."""
    size = limit_of("error_body") - _ROOM
    for what, one in _ERRORS.items():
        yield what, _nested(one, size).encode()
    for word in _WORDS:
        text = word * (size // len(word.encode()))
        yield f"a text of {word!r}", text.encode()
        yield f"a message of {word!r}", b'{"error":{"message":"%b"}}' % text.replace("\n", "\\n").encode()[:size]
    for what, one in FILLERS.items():
        yield what, b'{"error":[%b]}' % ",".join([one] * (size // (len(one) + 1))).encode()


def _nested(one: str, size: int) -> str:
    """An object of lists of objects of lists of ``one``: as many as may be in a list, while there is room."""
    lists, numbers = [], count()
    for _ in range(len(_NESTED) * _IN_LIST):
        errors = [",".join(one.replace("%d", str(next(numbers))) for _ in range(_IN_LIST)) for _ in _NESTED]
        entry = "{" + ",".join(f'"{name}":[{each}]' for name, each in zip(_NESTED, errors, strict=True)) + "}"
        size -= len(entry) + _IN_LIST
        if size < 0:
            break
        lists.append(entry)
    return "{" + ",".join(f'"{name}":[{",".join(lists[i :: len(_NESTED)])}]' for i, name in enumerate(_NESTED)) + "}"


@cache
def _fillings(size: int) -> Sequence[tuple[str, str]]:
    """What may stand in each place, by its name: made once, and not for each place again."""
    return [*_each_filling(size)]


def _each_filling(size: int) -> Iterator[tuple[str, str]]:
    for what, one in FILLERS.items():
        values = limit_of("answer_values") - 16
        # Lists and objects that are more than may be cost nothing.
        number = min(size // (len(one) + 1), values if one[0] in "[{" else size)
        yield what, "[" + ",".join([one] * number) + "]"
    for what, one in (("named numbers", "1"), ("named lists", "[]")):
        number = size // (len(one) + 9)
        number = min(number, limit_of("answer_values") - 16) if one == "[]" else number
        yield what, "{" + ",".join(f'"{n:05x}":{one}' for n in range(number)) + "}"
    yield "a text of escapes", '"' + "\\n" * (size // 2) + '"'
    yield "levels", "[" * 900 + "]" * 900
