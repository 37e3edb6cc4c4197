"""Mutants of the model protocols: each loses something that a provider must be sent, or takes something for what it is
not, and the test that is named must say so.

They are played against tests without processes: seconds for each."""

from __future__ import annotations

from typing import Final

from tests.chaos.mutation import Change, TestedMutant, by_name

_PROTOCOLS: Final = "workers/protocols/"
_UNIT: Final = "tests/unit/"


def _mutant(name: str, test: str, file: str, old: str, new: str) -> TestedMutant:
    return TestedMutant(name, f"{_UNIT}{test}", Change(file, old, new))


MUTANTS: Final = by_name(
    _mutant(
        "a thought that is sent back without its signature",
        "test_messages_answer.py",
        f"{_PROTOCOLS}messages/blocks.py",
        'if block["type"] != "thinking" or block.get("signature"):',
        "if True:",
    ),
    _mutant(
        "a thought that is written anew",
        "test_messages_answer.py",
        f"{_PROTOCOLS}messages/blocks.py",
        "                blocks.append(raw.encode())\n",
        "                blocks.append(orjson.dumps(block))\n",
    ),
    _mutant(
        "a call without an end that is made",
        "test_messages_answer.py",
        f"{_PROTOCOLS}answer_reader.py",
        "                if not self._calls.is_whole(index):\n",
        "                if False:\n",
    ),
    _mutant(
        "a refusal that is taken for an answer",
        "test_messages_answer.py",
        f"{_PROTOCOLS}ends.py",
        '"refusal", ',
        "",
    ),
    _mutant(
        "a stream of Claude that is cut off and is taken for whole",
        "test_messages_answer.py",
        f"{_PROTOCOLS}messages/answer.py",
        '            raise self._cut_off("the stream ended without a stop reason")\n',
        '            self._finish = "end_turn"\n',
    ),
    _mutant(
        "writes into the cache that are no input",
        "test_messages_answer.py",
        f"{_PROTOCOLS}messages/answer.py",
        "prompt=fresh + cached + cache_write,",
        "prompt=fresh + cached,",
    ),
    _mutant(
        "results of parallel calls in messages of their own",
        "test_messages_requests.py",
        f"{_PROTOCOLS}messages/turns.py",
        "if turns and turns[-1].role == role:",
        "if False:",
    ),
    _mutant(
        "a fifth breakpoint",
        "test_messages_requests.py",
        f"{_PROTOCOLS}messages/breakpoints.py",
        "_PLACES: Final = 3",
        "_PLACES: Final = 4",
    ),
    _mutant(
        "a breakpoint on the error of a tool",
        "test_messages_requests.py",
        f"{_PROTOCOLS}messages/breakpoints.py",
        """(b',"is_error":true}', b',"content":""}',""",
        """(b',"content":""}',""",
    ),
    _mutant(
        "a conversation that is stored with its provider",
        "test_responses_requests.py",
        f"{_PROTOCOLS}responses/__init__.py",
        '"store": False,',
        '"store": True,',
    ),
    _mutant(
        "reasoning that comes behind its call",
        "test_responses_answer.py",
        f"{_PROTOCOLS}responses/items.py",
        "    items += [*spoken(left), *open_calls.values()]\n",
        '    items += [*spoken(left), *open_calls.values()]\n    items.sort(key=lambda raw: b"reasoning" in raw)\n',
    ),
    _mutant(
        "reasoning that is no longer taken and sent again",
        "test_reasoning.py",
        "workers/steps/asking.py",
        '("invalid_encrypted_content", "item_not_found")',
        '("item_not_found",)',
    ),
    _mutant(
        "thoughts that another model is sent",
        "test_responses_requests.py",
        "workers/steps/conversations.py",
        'return entry.opaque.fields if entry.opaque.origin == self.origin else ""',
        "return entry.opaque.fields",
    ),
    _mutant(
        "a stream of chunks that is cut off and is taken for whole",
        "test_completion.py",
        f"{_PROTOCOLS}chat_completions/answer.py",
        '            raise self._cut_off("the stream ended without a finish reason")\n',
        "            self.done = True\n",
    ),
    _mutant(
        "a signature on a call that is lost",
        "test_opaque_fields.py",
        f"{_PROTOCOLS}chat_completions/__init__.py",
        '                call |= by_call.get(call["id"], {})\n',
        "                call |= {}\n",
    ),
    _mutant(
        "ids of calls that Mistral refuses",
        "test_real_servers.py::test_mistral_is_sent_ids_that_it_takes_whoever_made_them",
        f"{_PROTOCOLS}chat_completions/__init__.py",
        "if not self._short_ids or _SHORT.fullmatch(call_id):",
        "if True:",
    ),
    _mutant(
        "a call whose id comes twice",
        "test_messages_requests.py",
        f"{_PROTOCOLS}calls.py",
        'end = f"_{place}"',
        'end = ""',
    ),
    _mutant(
        "a spend limit that is waited for",
        "test_classify_responses.py",
        "palaver/errors/response.py",
        " enforced_spend_limit_reached exceededbudget",
        " exceededbudget",
    ),
    _mutant(
        "content that is dropped without a word",
        "test_protocol_rules.py::test_what_a_protocol_lacks_is_refused_and_not_left_out",
        "palaver/schemas/protocols/rules.py",
        "if part.type not in self.parts[role]:",
        "if False:",
    ),
)
