"""Images that providers refuse: with another label than their bytes say."""

from __future__ import annotations

from base64 import b64decode

from features.fake_provider.requests import InvalidRequest


def judge_data(kind: str, data: str) -> None:
    """Raise InvalidRequest if these data, in base64, are an image of another kind."""
    first = b64decode(data[:16])
    looks = (
        "image/png" if first.startswith(b"\x89PNG") else "image/jpeg" if first.startswith(b"\xff\xd8")
        else "image/gif" if first.startswith(b"GIF8") else "image/webp" if first[8:12] == b"WEBP" else kind
    )  # fmt: skip
    if kind != looks:
        raise InvalidRequest(
            f"The image was specified using the {kind} media type, but the image appears to be a {looks} image"
        )


def judge_url(url: str) -> None:
    """The same of a ``data:`` URL."""
    head, _, data = url.partition(",")
    if head.endswith(";base64"):
        judge_data(head.removeprefix("data:").partition(";")[0], data)
