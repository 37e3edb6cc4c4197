"""How a provider may send it: streams and HTTP."""

from __future__ import annotations

import gzip
import itertools

from tests.process.hostile.answers import (
    DONE,
    FINE,
    FINE_STREAM,
    Play,
    call,
    calls,
    document,
    dripping,
    endless,
    event,
    head,
    raw,
    stream,
)
from tests.process.hostile.kind import BAD, BRIEF, COMPLETED, CUT, LARGE, MIB, NO_HTTP, SLOW, kind
from tests.process.hostile.server import Then

STREAMS = (
    kind("line-without-end", endless(b"x" * 1024, head(), b"data: "), LARGE),
    kind("line-in-small-pieces", stream(b"data: ", *[b"x" * 128] * 9000), LARGE),
    kind("comments-without-end", endless(b": still here\n\n"), LARGE, provider={"max_response_bytes": MIB}),
    kind("comments-slowly", dripping(lambda: itertools.repeat(b": still here\n\n"), 0.2), "timeout/total_timeout",
         provider=SLOW),
    kind("lines-empty-1000000", stream(*[b"\n" * 10_000] * 100, FINE_STREAM), COMPLETED, output=FINE),
    kind("lines-empty-without-end", endless(b"\n"), LARGE, provider={"max_response_bytes": MIB}),
    kind("chunks-empty-without-end", endless(b"data:{}\n"), LARGE, provider={"max_response_bytes": MIB}),
    kind("ids-and-retries", stream(b"id: \x00\nretry: 1e308\nretry: -1\nevent: \xff\n", FINE_STREAM), COMPLETED,
         output=FINE),
    kind("line-ends-of-old-macs", stream(FINE_STREAM.replace(b"\n", b"\r")), COMPLETED, output=FINE),
    kind("byte-order-mark", stream(b"\xef\xbb\xbf: hello\n\n", FINE_STREAM), COMPLETED, output=FINE),
    kind("no-line-end", stream(event({"content": FINE}), event({}, "stop").rstrip()), COMPLETED, output=FINE),
    kind("nul-bytes", stream(b"\x00" * 100_000 + b"\n", DONE), BAD),
    kind("not-utf-8", stream(b'data: {"choices":[{"delta":{"content":"\xff\xfe"}}]}\n\n'), CUT),
    kind("after-the-end", stream(FINE_STREAM, event({"content": " More."}), calls(call(0))), COMPLETED, output=FINE),
    kind("after-the-end-without-end", endless(event({"content": "more"}), head(), FINE_STREAM), COMPLETED, output=FINE),
    kind("stall-after-the-end", raw(head(), FINE_STREAM, Then.HANG), COMPLETED, output=FINE, provider=BRIEF),
    kind("stall-in-the-middle", raw(head(), event({"content": "It is"}), Then.HANG), "timeout/idle_timeout",
         provider={"timeouts": {"idle": 1.0}}),
    kind("drip-of-text", dripping(lambda: itertools.repeat(event({"content": "."})), 0.1), "timeout/total_timeout",
         provider=SLOW),
    kind("drip-of-head", dripping(lambda: (bytes([byte]) for byte in head() * 99), 0.1, b""),
         "timeout/first_token_timeout", provider=BRIEF),
    kind("reset-at-once", raw(Then.RESET), "connection/connection_reset"),
    kind("reset-in-head", raw(head()[:20], Then.RESET), "connection/connection_reset"),
    kind("reset-after-head", raw(head(), Then.RESET), CUT),
    kind("reset-in-text", raw(head(), event({"content": "It is"}), 0.2, Then.RESET), CUT),
    kind("close-in-calls", stream(calls(call(0, "calculator", '{"expr'))), CUT),
    kind("silence", raw(Then.HANG), "timeout/first_token_timeout", provider=BRIEF),
)  # fmt: skip


def _chunked(*lines: bytes) -> Play:
    return raw(head(200, "text/event-stream", "Transfer-Encoding: chunked"), *lines)


def _size(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


_COOKIES = tuple(f"Set-Cookie: c{i}={'x' * 100}; Domain=.local" for i in range(300))

HTTP = (
    kind("head-without-end", endless(b"X-More: " + b"x" * 1000 + b"\r\n", b"HTTP/1.1 200 OK\r\n"),
         f"{NO_HTTP}|timeout/first_token_timeout", provider=BRIEF),
    kind("head-line-of-1-MB", raw(b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * MIB + b"\r\n\r\n"), NO_HTTP),
    kind("head-not-ascii", raw(head(200, "text/event-stream", "X-\xff: \xfe\x01"), FINE_STREAM),
         f"{NO_HTTP}|{COMPLETED}"),
    kind("cookies-300", raw(head(200, "text/event-stream", *_COOKIES), FINE_STREAM), f"{COMPLETED}|{NO_HTTP}"),
    kind("continues-10000", raw(*[b"HTTP/1.1 100 Continue\r\n\r\n" * 100] * 100, head(), FINE_STREAM), NO_HTTP),
    kind("continues-10", raw(*[b"HTTP/1.1 100 Continue\r\n\r\n"] * 10, head(), FINE_STREAM), COMPLETED, output=FINE),
    kind("continues-without-end", endless(b"HTTP/1.1 100 Continue\r\n\r\n", b""), NO_HTTP),
    kind("hints-without-end", dripping(lambda: itertools.repeat(b"HTTP/1.1 103 Early Hints\r\n\r\n"), 0.05, b""),
         NO_HTTP),
    kind("chunk-larger-than-there-is", _chunked(b"ffffffffffffffff\r\n", FINE_STREAM), f"{CUT}|{COMPLETED}|{NO_HTTP}"),
    kind("chunk-negative", _chunked(b"-5\r\n", FINE_STREAM), NO_HTTP),
    kind("chunk-no-number", _chunked(b"five\r\n", FINE_STREAM), NO_HTTP),
    kind("chunk-extension-of-1-MB", _chunked(b"5;" + b"x" * MIB, b"\r\n"), f"{NO_HTTP}|{CUT}"),
    kind("chunks-of-one-byte", _chunked(*(_size(bytes([byte])) for byte in FINE_STREAM), b"0\r\n\r\n"), COMPLETED,
         output=FINE),
    kind("chunks-that-end-early", _chunked(_size(event({"content": FINE})), b"0\r\n\r\n", _size(DONE)),
         f"{CUT}|{NO_HTTP}"),
    kind("trailers-without-end", endless(b"X-More: y\r\n", head(200, "text/event-stream", "Transfer-Encoding: chunked"),
         _size(FINE_STREAM), b"0\r\n"), f"{COMPLETED}|{NO_HTTP}"),
    kind("length-too-long", raw(head(200, "application/json", "Content-Length: 500"), b"{}"), CUT, stream=False),
    kind("length-too-short", raw(head(200, "application/json", "Content-Length: 2"), b'{"choices": []}'),
         f"{NO_HTTP}|provider_error/empty_completion", stream=False),
    kind("length-negative", raw(head(200, "application/json", "Content-Length: -1"), b"{}"), NO_HTTP, stream=False),
    kind("length-twice", raw(head(200, "application/json", "Content-Length: 2", "Content-Length: 3"), b"{}\n"),
         f"{NO_HTTP}|provider_error/empty_completion", stream=False),
    kind("length-and-chunks", raw(head(200, "text/event-stream", "Content-Length: 2", "Transfer-Encoding: chunked"),
         _size(FINE_STREAM), b"0\r\n\r\n"), f"{NO_HTTP}|{COMPLETED}"),
    kind("http-without-head", raw(FINE_STREAM), NO_HTTP),
    kind("http-2", raw(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"), NO_HTTP),
    kind("tls-alert", raw(b"\x15\x03\x03\x00\x02\x02\x46" * 100), NO_HTTP),
    kind("status-999", raw(head(999), b"?"), f"{NO_HTTP}|provider_error/http_999"),
    kind("status-no-number", raw(head("OK"), FINE_STREAM), NO_HTTP),
    kind("gzip-bomb", raw(head(200, "text/event-stream", "Content-Encoding: gzip"), gzip.compress(b"\x00" * 32 * MIB)),
         BAD),
    kind("redirect-307", raw(head(307, "text/html", "Location: http://127.0.0.1:9/v1/chat/completions")),
         "invalid_request/http_307"),
    kind("redirect-200-times", raw(head(302, "text/html", *["Location: http://169.254.169.254/"] * 50)),
         "invalid_request/http_302"),
    kind("status-204", raw(head(204)), "provider_error/http_204"),
    kind("status-206", raw(head(206), FINE_STREAM), "provider_error/http_206"),
    kind("status-304", raw(head(304)), "invalid_request/http_304"),
    kind("status-101", raw(head(101, "text/plain", "Upgrade: websocket", "Connection: Upgrade"), b"\x81\x05hello"),
         "provider_error/http_101"),
    kind("page", raw(head(200, "text/html"), b"<html>" + b"busy " * 1000), BAD),
    kind("refusal-of-100-MB", endless(b'{"error": "x"} ', head(400, "application/json")), "invalid_request/http_400"),
    kind("failure-of-100-MB", endless(b"<p>", head(500, "text/html")), "provider_error/http_500"),
    kind("failure-nested", document({"error": [[[[[{"code": "a", "error": {"code": "b"}}] * 15] * 9]]]}, 500),
         "provider_error/.b|provider_error/http_500"),
    *(
        kind(f"retry-after-{i}", raw(head(429, "text/plain", f"Retry-After: {value}"), b"?"), "rate_limited/http_429")
        for i, value in enumerate(
            ("1e308", "-1", "9" * 5000, "Fri, 31 Dec 9999 23:59:59 GMT", "Mon, 32 Foo 2024", "\x01")
        )
    ),
)  # fmt: skip
