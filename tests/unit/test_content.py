"""What a message says: a text, or parts; and how parts are sent."""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from typing import Any
from urllib.parse import quote

import pytest
from pydantic import ValidationError

from palaver.errors import ToolError
from palaver.schemas.content import FilePart, ImagePart, TextPart, parts_from
from palaver.schemas.models import Message, ToolCall
from palaver.schemas.protocols import PROTOCOL_RULES
from palaver.steps.leases import LogMessage
from palaver.steps.stuck import Turn
from palaver.tools.rendering import render, rendered
from palaver.vocabulary.limits import exceeded, limit_of
from workers.protocols import CHAT_COMPLETIONS, PROTOCOLS, ModelProtocol
from workers.protocols.chat_completions.breakpoints import marked
from workers.steps.conversations import CachedConversation

LOOK = {"type": "text", "text": "look"}
IMAGE = {"type": "image", "url": "https://example.com/a.png"}


def message(*parts: dict[str, Any], role: str = "user") -> Message:
    return Message.model_validate_json(json.dumps({"role": role, "content": parts}))


def test_text_alone_is_a_string() -> None:
    assert message(LOOK) == Message(role="user", content="look")
    assert message() == Message(role="user")
    assert message(LOOK, LOOK).text == "look\nlook"
    assert len(message(LOOK, LOOK).content) == 2


def test_parts_are_in_the_log_as_they_came() -> None:
    written = message(LOOK, IMAGE).model_dump_json(exclude_defaults=True)
    assert json.loads(written) == {"role": "user", "content": [LOOK, IMAGE]}
    assert parts_from(json.loads(written)["content"]) == message(LOOK, IMAGE).content


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image"},
        {"type": "image", "url": "file:///etc/passwd"},
        {"type": "image", "url": "https://a b"},
        {"type": "video", "url": "https://example.com"},
        {"type": "text", "text": 5},
        {"type": "text", "text": "x", "more": 1},
        {"text": "x"},
        "text",
    ],
)
def test_what_is_no_part_is_refused(part: Any) -> None:
    with pytest.raises(ValidationError):
        message(part)


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254", "127.0.0.1:8080", "10.0.0.1", "192.168.1.1", "100.64.0.1", "0.0.0.0", "[::1]", "[fd00::1]",
        "[fe80::1]", "[::ffff:127.0.0.1]", "127.1", "0x7f.1", "2130706433", "0177.0.0.1", "%31%32%37.0.0.1",
        "127.0.0.1.", "\uff11\uff12\uff17.0.0.1", "example.com@127.0.0.1", "127.0.0.1\\@example.com", "localhost",
        "LocalHost.", "a.localhost", "metadata.google.internal", "printer.local", "[", "[64:ff9b::a9fe:a9fe]",
        "[2002:a9fe:a9fe::]", "[2002:a00:1::]", "[::10.0.0.1]", "[fec0::1]", "168.63.129.16", "192.0.0.192",
        "metadata", "redis", "redis.:6379", "localdomain", "224.0.0.1", "[::]", "[ff02::1]",
    ],
)  # fmt: skip
def test_an_address_that_leads_within_is_refused(host: str) -> None:
    for scheme in ("http", "https"):
        with pytest.raises(ValidationError, match="data: URL"):
            message({"type": "image", "url": f"{scheme}://{host}/latest/meta-data"})


def test_an_address_of_a_public_host_is_taken() -> None:
    for host in (
        "example.com",
        "8.8.8.8",
        "[2606:4700::1111]",
        "[64:ff9b::808:808]",
        "local.example.com",
        "10.example.com",
        "bücher.example",
    ):
        assert message({"type": "image", "url": f"https://{host}/a?b=127.0.0.1"}).content


def test_there_may_be_so_many() -> None:
    before = exceeded["message_parts"]
    assert len(message(*[LOOK] * limit_of("message_parts")).content) == limit_of("message_parts")
    with pytest.raises(ValidationError, match="at most 100"):
        message(*[LOOK] * (limit_of("message_parts") + 1))
    assert exceeded["message_parts"] == before + 1


def test_a_chat_completion_is_sent_text_and_images() -> None:
    sent = CHAT_COMPLETIONS.message(message(LOOK, IMAGE))
    image = {"type": "image_url", "image_url": {"url": IMAGE["url"]}}
    assert json.loads(sent) == {"role": "user", "content": [LOOK, image]}
    assert CHAT_COMPLETIONS.parsed(sent) == [Message(role="user", content="look\n[image]")]
    (asks,) = CHAT_COMPLETIONS.turn(
        Message(role="assistant", content=parts_from([LOOK, LOOK]), tool_calls=(ToolCall(id="c", name="f"),)), ()
    )
    assert json.loads(asks)["content"] == [LOOK, LOOK]


def test_a_chat_completion_is_sent_files_and_images_of_tools_as_the_users() -> None:
    file = {"type": "file", "url": "data:application/pdf;base64,JVBERi0=", "name": "a.pdf"}
    (sent,) = json.loads(CHAT_COMPLETIONS.message(message(file)))["content"]
    assert sent == {"type": "file", "file": {"filename": "a.pdf", "file_data": file["url"]}}
    away = {**file, "url": "https://example.com/a.pdf"}
    (sent,) = json.loads(CHAT_COMPLETIONS.message(message(away)))["content"]
    assert sent == {"type": "text", "text": "[file a.pdf]"}, "it came from a conversation in another protocol"
    calls = (ToolCall(id="c1", name="look"), ToolCall(id="c2", name="add"))
    results = [
        Message(role="tool", call_id="c1", name="look", content=parts_from([LOOK, IMAGE])),
        Message(role="tool", call_id="c2", name="add", content="2"),
    ]
    said = [json.loads(text) for text in CHAT_COMPLETIONS.turn(Message(role="assistant", tool_calls=calls), results)]
    assert [(each["role"], each["content"]) for each in said[1:3]] == [("tool", "look\n[image]"), ("tool", "2")]
    note, whose, image = said[3]["content"]
    assert said[3]["role"] == "user"
    assert (whose["text"], image["type"]) == ("look (c1):", "image_url")
    assert "[image]" in note["text"]


def test_what_a_tool_answers_with_is_text_json_or_parts() -> None:
    image = ImagePart.of(b"\x89PNG", "image/png")
    assert image.url == "data:image/png;base64,iVBORw=="
    assert rendered({"a": 1}) == '{"a": 1}'
    assert rendered(["a", 1]) == '["a", 1]'
    assert rendered(image) == (image,)
    assert rendered(("a", {"b": 1}, image)) == (
        TextPart(type="text", text="a"), TextPart(type="text", text='{"b": 1}'), image,
    )  # fmt: skip
    large = ImagePart.of(b"x" * limit_of("tool_result_media"), "image/png")
    for result, says in (large, "make them smaller"), ([image] * 101, "101 parts"):
        with pytest.raises(ToolError, match=says):
            rendered(result)
    text = rendered(["x" * 200_000, image])[0]
    assert isinstance(text, TextPart)
    assert "\n[cut: 170,000 of 200,000 characters are left out here]\n" in text.text
    with pytest.raises(ToolError, match="only a tool of the server"):
        render(image)


def test_two_images_are_two_results() -> None:
    """Or a model that looks at a screen again and again would be taken for stuck."""
    call = ToolCall(id="c", name="look")
    seen = [Message(role="tool", call_id="c", content=(ImagePart.of(data, "image/png"),)) for data in (b"1", b"2")]
    first, second = (Turn.of([call], {"c": each}) for each in seen)
    assert first.digest != second.digest


def test_a_breakpoint_is_on_the_last_text_of_the_parts() -> None:
    (found,) = marked([CHAT_COMPLETIONS.message(message(LOOK, LOOK, IMAGE))])
    assert [("cache_control" in part, part["type"]) for part in json.loads(found)["content"]] == [
        (False, "text"), (True, "text"), (False, "image_url"),
    ]  # fmt: skip
    (found,) = marked([CHAT_COMPLETIONS.message(message(IMAGE, IMAGE))])
    assert b"cache_control" not in found


PNG, JPEG = b"\x89PNG\r\n\x1a\n" + bytes(20), b"\xff\xd8\xff\xe0" + bytes(20)
GIF, WEBP = b"GIF89a" + bytes(20), b"RIFF\x20\0\0\0WEBPVP8 " + bytes(20)


_DATA = b"\x89PNG\r\n\x1a\n\xff\xfe\xfb\xef"
_TEXT = b64encode(_DATA).decode()


@pytest.mark.parametrize(
    "url",
    [
        f"DATA:image/PNG;base64,{_TEXT}",
        f"data:image/png;BASE64,{_TEXT}",
        f"data:image/png; base64, {_TEXT[:8]}\r\n{_TEXT[8:]}\n",
        f"data:image/png;base64,{_TEXT.rstrip('=')}",
        f"data:image/png;base64,{urlsafe_b64encode(_DATA).decode()}",
        f"data:image/png;base64,{quote(_TEXT, safe='')}",
    ],
)
def test_data_are_sent_as_standards_have_them(url: str) -> None:
    image = ImagePart(type="image", url=url)
    assert image.sent_url == f"data:image/png;base64,{_TEXT}"
    assert ImagePart(type="image", url=image.url) == image


def test_an_address_is_kept_and_data_that_are_no_base64_as_well() -> None:
    for url in ("https://example.com/A-b_c%20d", "data:text/plain,a-b_c%20d", "data:image/png;base64,AAAAA"):
        assert ImagePart(type="image", url=url).url == url
    assert ImagePart(type="image", url="HTTPS://example.com/A").url == "https://example.com/A"


@pytest.mark.parametrize(
    ("begins", "kind"),
    [
        (b"\0\0\0\x18ftypheic\0\0", "image/heic"),
        (b"\0\0\0\x1cftypavif\0\0", "image/avif"),
        (b"BM\x10\0\0\0\0\0\0\0\0\0", "image/bmp"),
        (b"II*\0\0\0\0\0\0\0\0\0", "image/tiff"),
    ],
)
def test_an_image_that_models_do_not_look_at_is_told_whatever_its_label(begins: bytes, kind: str) -> None:
    image = ImagePart(type="image", url=f"data:image/png;base64,{b64encode(begins).decode()}")
    assert kind in PROTOCOL_RULES["anthropic"].lacks("user", image)
    text = FilePart(type="file", url=f"data:text/plain;base64,{b64encode(b'BMW builds cars').decode()}")
    assert not PROTOCOL_RULES["anthropic"].lacks("user", text)


@pytest.mark.parametrize(
    ("data", "kind"), [(PNG, "image/png"), (JPEG, "image/jpeg"), (GIF, "image/gif"), (WEBP, "image/webp")]
)
@pytest.mark.parametrize("label", ["image/png", "image/jpeg", "IMAGE/PNG", "image/jpg", "application/octet-stream", ""])
@pytest.mark.parametrize("protocol", PROTOCOLS.values())
def test_an_image_has_the_label_of_its_bytes(protocol: ModelProtocol, label: str, data: bytes, kind: str) -> None:
    image = ImagePart(type="image", url=f"data:{label};name=a.png;base64,{b64encode(data).decode()}")
    right = ImagePart.of(data, kind)
    assert image.sent_url == f"data:{kind};name=a.png;base64,{b64encode(data).decode()}"
    call = ToolCall(id="call_1", name="look")
    for part in (image, right):
        said = protocol.message(Message(role="user", content=(part,)))
        turn = protocol.turn(
            Message(role="assistant", tool_calls=(call,)), [Message(role="tool", call_id="call_1", content=(part,))]
        )
        for text in (said, *turn[1:]):
            assert text.count(kind.encode()) == (b"image" in text and b"tool_call_id" not in text)
    assert not PROTOCOL_RULES[protocol.name].lacks("user", image)


def test_other_data_keep_their_label() -> None:
    for url in ("data:image/png;base64,AAAA", "data:image/png,GIF89a", "data:;base64,!", "https://example.com/a.png"):
        assert ImagePart(type="image", url=url).sent_url == url
    paper = FilePart(type="file", url="data:application/octet-stream;base64,JVBERi0xLjc=")
    assert paper.sent_url == "data:application/pdf;base64,JVBERi0xLjc="
    lies = ImagePart(type="image", url="data:image/png;base64,JVBERi0xLjc=")
    assert "of the type application/pdf" in PROTOCOL_RULES["anthropic"].lacks("user", lies)


@pytest.mark.parametrize("protocol", PROTOCOLS.values())
def test_what_is_left_out_is_words_also_in_the_results_of_tools(protocol: ModelProtocol) -> None:
    image, paper = ImagePart.of(PNG, "image/png"), FilePart.of(b"%PDF-1.7", "application/pdf", name="a.pdf")
    call, words = ToolCall(id="call_1", name="look"), TextPart(type="text", text="hm")
    log = [
        LogMessage(1, Message(role="user", content=(image, paper))),
        LogMessage(2, Message(role="assistant", content="A cat.")),
        LogMessage(3, Message(role="user", content="And here?")),
        LogMessage(4, Message(role="assistant", tool_calls=(call,))),
        LogMessage(5, Message(role="tool", call_id="call_1", name="look", content=(image, words))),
    ]

    def of(*entries: LogMessage) -> CachedConversation:
        conversation = CachedConversation(protocol)
        conversation.extend(entries, entries[-1].position)
        return conversation

    known = of(*log)
    before = b"".join(known.messages())
    newest, everything = (b"".join(known.leaving_out(after).messages()) for after in (known.answered, 0))
    png = image.url.rpartition(",")[2].encode()
    assert [text.count(png) for text in (before, newest, everything)] == [2, 1, 0]
    assert everything.count(b"left out: the provider refused it") == 3
    assert b"[a.pdf left out" in everything
    assert b"hm" in everything
    for after in (known.answered, 0):
        note = LogMessage(6, Message(role="user", content="[Automatic note]"), nudge=True, left_out_after=after)
        assert of(*log, note).messages()[:-1] == known.leaving_out(after).messages()
    assert known.messages() == of(*log).messages()
