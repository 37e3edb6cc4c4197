"""W3C Trace Context, what is sampled, and what the environment may say."""

from __future__ import annotations

import pytest

from palaver.errors import ConfigurationError
from palaver.secrets.redaction import redact
from palaver.telemetry.traces import Parent, Trace, Tracing, is_on, new_trace
from workers.steps.attempt_notes import word_of

ON = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
HEADER = f"00-{TRACE}-{SPAN}-01"


def _tracing(**more: str) -> Tracing:
    found = Tracing.of({**ON, **more})
    assert found is not None
    return found


def test_a_header_is_read() -> None:
    assert Parent.read(HEADER) == Parent(TRACE, SPAN, sampled=True)
    assert Parent.read(f"00-{TRACE}-{SPAN}-00") == Parent(TRACE, SPAN, sampled=False)
    assert Parent.read(f"01-{TRACE}-{SPAN}-03-more") == Parent(TRACE, SPAN, sampled=True), "of a later version"


@pytest.mark.parametrize(
    "header",
    [
        "",
        "x" * 10_000,
        HEADER.upper(),
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-0g",
        f"{HEADER}\n",
    ],
)
def test_what_is_no_header_is_as_good_as_none(header: str) -> None:
    assert Parent.read(header) is None


def test_a_trace_is_stored_and_read_back() -> None:
    trace = _tracing().begin(Parent(TRACE, SPAN, sampled=True))
    assert Trace.from_stored(trace.stored) == trace
    assert (trace.trace_id, trace.caller_id) == (TRACE, SPAN)
    assert trace.stored[52:55] == "-01", "where scripts look for it"
    alone = _tracing().begin(None)
    assert Trace.from_stored(alone.stored) == alone


def test_the_ids_of_spans_follow_from_what_they_are_of() -> None:
    trace = _tracing().begin(None)
    ids = [trace.span_id(*of) for of in (("1", 7), ("1", 8), ("2", 7), ("1", 7, "c1"))]
    assert len({*ids, trace.root_id}) == 5
    assert ids == [
        Trace.from_stored(trace.stored).span_id(*of) for of in (("1", 7), ("1", 8), ("2", 7), ("1", 7, "c1"))
    ]


@pytest.mark.parametrize(
    ("sampler", "of_caller", "expected"),
    [
        ("", True, True),
        ("", False, False),
        ("", None, True),
        ("parentbased_always_off", True, True),
        ("parentbased_always_off", None, False),
        ("always_on", False, True),
        ("always_off", True, False),
    ],
)
def test_who_decides(sampler: str, of_caller: bool | None, expected: bool) -> None:
    parent = None if of_caller is None else Parent(TRACE, SPAN, of_caller)
    assert _tracing(OTEL_TRACES_SAMPLER=sampler).begin(parent).sampled is expected


def test_a_share_is_sampled() -> None:
    tracing = _tracing(OTEL_TRACES_SAMPLER="traceidratio", OTEL_TRACES_SAMPLER_ARG="0.25")
    assert 100 < sum(tracing.begin(None).sampled for _ in range(1000)) < 400
    low, high = f"{'f' * 16}{'0' * 16}", "f" * 32
    assert tracing.begin(Parent(low, SPAN, False)).sampled
    assert not tracing.begin(Parent(high, SPAN, True)).sampled


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
        {**ON, "OTEL_SDK_DISABLED": "true"},
        {**ON, "OTEL_TRACES_EXPORTER": "none"},
    ],
)
def test_tracing_is_off(environment: dict[str, str]) -> None:
    assert not is_on(environment)
    assert Tracing.of(environment) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_TRACES_SAMPLER", "jaeger_remote"),
        ("OTEL_TRACES_SAMPLER_ARG", "half"),
        ("OTEL_TRACES_SAMPLER_ARG", "2"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
    ],
)
def test_what_palaver_cannot_do_is_said(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{name}: "):
        _tracing(**{name: value})


def test_a_run_has_a_trace_only_when_somebody_asks_for_it() -> None:
    assert new_trace() is None
    with _tracing().request(HEADER):
        one, other = new_trace(), new_trace()
        assert one
        assert other
        assert one.trace_id == other.trace_id == TRACE
        assert one.root_id != other.root_id
    with _tracing().request("nonsense"):
        alone = new_trace()
        assert alone
        assert not alone.caller_id
    assert new_trace() is None


def test_keys_of_a_collector_are_kept_out_of_what_is_shown() -> None:
    _tracing(OTEL_EXPORTER_OTLP_HEADERS="Authorization=Basic%20c2stY2FuYXJ5OnNlY3JldA==,x-project=one")
    shown = redact("Authorization: Basic c2stY2FuYXJ5OnNlY3JldA== was refused")
    assert "c2stY2FuYXJ5OnNlY3JldA==" not in shown


def test_the_reason_for_an_end_is_a_word() -> None:
    assert word_of("tool_calls") == "tool_calls"
    assert word_of("so " * 100_000) == ("so " * 22)[:64]
