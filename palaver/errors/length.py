"""Refusals of requests that are too long: known by their wording, or by a limit and a larger count.

Sources: what OpenAI, Azure, Anthropic, Bedrock, Gemini and Vertex, Mistral, Cohere, xAI, DeepSeek, Qwen, Zhipu,
Moonshot, MiniMax, Groq, Cerebras, Fireworks, Together, OpenRouter, LiteLLM, Cloudflare and watsonx say, and the servers
vLLM, SGLang, TGI, TensorRT-LLM, LMDeploy, llama.cpp, LM Studio and Ollama. A shorter conversation helps against these
alone: not against a limit of a minute, and not against an answer that is to be longer than the model writes.
"""

from __future__ import annotations

import re
from typing import Final


def _wording(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns))


_SAID: Final = _wording(
    r"context[ _](?:length|window|size)s?[ _](?:is |was |has been |limit )?exceed",
    r"context window exceeds",
    r"(?:exceed|larger|greater|longer|reached)\w{0,5} (?:than )?(?:\S+ ){0,4}context (?:length|window|size|limit)",
    r"maximum (?:context|prompt|input) (?:length|window|size)",
    r"\bmax(?:imum)? (?:context|model) length",
    r"context length (?:is|of) only",
    r"context overflow",
    r"(?:prompt|input|request|message|context|conversation)s?(?: tokens?| length)*(?: is| are)? too (?:long|large)",
    r"(?:prompt|input)\b.{0,60}\btoo (?:long|large) (?:and|to|for)\b",
    r"too long to fit",
    r"request (?:body )?too large for",
    r"reduce (?:the (?:length|size|number)|(?:your|the) (?:message|prompt|input))",
    r"(?:input|prompt) tokens? (?:count |number |length )?.{0,40}exceed",
    r"(?:input|prompt) exceeds (?:the )?max",
    r"(?:input|prompt|query|message|request|conversation)(?:_ids)? length .{0,40}exceed",
    r"(?:exceed|above) (?:the )?(?:maximum |max )?(?:message|prompt|input|context) tokens",
    r"tokens .{0,40}exceed\w* (?:the )?(?:model|context|max(?:imum)? message)",
    r"inputs?\W{1,3}.{0,40}must (?:be <=|have less than) \d",
    r"exceeded model token limit",
    r"must be less than max_seq_len",
    r"(?:exceeds?|longer than|greater than) (?:the )?(?:max_seq_len|max_model_len|max_num_tokens|session_len|n_ctx)",
    r"n_keep .{0,20}n_ctx",
    r"range of input length",
    r"request exceeds the maximum size",
    r"payload size exceeds",
    r"total text bytes",
    r"(?:输入|上下文|内容|prompt|tokens?).{0,12}(?:过长|超长|超过|超出|超限)",
)
"""Wordings, in lower case. The last one is Chinese: an input, a context, a content that is too long or exceeds."""
_SAID_OF_RATES_TOO: Final = _wording(r"too many (?:input |prompt )?tokens", r"token limit exceeded")
_RATE: Final = _wording(
    r"per[ _-](?:min|hour|day|sec)",
    r"\b[rti]p[md]\b",
    r"rate[ _-]?limit",
    r"throttl",
    r"please (?:wait|retry)",
    r"quota",
)
_OTHER: Final = _wording(
    r"max_(?:completion_|output_|new_)?tokens",
    r"(?:completion|output|generated|reasoning|thinking|budget)[ _]tokens?",
    r"image|pixel|\bpdf\b|audio|video|\btools?\b|function|schema|cache_control|\bstop\b|temperature|logprobs",
)
"""Other things than the prompt of which there may be too much."""
_LENGTH: Final = _wording(r"tokens?\b|n_ctx|context|prompt|\binput|sequence|conversation")
_LIMITED: Final = _wording(
    r"exceed|\bmax|limit|at most|up to|only|allow|more than|greater|longer|larger|too (?:long|large|many|big)|>|\bfit"
)
_SENTENCE: Final = re.compile(r"(?<=\.)\s|\n")
_NUMBER: Final = re.compile(r"(?<![\w.,-])\d{1,3}(?:[,_]\d{3})+\b|(?<![\w.,-])\d{3,9}\b(?![.-]\d)")
_SMALLEST: Final = 256
"""Tokens: no model has a smaller window, and a smaller number counts something else."""
_OUTPUT: Final = re.compile(
    r"too large: (\d{1,9})|(\d{1,9}) (?:in|for) the (?:completion|output)|requested (\d{1,9}) output"
)
_WINDOW: Final = re.compile(r"context length (?:is|of) (?:only )?(\d{1,9})")


def is_about_length(text: str) -> bool:
    """Tell whether an error with this ``text``, in lower case, is about a request that is too long."""
    if _is_the_output(text):
        return False
    if _SAID.search(text):
        return True
    return not _RATE.search(text) and bool(_SAID_OF_RATES_TOO.search(text) or _has_limit_and_count(text))


def may_be_about_length(status: int, text: str) -> bool:
    """Tell whether a refusal that names no reason that is known may be one of a request that is too long: it speaks of
    lengths and limits, or of nothing at all, as Cerebras and Mistral do, and proxies that take no large body."""
    if status not in (400, 413, 422):
        return False
    if status == 413 or not text:
        return True
    told = not _RATE.search(text) and not _OTHER.search(text)
    return told and bool(_LENGTH.search(text) and _LIMITED.search(text))


def _has_limit_and_count(text: str) -> bool:
    """Tell whether a sentence has two numbers, a limit and a count that is larger, of what the model is given."""
    sentences = (sentence for sentence in _SENTENCE.split(text) if not _OTHER.search(sentence))
    return any(
        _LENGTH.search(sentence) and _LIMITED.search(sentence) and len({*_numbers(sentence)}) > 1
        for sentence in sentences
    )


def _numbers(sentence: str) -> list[int]:
    found = (int(number.replace(",", "").replace("_", "")) for number in _NUMBER.findall(sentence))
    return [number for number in found if number >= _SMALLEST]


def _is_the_output(text: str) -> bool:
    """Tell whether the answer alone was to be longer than the window: no prompt is short enough for that."""
    output, window = _OUTPUT.search(text), _WINDOW.search(text)
    return bool(output and window and int(next(filter(None, output.groups()))) >= int(window[1]))
