"""Faults after which the run goes on or ends without an error."""

from __future__ import annotations

from tests.process.faults.bodies import IN_A_200, MALFORMED, NOTHING
from tests.process.faults.broken import CONNECTIONS, TIMEOUTS
from tests.process.faults.row import STREAM, Row, completes, recovers, stops, words
from tests.process.faults.saying import DONE, FINE, calling, chunk, completion, events
from tests.process.faults.statuses import LIMITS, STATUSES

CALCULATOR = ("calculator",)
TURN = {"script": "raw@1+say-5", "tools": CALCULATOR, "tries": 2, "output": words(5)}
"""Calls of the calculator as the row tells, then an answer."""

STOPS = (
    stops("policy", "policy", "content_filter"),
    stops("filter", "say-9+filter", "content_filter", output="w1 w2 w3"),
    stops("length", "say-9", "max_tokens", output="w1 w2", agent={"max_output_tokens": 2}),
    stops("length-in-a-call", completion(calling({"id": "c"}), "length"), "max_tokens", tools=CALCULATOR),
)

ODD = (
    completes("stream-as-json", events(chunk(FINE, "stop"), DONE, content_type="application/json"), output="Fine."),
    completes("no-done", events(chunk(FINE, "stop")), output="Fine.", forms=STREAM),
)  # fmt: skip

CALLS = (
    completes("calls-with-finish-stop", completion(calling({"id": "c"}), "stop"), **TURN),
    completes("bad-arguments", "tool-1+badargs-1+say-5", told_to_model="invalid_tool_call", tools=CALCULATOR, tries=2,
              output=words(5)),
    completes("unknown-tool", "tool-1+unknowntool-1+say-5", told_to_model="invalid_tool_call", tools=CALCULATOR,
              tries=2, output=words(5)),
)  # fmt: skip

FAULTS = (*CONNECTIONS, *TIMEOUTS, *MALFORMED, *NOTHING, *IN_A_200, *STATUSES, *LIMITS)


def _of(name: str) -> tuple[Row, ...]:
    return tuple(row for row in FAULTS if row.name == name)


RECOVERIES = (
    *(
        recovers(row, script)
        for name, script in {
            "reset": "reset-2+say-5",
            "no-answer": "raw-2+say-5",
            "hang": "hang-2+say-5",
            "bad-json": "badjson-1+say-5",
            "no-choices": "empty-2+say-5",
            "500": "500-2+say-5",
            "429-seconds": "429-2-2+say-5",
            "529": "529-2+say-5",
        }.items()
        for row in _of(name)
    ),
    *(
        recovers(row, script, said=20)
        for name, script in {
            "cut": "say-20+rate-25+cut-2-15",
            "stall": "say-20+rate-50+stall-2-15",
            "error-in-stream": "say-20+rate-50+errorchunk-2-15",
        }.items()
        for row in _of(name)
    ),
    *(recovers(row, "tool-1+args-split-3+cut-2-5@1+say-5", tries=4) for row in _of("cut-in-arguments")),
)
