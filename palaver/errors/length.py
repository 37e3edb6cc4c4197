"""Refusals of requests that are too long: known by their wording, or by a limit and a larger count.

Sources: what OpenAI, Azure, Anthropic, Bedrock, Gemini and Vertex, Mistral, Cohere, xAI, DeepSeek, Qwen, Zhipu,
Moonshot, MiniMax, Groq, Cerebras, Fireworks, Together, OpenRouter, LiteLLM, Cloudflare and watsonx say, and the servers
vLLM, SGLang, TGI, TensorRT-LLM, LMDeploy, llama.cpp, LM Studio and Ollama. A shorter conversation helps against these
alone: not against a limit of a minute, and not against an answer that is to be longer than the model writes.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

from palaver.errors.wordings import Wording, each, words

_SAID: Final = Wording(
    r"context[ _](?:length|window|size|limit)s?(?: of (?:\S+ ){0,2}\S+)?[ _](?:is |was |has been |limit )?"
    r"(?:exceed|reached)",
    r"context window exceeds",
    each(
        "exceed|larger|greater|longer|reached",
        r"\w{0,5} (?:than )?(?:\S+ ){0,4}context (?:length|window|size|limit)",
    ),
    r"maximum (?:context|prompt|input) (?:length|window|size)",
    words("max", r"(?:imum)? (?:context|model|sequence) length"),
    r"maximum (?:context|input) of \d",
    r"context length (?:is|of) only",
    r"context overflow",
    each(
        "prompt|input|request|message|context|conversation",
        r"s?(?: tokens?| length)*(?: is| are)? too (?:long|large)",
    ),
    each("prompt|input", r"\b.{0,60}\btoo (?:long|large) (?:and|to|for)\b"),
    r"too long to fit",
    each("prompt|input|request|conversation|messages?", r"\b.{0,40}(?:n[o']t|cannot) fit"),
    r"'(?:messages|input|prompt)(?:[.\[][^']{0,40}(?:content|text|output|arguments)[^']{0,20})?': "
    r"(?:string|array) too long",
    r"request (?:body )?too large for",
    r"reduce (?:the (?:length|size|number)|(?:your|the) (?:message|prompt|input))",
    each("input|prompt", r" tokens? (?:count |number |length )?.{0,40}exceed"),
    each("input|prompt", r" exceeds (?:the )?max"),
    each("input|prompt|query|message|request|conversation", r"(?:_ids)? length .{0,40}exceed"),
    each("exceed|above", r" (?:the )?(?:maximum |max )?(?:message|prompt|input|context) tokens"),
    r"tokens .{0,40}exceed\w* (?:the )?(?:model|context|max(?:imum)? message)",
    r"inputs?\W{1,3}.{0,40}must (?:be <=|have less than) \d",
    r"exceeded model token limit",
    r"must be less than max_seq_len",
    each(
        "exceeds?|longer than|greater than",
        r" (?:the )?(?:max_seq_len|max_model_len|max_num_tokens|session_len|n_ctx)",
    ),
    r"n_keep .{0,20}n_ctx",
    r"range of input length",
    each("request|payload|body", r"(?: body| payload)?(?: size)? exceeds the (?:maximum|limit)"),
    r"payload size exceeds",
    r"total text bytes",
    r"上下文.{0,12}(?:[过超太]长|超[过出限])",
)
"""Wordings, in lower case. The last one is Chinese: a context that is too long or exceeds."""
_SAID_OF_OTHERS_TOO: Final = Wording(
    each("prompt|input|messages?|conversation", r" exceeds? (?:the |your )?(?:\S+ )?limit"),
    each("input|prompt", r" tokens? must be (?:less|fewer|at most|<)"),
    each(
        "输入|内容|提示词?|消息|对话|会话|文本|长度|prompt|tokens?",
        r".{0,12}(?:[过超太]长|超[过出限]|上限|大于)",
    ),
    each("入力|トークン|プロンプト", r".{0,12}(?:長すぎ|超え)"),
    each("입력|토큰|프롬프트|메시지", r".{0,12}(?:초과|너무 [길긴])"),
)
"""Wordings of sentences that name nothing else: also in Chinese, Japanese and Korean."""
_SAID_OF_RATES_TOO: Final = Wording(r"too many (?:input |prompt )?tokens", r"token limit exceeded")
_RATE: Final = Wording(
    r"per[ _-](?:min|hour|day|sec)",
    words("r|t|i", r"p[md]\b"),
    r"rate[ _-]?limit",
    r"throttl",
    r"please (?:wait|retry)",
    r"quota",
    words("month|daily"),
    r"每[分秒天日月]|每小时|频率|速率|并发|配额|余额",
)
_OTHER: Final = Wording(
    r"max_(?:completion_|output_|new_)?tokens",
    each("completion|output|generated|reasoning|thinking|budget", r"[ _]tokens?"),
    r"image|pixel|audio|video|function|schema|cache_control|temperature|logprobs",
    words("pdf|tools?|stop", r"\b"),
    r"output length|cache[ _]key|deadline|time(?:d )?out|token id|vocabulary",
    r"图[片像]|音频|视频|输出|工具|文件|画像|이미지",
)
"""Other things than the prompt of which there may be too much."""
_LENGTH: Final = Wording(r"tokens?\b|n_ctx|context|prompt|sequence|conversation", words("input"))
_LIMITED: Final = Wording(
    r"exceed|limit|at most|up to|only|allow|more than|greater|longer|larger|too (?:long|large|many|big)|>|smaller",
    r"less than",
    words(r"max|fit|holds?\b"),
)
_FOREIGN: Final = re.compile(r"[^\x00-\u024f\u2000-\u2fff]{3}")
"""Matches words in a script of which only a few words are known here."""
_SENTENCE: Final = re.compile(r"(?<=\.)\s|\n|。")
_NUMBER: Final = re.compile(
    r"(?<![\w.,-])(?:(\d{1,3}(?:[,_.' \u2019\xa0\u202f]\d{3})+)\b|(\d{3,9})\b(?![.-]\d)|(\d{1,4})(?:\.\d+)?k\b)"
)
"""Matches a number: with separators, without, or of thousands."""
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
    return not _RATE.search(text) and bool(_SAID_OF_RATES_TOO.search(text) or _in_a_sentence(text))


def may_be_about_length(status: int, text: str) -> bool:
    """Tell whether a refusal that names no reason that is known may be one of a request that is too long: it speaks of
    lengths and limits, in a script that is not read here, or of nothing at all, as Cerebras and Mistral do, and proxies
    that take no large body."""
    if status not in (400, 413, 422):
        return False
    if status == 413 or not text:
        return True
    told = not _RATE.search(text) and not _OTHER.search(text)
    return told and bool(_FOREIGN.search(text) or (_LENGTH.search(text) and _LIMITED.search(text)))


def _in_a_sentence(text: str) -> bool:
    """Tell whether a sentence that is about nothing else says it, or has two numbers, a limit and a count that is
    larger, of what the model is given; or two sentences in a row have one each."""
    sentences = ["" if _OTHER.search(sentence) else sentence for sentence in _SENTENCE.split(text)]
    if any(map(_SAID_OF_OTHERS_TOO.search, sentences)):
        return True
    numbers = [{*_numbers(sentence)} for sentence in sentences]
    if not any(numbers):
        return False
    of_length, limited = ([bool(words.search(sentence)) for sentence in sentences] for words in (_LENGTH, _LIMITED))
    if any(a and b and len(found) > 1 for a, b, found in zip(of_length, limited, numbers, strict=True)):
        return True
    return any(
        ((of_length[i] and limited[j]) or (limited[i] and of_length[j]))
        and len(numbers[i]) == len(numbers[j]) == 1
        and numbers[i] != numbers[j]
        for i, j in pairwise(range(len(sentences)))
    )


def _numbers(sentence: str) -> list[int]:
    found = (
        int(thousands) * 1_000 if thousands else int(re.sub(r"\D", "", apart or whole))
        for apart, whole, thousands in _NUMBER.findall(sentence)
    )
    return [number for number in found if number >= _SMALLEST]


def _is_the_output(text: str) -> bool:
    """Tell whether the answer alone was to be longer than the window: no prompt is short enough for that."""
    window = _WINDOW.search(text)
    output = _OUTPUT.search(text) if window else None
    return bool(output and window and int(next(filter(None, output.groups()))) >= int(window[1]))
