"""Straight streams of every protocol, and the ways in which servers bend them: what they say stays the same.

``python -m tests.unit.bent_streams 100000`` bends as many, and says how many are read otherwise than the straight one.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, Final, NamedTuple

from palaver.errors import ProviderError
from palaver.schemas.protocols import ProtocolName
from workers.protocols import PROTOCOLS

Event = dict[str, Any]
Bend = Callable[[random.Random, list[Event]], None]
"""Changes the events of a stream, if there is something to change."""

TEXT: Final = "Zwölf 🦊 Füchse, “so” — \u2028 and 🌈\n\tmore \\u12 {} [DONE] data: x"
THOUGHTS: Final = 'Hm 🤔, "so"…\n'
CALLS: Final[tuple[tuple[str, Any], ...]] = (
    ("add", {"a": 1, "b": [2, {"c": "🦊 }{"}]}),
    ("add", {"a": 1, "b": 3}),
    ("now", {}),
)
ODD: Final[tuple[Any, ...]] = (None, 7, "x", [], [None], {}, {"x": None}, True, 1.5)
"""Values that carry nothing where an object or a list of objects may stand."""


class Said(NamedTuple):
    """What a stream says."""

    text: str
    thoughts: str
    calls: tuple[tuple[str, Any], ...]


def pieces(text: str, size: int) -> Iterator[str]:
    return (text[start : start + size] for start in range(0, len(text), size))


# Straight streams


def chat(said: Said) -> list[Event]:
    def chunk(delta: Any, finish: Any = None, **more: Any) -> Event:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "m",
            "choices": [choice],
            **more,
        }

    events = [chunk({"role": "assistant", "content": ""})]
    events += [chunk({"reasoning_content": piece}) for piece in pieces(said.thoughts, 3)]
    events += [chunk({"content": piece}) for piece in pieces(said.text, 5)]
    for index, (name, arguments) in enumerate(said.calls):
        first = {"index": index, "id": f"call_{index}", "type": "function", "function": {"name": name, "arguments": ""}}
        events.append(chunk({"tool_calls": [first]}))
        parts = pieces(json.dumps(arguments), 4)
        events += [chunk({"tool_calls": [{"index": index, "function": {"arguments": part}}]}) for part in parts]
    events.append(chunk({}, "tool_calls" if said.calls else "stop"))
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 5,
        "total_tokens": 14,
        "prompt_tokens_details": {"cached_tokens": 3},
    }
    return [*events, {"id": "chatcmpl-1", "choices": [], "usage": usage}]


def anthropic(said: Said) -> list[Event]:
    message: Event = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
    }
    events: list[Event] = [{"type": "message_start", "message": {**message, "usage": {"input_tokens": 9}}}]
    index = 0

    def block(first: Event, kind: str, field: str, parts: Iterator[str]) -> None:
        nonlocal index
        events.append({"type": "content_block_start", "index": index, "content_block": first})
        deltas = ({"type": kind, field: part} for part in parts)
        events.extend({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas)
        events.append({"type": "content_block_stop", "index": index})
        index += 1

    if said.thoughts:
        block({"type": "thinking", "thinking": ""}, "thinking_delta", "thinking", pieces(said.thoughts, 3))
    events.append({"type": "ping"})
    if said.text:
        block({"type": "text", "text": ""}, "text_delta", "text", pieces(said.text, 5))
    for number, (name, arguments) in enumerate(said.calls):
        first = {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": {}}
        block(first, "input_json_delta", "partial_json", pieces(json.dumps(arguments), 4))
    delta = {"stop_reason": "tool_use" if said.calls else "end_turn", "stop_sequence": None}
    return [*events, {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 5}}, {"type": "message_stop"}]


def responses(said: Said) -> list[Event]:
    head = {"id": "resp_1", "object": "response", "model": "m", "output": []}
    events: list[Event] = [
        {"type": f"response.{kind}", "response": {**head, "status": "in_progress"}}
        for kind in ("created", "in_progress")
    ]
    items: list[Event] = []

    def item(
        kind: str, whole: Event, empty: Event, delta: str, parts: Iterator[str], done: Event | None = None
    ) -> None:
        at = {"output_index": len(items), "item_id": whole["id"]}
        events.append({"type": "response.output_item.added", **at, "item": {**whole, **empty}})
        events.extend(
            {"type": f"response.{delta}.delta", **at, "content_index": 0, "summary_index": 0, "delta": part}
            for part in parts
        )
        if done is not None:
            events.append({"type": f"response.{delta}.done", **at, "content_index": 0, **done})
        events.append({"type": "response.output_item.done", **at, "item": whole})
        items.append(whole)

    if said.thoughts:
        whole = {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": said.thoughts}]}
        item("reasoning", whole, {"summary": []}, "reasoning_summary_text", pieces(said.thoughts, 3))
    if said.text:
        content = [{"type": "output_text", "text": said.text, "annotations": []}]
        whole = {"id": "msg_1", "type": "message", "role": "assistant", "content": content}
        item("message", whole, {"content": []}, "output_text", pieces(said.text, 5), {"text": said.text})
    for number, (name, value) in enumerate(said.calls):
        arguments = json.dumps(value)
        whole = {
            "id": f"fc_{number}",
            "type": "function_call",
            "call_id": f"call_{number}",
            "name": name,
            "arguments": arguments,
        }
        item(
            "function_call",
            whole,
            {"arguments": ""},
            "function_call_arguments",
            pieces(arguments, 4),
            {"arguments": arguments},
        )
    whole_response = {**head, "status": "completed", "output": items, "usage": {"input_tokens": 9, "output_tokens": 5}}
    return [*events, {"type": "response.completed", "response": whole_response}]


STRAIGHT: Final[dict[ProtocolName, Callable[[Said], list[Event]]]] = {
    "chat_completions": chat,
    "anthropic": anthropic,
    "responses": responses,
}
SAID: Final = (
    Said(TEXT, "", ()),
    Said(TEXT, THOUGHTS, ()),
    Said("", "", CALLS),
    Said(TEXT, THOUGHTS, CALLS),
    Said("", "", CALLS[:1]),
)


# Bends of events


def _choices(event: Event) -> list[Any]:
    choices = event.get("choices")
    return choices if isinstance(choices, list) else []


def _is_object(event: Any) -> bool:
    return isinstance(event, dict)


def _deltas(events: list[Event]) -> Iterator[Event]:
    for event in events:
        for choice in _choices(event):
            if isinstance(choice, dict) and isinstance(choice.get("delta"), dict):
                yield choice["delta"]


def _call_parts(events: list[Event]) -> Iterator[Event]:
    for delta in _deltas(events):
        for part in delta["tool_calls"] if isinstance(delta.get("tool_calls"), list) else ():
            if isinstance(part, dict) and part.get("function"):
                yield part


def _of(events: list[Event], *kinds: str) -> list[int]:
    return [place for place, event in enumerate(events) if event.get("type") in kinds]


_NO_DELTAS: Final[tuple[Any, ...]] = (None, {}, [], 7)
_NO_CHOICES: Final[tuple[Any, ...]] = (None, [None], "x", {})


def put_in_nothing(chance: random.Random, events: list[Event]) -> None:
    """Events that carry nothing, anywhere."""
    nothing: list[Any] = [
        None,
        7,
        "x",
        [],
        {},
        True,
        {"type": "ping"},
        {"type": "something.new", "x": [1]},
        {"choices": []},
    ]
    nothing += [{"choices": [{"index": 0, "delta": odd}]} for odd in _NO_DELTAS]
    nothing += [{"choices": odd} for odd in _NO_CHOICES]
    for _ in range(chance.randint(1, 4)):
        events.insert(chance.randrange(len(events)), chance.choice(nothing))


def leave_out(chance: random.Random, events: list[Event]) -> None:
    """Events without which everything is known."""
    kinds = [
        "message_start",
        "ping",
        "content_block_stop",
        "response.created",
        "response.in_progress",
        "response.output_text.done",
    ]
    kinds += ["response.function_call_arguments.done", "response.output_item.done"]
    texts = {
        event["index"]
        for event in events
        if event.get("type") == "content_block_start" and event["content_block"]["type"] == "text"
    }
    for place in reversed(range(len(events))):
        event = events[place]
        usage_alone = event.get("choices") == [] and "usage" in event
        first = any(
            choice["delta"].get("role")
            for choice in _choices(event)
            if isinstance(choice, dict) and isinstance(choice.get("delta"), dict)
        )
        begins_text = event.get("type") == "content_block_start" and event["index"] in texts
        if (event.get("type") in kinds or usage_alone or first or begins_text) and chance.random() < 0.5:
            del events[place]


def leave_out_beginnings(chance: random.Random, events: list[Event]) -> None:
    """That items begin."""
    for place in reversed(_of(events, "response.output_item.added")):
        if chance.random() < 0.5:
            del events[place]


def odd_fields(chance: random.Random, events: list[Event]) -> None:
    """Values of another kind in fields that carry nothing of what is said."""
    names = {"id", "object", "created", "model", "logprobs", "usage", "stop_sequence", "role", "annotations", "status"}
    names |= {
        "summary_index",
        "content_index",
        "system_fingerprint",
        "prompt_tokens",
        "prompt_tokens_details",
        "input_tokens",
    }

    def bend(value: Any, name: str) -> Any:
        if name in names and name != "id" and chance.random() < 0.3:
            # Another status, or the number of another part, says something.
            said = "x" if name == "status" else 7 if name.endswith("_index") else ...
            return chance.choice([odd for odd in ODD if odd != said])
        if isinstance(value, dict):
            return {key: bend(each, key) for key, each in value.items()}
        return [bend(each, "") for each in value] if isinstance(value, list) else value

    for place, event in enumerate(events):
        events[place] = bend(event, "")


def null_beside(chance: random.Random, events: list[Event]) -> None:
    """Nothing beside something in lists."""
    for event in events:
        if (choices := _choices(event)) and chance.random() < 0.3:
            choices.append(None)
        for delta in _deltas([event]):
            if isinstance(delta.get("tool_calls"), list) and chance.random() < 0.3:
                delta["tool_calls"].insert(chance.choice([0, 1]), chance.choice([None, {}, 7, "x"]))
            elif "content" in delta and chance.random() < 0.2:
                delta["tool_calls"] = chance.choice([None, [], [None], {}, "x"])
        output = event.get("response", {}).get("output") if isinstance(event.get("response"), dict) else None
        if output and chance.random() < 0.5:
            output.append(None)


def repeat(chance: random.Random, events: list[Event]) -> None:
    """Events that say again what is said."""
    kinds = {"message_start", "content_block_start", "content_block_stop", "message_delta", "response.created"}
    kinds |= {"response.output_item.added", "response.output_item.done", "response.output_text.done", "ping"}
    for place in reversed(range(len(events))):
        event = events[place]
        calls = [*_call_parts([event])]
        again = (
            event.get("type") in kinds or event.get("choices") == [] or (calls and all("id" in call for call in calls))
        )
        if again and chance.random() < 0.4:
            events.insert(place, deepcopy(event))


def say_again(chance: random.Random, events: list[Event]) -> None:
    """The name and the id of a call with each part of it."""
    names: dict[Any, tuple[Any, Any]] = {}
    for part in _call_parts(events):
        function = part["function"]
        names.setdefault(part["index"], (part.get("id"), function.get("name")))
        part["id"], function["name"] = names[part["index"]]


def without_index(chance: random.Random, events: list[Event]) -> None:
    """Parts of calls, blocks and items that do not say where they belong, but by their ids or their order."""
    if any(True for _ in _call_parts(events)):
        say_again(chance, events)
        for part in _call_parts(events):
            del part["index"]
        return
    for event in events:
        if event.get("type", "").startswith("content_block"):
            event.pop("index", None)
        if event.get("type", "").startswith("response."):
            event.pop("output_index", None)


def same_index(chance: random.Random, events: list[Event]) -> None:
    """Every index is zero."""
    for part in _call_parts(events):
        part["index"] = 0
    for event in events:
        if event.get("type", "").startswith("content_block"):
            event["index"] = 0


def index_as_text(chance: random.Random, events: list[Event]) -> None:
    """Indices as texts or fractions."""
    for part in _call_parts(events):
        if "index" in part:
            part["index"] = chance.choice([str, float])(part["index"])
    for event in filter(_is_object, events):
        for name in ("index", "output_index"):
            if isinstance(event.get(name), int) and chance.random() < 0.7:
                event[name] = chance.choice([str, float])(event[name])


def later(chance: random.Random, events: list[Event]) -> None:
    """Ends of blocks and items, usage and signs of life come later."""
    last = next(
        place
        for place, event in enumerate(events)
        if event.get("type") in ("message_delta", "response.completed") or event is events[-1]
    )
    moved = {"content_block_stop", "ping", "response.output_item.done", "response.output_text.done"}
    for place in reversed(range(last)):
        if events[place].get("type") in moved and chance.random() < 0.5:
            events.insert(chance.randrange(place, last), events.pop(place))
    if events[-1].get("choices") == []:
        events.insert(chance.randrange(1, len(events)), events.pop())


def object_for_list(chance: random.Random, events: list[Event]) -> None:
    """An object where a list of one may stand."""
    for event in events:
        for delta in _deltas([event]):
            calls = delta.get("tool_calls")
            if isinstance(calls, list) and len(calls) == 1 and calls[0] and chance.random() < 0.5:
                delta["tool_calls"] = chance.choice([calls[0], {"0": calls[0]}])
            if delta.get("content") and chance.random() < 0.3:
                part = {"type": "text", "text": delta["content"]}
                delta["content"] = chance.choice([[part], part])
        if len(_choices(event)) == 1 and chance.random() < 0.2:
            event["choices"] = chance.choice([event["choices"][0], {"0": event["choices"][0]}])


def function_call(chance: random.Random, events: list[Event]) -> None:
    """The one call as it was before there were several."""
    parts = [*_call_parts(events)]
    if parts and len({part["index"] for part in parts}) == 1:
        for delta in _deltas(events):
            if "tool_calls" in delta:
                (part,) = delta.pop("tool_calls")
                delta["function_call"] = part["function"]
        for event in events:
            for choice in _choices(event):
                choice["finish_reason"] = choice["finish_reason"] and "function_call"


def given_at_once(chance: random.Random, events: list[Event]) -> None:
    """The input of a call with its beginning, and again in pieces."""
    for event in events:
        block = event.get("content_block", {})
        if event.get("type") == "content_block_start" and block["type"] == "tool_use":
            number = int(block["id"].removeprefix("toolu_"))
            block["input"] = CALLS[number][1]


def all_so_far(chance: random.Random, events: list[Event]) -> None:
    """Arguments of which each piece has all before it once more."""
    texts: dict[Any, str] = {}
    for event in events:
        delta = event.get("delta")
        places: list[tuple[Any, Any, str]] = [
            (part["index"], part["function"], "arguments") for part in _call_parts([event])
        ]
        if isinstance(delta, dict) and "partial_json" in delta:
            places.append((event["index"], delta, "partial_json"))
        if event.get("type") == "response.function_call_arguments.delta":
            places.append((event["output_index"], event, "delta"))
        for call, where, name in places:
            if where.get(name):
                where[name] = texts[call] = texts.get(call, "") + where[name]


def unnamed_types(chance: random.Random, events: list[Event]) -> None:
    """Events whose type is their name alone."""
    for event in events:
        if "type" in event and event["type"] not in ("ping",):
            event["@name"] = event.pop("type")


def halves(chance: random.Random, events: list[Event]) -> None:
    """Characters of which each half comes in a piece of its own."""
    for place in reversed(range(len(events))):
        for where in _places_of_text(events[place]):
            text = where[0][where[1]]
            cuts = [at for at, char in enumerate(text) if ord(char) > 0xFFFF]
            if cuts and chance.random() < 0.8:
                at = chance.choice(cuts)
                first, second = json.dumps(text[at])[1:7], json.dumps(text[at])[7:13]
                where[0][where[1]] = text[:at] + json.loads(f'"{first}"')
                more = deepcopy(events[place])
                for other, name in _places_of_text(more):
                    other[name] = json.loads(f'"{second}"') + text[at + 1 :]
                events.insert(place + 1, more)


def _places_of_text(event: Event) -> list[tuple[Any, str]]:
    """The one text that grows with an event."""
    delta = event.get("delta")
    if isinstance(delta, str):
        return [(event, "delta")]
    places = [
        (delta, name) for name in ("text", "thinking") if isinstance(delta, dict) and isinstance(delta.get(name), str)
    ]
    for each in _deltas([event]):
        places += [
            (each, name)
            for name in ("content", "reasoning_content")
            if isinstance(each.get(name), str) and "role" not in each
        ]
    return places


def not_a_number(chance: random.Random, events: list[Event]) -> None:
    """NaN and its like beside what is said."""
    for event in events:
        if chance.random() < 0.3:
            event["logprobs"] = [float(chance.choice(["nan", "inf", "-inf"]))]


BENDS: Final[tuple[Bend, ...]] = (
    *(put_in_nothing, leave_out, leave_out_beginnings, odd_fields, null_beside, repeat, later, index_as_text),
    *(object_for_list, given_at_once, unnamed_types, halves, not_a_number, all_so_far),
)
ALONE: Final[tuple[Bend, ...]] = (say_again, without_index, same_index, function_call)
"""Those that say otherwise where parts belong: one of them is enough, and none where beginnings are left out."""
AFTER: Final[tuple[Bend, ...]] = (unnamed_types, not_a_number, put_in_nothing)
"""Those after which no other looks at events."""


# Bends of bytes


def written(chance: random.Random, events: list[Any], protocol: ProtocolName, kinds: Counter[str]) -> bytes:
    """The events as a stream, in one of the ways in which streams are written."""
    escapes, pretty = chance.random() < 0.6, chance.random() < 0.2
    space = chance.choice([" ", ""])
    lines: list[str] = []
    one_by_one = not pretty and chance.random() < 0.15
    for event in events:
        name = ""
        if isinstance(event, dict):
            name = event.pop("@name", "") or event.get("type", "")
        text = _json(event, indent=1 if pretty and isinstance(event, dict) else None, escapes=escapes)
        if chance.random() < 0.1:
            lines += [chance.choice([": keep-alive", ":", "retry: 3000", "id: 7", "unknown: field"])]
        if name and isinstance(name, str) and (protocol != "chat_completions" or chance.random() < 0.1):
            lines.append(f"event:{space}{name}")
        lines += [f"data:{space}{line}" for line in text.split("\n")]
        if not (one_by_one and isinstance(event, dict)):
            lines += [""] * chance.choice([1, 1, 1, 2, 5])
    if protocol == "chat_completions" or chance.random() < 0.1:
        lines += ["data: [DONE]", ""]
    end = chance.choice(["\n", "\n", "\r\n", "\r", "mixed"])
    if end == "mixed":
        data = b"".join(
            line.encode("utf-8", "surrogatepass") + chance.choice([b"\n", b"\r\n", b"\r"]) for line in lines
        )
        # An empty line after CR that begins with LF is none.
        data = (
            data
            if b"\r\n\n" not in data and b"\r\n\r" not in data
            else "\n".join([*lines, ""]).encode("utf-8", "surrogatepass")
        )
    else:
        data = end.join([*lines, ""]).encode("utf-8", "surrogatepass")
    kinds[f"lines end with {end!r}"] += 1
    if chance.random() < 0.1:
        data = data.rstrip(b"\r\n")
    return (b"\xef\xbb\xbf" if chance.random() < 0.1 else b"") + data


def _json(value: Any, *, indent: int | None, escapes: bool) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    try:
        text.encode()
    except UnicodeEncodeError:
        escapes = True
    return json.dumps(value, ensure_ascii=escapes, indent=indent)


def split(chance: random.Random, data: bytes) -> Iterator[bytes]:
    (most,) = chance.choices([1, 7, 100, 4096, 1 << 20], [1, 4, 20, 40, 35])
    place = 0
    while place < len(data):
        size = chance.randint(1, most)
        yield data[place : place + size]
        place += size


# What is read


def read(protocol: ProtocolName, stream: Iterator[bytes]) -> Said:
    """What a reader makes of a stream; the text that was shown is that of the reply."""
    answer = PROTOCOLS[protocol].reader(max_calls=10)
    shown = [*map(answer.feed, stream), answer.end()]
    reply = answer.reply()
    text, thoughts = ("".join(each) for each in zip(*shown, strict=True))
    assert text == reply.content
    return Said(text, thoughts, tuple((call.name, json.loads(call.arguments)) for call in reply.tool_calls))


class Bent(NamedTuple):
    """A stream that is bent, and what is to be read of it."""

    protocol: ProtocolName
    bends: tuple[str, ...]
    pieces: tuple[bytes, ...]
    said: Said


def bent(seed: int) -> Bent:
    """The stream of this number."""
    chance = random.Random(seed)
    protocol = chance.choice([*STRAIGHT])
    said = chance.choice(SAID)
    events = deepcopy(STRAIGHT[protocol](said))
    chosen = chance.sample(BENDS, chance.randint(0, 4))
    if (
        chance.random() < 0.4
        and leave_out_beginnings not in chosen
        and leave_out not in chosen
        and repeat not in chosen
    ):
        chosen.insert(0, chance.choice(ALONE))
    chosen.sort(key=lambda each: AFTER.index(each) + 1 if each in AFTER else -(each is all_so_far))
    for bend in chosen:
        bend(chance, events)
    kinds: Counter[str] = Counter()
    data = written(chance, events, protocol, kinds)
    names = (*(bend.__name__ for bend in chosen), *kinds)
    return Bent(protocol, names, tuple(split(chance, data)), said)


def written_straight() -> Iterator[Bent]:
    """Every stream as it is."""
    for protocol, straight in STRAIGHT.items():
        for said in SAID:
            data = written(random.Random(0), straight(said), protocol, Counter())
            yield Bent(protocol, (), (data,), said)


def difference(case: Bent) -> str:
    """How it is read otherwise; empty if it is not."""
    try:
        found = read(case.protocol, iter(case.pieces))
    except (ProviderError, AssertionError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return "" if found == case.said else f"{found} in place of {case.said}"


def main(number: int, first: int = 0) -> int:
    """Bend so many, and print what was read otherwise."""
    bends: Counter[str] = Counter()
    differ = 0
    for seed in range(first, first + number):
        case = bent(seed)
        bends.update((f"{case.protocol}", *case.bends))
        if told := difference(case):
            differ += 1
            print(seed, case.protocol, *case.bends, told[:300], sep="  ")
    print(f"{number} streams, {differ} read otherwise; bends: {dict(bends.most_common())}")
    return int(bool(differ))


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
