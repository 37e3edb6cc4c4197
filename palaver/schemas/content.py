"""The content of a message: a text, or parts of which text is one kind.

Text alone is a string, on the wire and in the log: nearly all messages are that, and it costs nothing more. Parts are
for what is not text alone. So one part that is text becomes its string, and every list that remains was meant as one.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal, Self, get_args
from urllib.parse import unquote

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, StringConstraints, TypeAdapter
from pydantic_core import PydanticCustomError

from palaver.schemas.fields import AtMost, Strict
from palaver.vocabulary.addresses import leads_within

IMAGE_TYPES: Final = frozenset({"image/gif", "image/jpeg", "image/png", "image/webp"})
"""The media types of images that models look at."""
_OTHER_NAMES: Final = {"image/jpg": "image/jpeg", "image/pjpeg": "image/jpeg", "image/x-png": "image/png"}
"""Names that media types have beside their own."""


def media_type(label: str) -> str:
    """The media type in a label such as ``IMAGE/JPG; q=1``: without parameters, and by its own name."""
    kind = label.partition(";")[0].strip().lower()
    return _OTHER_NAMES.get(kind, kind)


def _outward(url: str) -> str:
    """Raises PydanticCustomError for an address that leads into the private network of the fetching server."""
    if not url.startswith("data:") and leads_within(url):
        advice = "leads into a network of one's own, which may not be asked: send the data as a data: URL"
        raise PydanticCustomError("unsupported_content", "{advice}", {"advice": advice})
    return url


def _tidied(url: object) -> object:
    """An address with its scheme in small letters; data in base64 as standards have it: without blanks, with its own
    letters, filled up at the end."""
    if not isinstance(url, str):
        return url
    scheme, colon, rest = url.lstrip().partition(":")
    scheme = scheme.lower()
    if scheme != "data":
        return f"{scheme}:{rest.rstrip()}" if colon and scheme in ("http", "https") else url
    head, comma, data = rest.partition(",")
    head = "".join(head.split())
    if not head.lower().endswith(";base64"):
        return f"data:{head}{comma}{data}"
    if "%" in data:
        data = unquote(data)
    data = data.translate(_STANDARD) if any(char in data for char in _ODD_IN_BASE64) else data
    return f"data:{head[:-6]}base64{comma}{data}{_FILLED.get(len(data) % 4, '')}"


_ODD_IN_BASE64: Final = " \t\r\n-_"
_FILLED: Final = {2: "==", 3: "="}
_STANDARD: Final = str.maketrans("-_", "+/", " \t\r\n")
_BEGINNINGS: Final = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"%PDF-": "application/pdf",
    b"II*\0": "image/tiff",
    b"MM\0*": "image/tiff",
}
"""The first bytes of what models look at and read, or do not, and its media type. Some are not in a row."""
_BRANDS: Final = {
    **dict.fromkeys((b"avif", b"avis"), "image/avif"),
    **dict.fromkeys((b"heic", b"heix", b"hevc", b"mif1", b"msf1"), "image/heic"),
}
"""The kinds of images in the format of MPEG-4."""
Url = Annotated[
    str,
    StringConstraints(pattern=r"^(https?://|data:)[^\s\x00-\x1f]+$"),
    AfterValidator(_outward),
    BeforeValidator(_tidied),
]
"""Fetched by the provider, never by us; or the data itself."""


class TextPart(Strict):
    """Text among other parts."""

    type: Literal["text"]
    text: str


class _Media(Strict):
    url: Url

    @classmethod
    def of(cls, data: bytes, label: str, **more: Any) -> Self:
        """One of these data, such as a PNG's and ``image/png``; ``more`` are other fields."""
        (kind,) = get_args(cls.model_fields["type"].annotation)
        url = f"data:{media_type(label)};base64,{b64encode(data).decode()}"
        return cls.model_validate({"type": kind, "url": url, **more})

    @property
    def inline(self) -> bool:
        """True if the data are here, rather than an address from which they come."""
        return self.url.startswith("data:")

    @property
    def sent_url(self) -> str:
        """The URL, in which data have the label of their bytes: for another one providers refuse the request, and every
        later one of the conversation."""
        _, in_base64, data = inline_data(self.url) or ("", False, "")
        known = _known_type(data) if in_base64 else None
        return self.url if known is None else f"data:{known}{_LABEL.sub('', self.url, count=1)}"


class ImagePart(_Media):
    """An image for the model to look at."""

    type: Literal["image"]


class FilePart(_Media):
    """A document for the model to read."""

    type: Literal["file"]
    name: Annotated[str, AtMost("file_name")] | None = None


class ReasoningPart(Strict):
    """A model's thoughts before its answer, as far as it tells them."""

    type: Literal["reasoning"]
    text: str


_ELSEWHERE: Final = {
    **dict.fromkeys(("audio", "input_audio"), "audio cannot be sent to models here: send what was said as text"),
    **dict.fromkeys(("image_url", "input_image"), 'here an image is {"type": "image", "url": …}'),
    "input_file": 'here a file is {"type": "file", "url": "data:…", "name": …}',
}
"""Parts that other APIs have, and what there is in their place."""


def _of_here(value: object) -> object:
    """Raises PydanticCustomError for a part of another API, which says what to do."""
    kind = value.get("type") if isinstance(value, dict) else None
    if isinstance(kind, str) and (advice := _ELSEWHERE.get(kind)):
        raise PydanticCustomError("unsupported_content", "{advice}", {"advice": advice})
    return value


Part = Annotated[
    TextPart | ImagePart | FilePart | ReasoningPart, Field(discriminator="type"), BeforeValidator(_of_here)
]
_DATA: Final = re.compile(r"data:([^;,]*)[^,]*?(;base64)?,")
_LABEL: Final = re.compile(r"data:[^;,]*")
Parts = Annotated[tuple[Part, ...], AtMost("message_parts")]


def _plain(content: str | tuple[Part, ...]) -> str | tuple[Part, ...]:
    if isinstance(content, tuple):
        match content:
            case ():
                return ""
            case (TextPart(text=text),):
                return text
    return content


Content = Annotated[str | Parts, AfterValidator(_plain)]
_PARTS: Final[TypeAdapter[tuple[Part, ...]]] = TypeAdapter(Parts, config=ConfigDict(defer_build=True))


def parts_from(listed: Iterable[Any]) -> tuple[Part, ...]:
    """Parts from JSON."""
    return _PARTS.validate_python(tuple(listed))


def inline_data(url: str) -> tuple[str, bool, str] | None:
    """Split a ``data:`` URL into the media type, whether the data are in base64, and the data as they are written
    there. None if it is no such URL."""
    match = _DATA.match(url)
    return (media_type(match[1]) or "text/plain", bool(match[2]), url[match.end() :]) if match else None


def _known_type(data: str) -> str | None:
    """Return the media type that data in base64 begin as; None if they begin as none that is known."""
    try:
        first = b64decode(data[:16])
    except ValueError:
        return None
    if first.startswith(b"RIFF") and first[8:] == b"WEBP":
        return "image/webp"
    if first.startswith(b"BM") and first[6:10] == bytes(4):
        return "image/bmp"
    if first[4:8] == b"ftyp":
        return _BRANDS.get(first[8:12])
    return next((kind for begin, kind in _BEGINNINGS.items() if first.startswith(begin)), None)


def text_of(content: str | tuple[Part, ...]) -> str:
    """Return the text of it; an image or a file is named by its kind."""
    return content if isinstance(content, str) else "\n".join(map(_in_words, content))


def _in_words(part: Part) -> str:
    match part:
        case TextPart() | ReasoningPart():
            return part.text
        case FilePart(name=str() as name):
            return f"[file {name}]"
        case _:
            return f"[{part.type}]"


def length_of(content: str | tuple[Part, ...]) -> int:
    """Count its characters, URLs included."""
    if isinstance(content, str):
        return len(content)
    return sum(len(part.url) if isinstance(part, ImagePart | FilePart) else len(part.text) for part in content)
