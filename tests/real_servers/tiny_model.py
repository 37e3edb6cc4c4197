"""Writes a model that llama.cpp runs: one layer of random weights, and a vocabulary of bytes.

    python tiny_model.py FILE

What it says is noise, thousands of tokens of it a second, for as long as it is let: its end is as likely as any other
token. A program for the environment of the servers, which has ``gguf``.
"""

from __future__ import annotations

import sys
from typing import Any

WIDTH, HEADS, INNER = 64, 4, 128
WINDOW = 1_000_000
"""Tokens: so that an answer can last for as long as a test needs it to."""
TEMPLATE = """\
{%- if tools %}<tools>{% for tool in tools %}{{ tool | tojson }}
{% endfor %}</tools>
{% endif %}
{%- for message in messages %}
{%- if message.role == "tool" %}<tool_response>{{ message.content }}</tool_response>
{% else %}{{ message.role }}: {{ message.content or "" }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}assistant: {% endif %}"""
"""Of its form llama.cpp reads how a call is written, and makes the grammar of one."""
SPECIAL = ("<unk>", "<s>", "</s>")
END = 2
"""The number of the token that ends an answer."""
FIRST_BYTE = len(SPECIAL)
SPACE = "\u2581"
"""As this kind of vocabulary writes it."""
BEGINS_A_CALL = "<tool_call>\n"
"""A token of its own: noise would never spell it."""
CALL = FIRST_BYTE + 257
"""Its number."""


def write(path: str) -> None:
    """The file. The same one each time."""
    import numpy
    from gguf import GGUFWriter, TokenType

    random = numpy.random.default_rng(0)
    vocabulary = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), SPACE, BEGINS_A_CALL]
    types = [TokenType.UNKNOWN, *[TokenType.CONTROL] * 2, *[TokenType.BYTE] * 256, *[TokenType.NORMAL] * 2]

    def weights(*shape: int) -> Any:
        return (random.standard_normal(shape) / 20).astype(numpy.float32)

    model = GGUFWriter(path, "llama")
    model.add_context_length(WINDOW)
    model.add_embedding_length(WIDTH)
    model.add_block_count(1)
    model.add_feed_forward_length(INNER)
    model.add_head_count(HEADS)
    model.add_layer_norm_rms_eps(1e-5)
    model.add_rope_dimension_count(WIDTH // HEADS)
    model.add_vocab_size(len(vocabulary))
    model.add_tokenizer_model("llama")
    model.add_token_list([token.encode() for token in vocabulary])
    model.add_token_scores([0.0] * len(vocabulary))
    model.add_token_types(types)
    model.add_add_space_prefix(False)
    model.add_unk_token_id(0)
    model.add_bos_token_id(1)
    model.add_eos_token_id(2)
    model.add_chat_template(TEMPLATE)
    for name in ("attn_norm", "ffn_norm"):
        model.add_tensor(f"blk.0.{name}.weight", numpy.ones(WIDTH, numpy.float32))
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        model.add_tensor(f"blk.0.{name}.weight", weights(WIDTH, WIDTH))
    for name in ("ffn_gate", "ffn_up"):
        model.add_tensor(f"blk.0.{name}.weight", weights(INNER, WIDTH))
    model.add_tensor("blk.0.ffn_down.weight", weights(WIDTH, INNER))
    model.add_tensor("token_embd.weight", weights(len(vocabulary), WIDTH))
    model.add_tensor("output_norm.weight", numpy.ones(WIDTH, numpy.float32))
    model.add_tensor("output.weight", weights(len(vocabulary), WIDTH))
    model.write_header_to_file()
    model.write_kv_data_to_file()
    model.write_tensors_to_file()
    model.close()


if __name__ == "__main__":
    write(sys.argv[1])
