"""Tallies: what happened within a span of time, added up from the lines of the journal.

A line is one of these, with blanks between its words; the parts of core scripts in ``lua/`` write them. In front of
each stands when that was (ms) and the owner, without a blank between the two::

    submitted                                   a run is there; a blank is behind it, as with the next one
    <status> <class>                            a run has ended; the class of its error, if it failed
    <kind> <outcome> <class> <waited> <lasted>  the lease of a step is over: for how long (ms) the step was ready before
                                                it (a dash for one that goes on in place), and how long it lasted; the
                                                class of its failure, or a dash
    … <model> <calls> <input> <output> <cost>   and what its calls of a model used: tokens, and nano-dollars, or a dash
                                                if unknown
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

import orjson

from palaver.telemetry.metrics import OTHER
from palaver.vocabulary.limits import limit_of
from palaver.vocabulary.step_kinds import MODEL

from .histograms import bucket_of

VERSION: Final = 1
"""The version of a tally as it is stored. One without is of the form of version 1."""
_NONE: Final = "-"
_CALLED: Final = frozenset({"done", "failed", "retried"})
"""Outcomes of model steps that were about the answer of a model."""
MODEL_COLUMNS: Final = ("calls", "input_tokens", "output_tokens", "cost", "unpriced_calls")
"""The numbers of a model; the cost is in nano-dollars."""


class NewerTally(Exception):
    """A tally was stored by a newer version: this one leaves it as it is."""

    def __init__(self, version: object, number: int) -> None:
        super().__init__(f"a tally has version {version}, and {VERSION} is known here")
        self.number = number
        """The number of its span: in its place in every version."""


class JournalLine(NamedTuple):
    """A line of the journal."""

    at: int
    """ms."""
    owner: str
    words: list[str]

    @classmethod
    def of(cls, text: bytes) -> Self:
        """Read a line."""
        place, *words = text.decode().split(" ")
        at = place.partition("@")[0]
        return cls(int(at), place[len(at) :], words)


@dataclass
class SpanTally:
    """The sum of what happened within a span of time."""

    runs: Counter[str] = field(default_factory=Counter)
    """Runs that were submitted, and those that have ended, by status."""
    run_errors: Counter[str] = field(default_factory=Counter)
    """Runs that have failed, by error class."""
    steps: Counter[str] = field(default_factory=Counter)
    """Leases that are over, by ``kind outcome``."""
    step_errors: Counter[str] = field(default_factory=Counter)
    """Leases that failed, were retried or lost, by error class."""
    waited: Counter[int] = field(default_factory=Counter)
    """Times for which steps were ready before a worker took them, by bucket; none of those that went on in place."""
    called: Counter[int] = field(default_factory=Counter)
    """Times that model steps took, by bucket."""
    models: dict[str, Counter[str]] = field(default_factory=dict)
    """For each model `MODEL_COLUMNS`."""

    def add(self, words: list[str]) -> None:
        """Count what a line says. Raises what is in UNREADABLE, and counts nothing then."""
        match words:
            case [status, error]:
                self.runs[status] += 1
                if error:
                    self.run_errors[error] += 1
            case [kind, outcome, error, waited, lasted, *used]:
                was_ready = None if waited == _NONE else bucket_of(int(waited))
                took = bucket_of(int(lasted)) if kind == MODEL.name and outcome in _CALLED else None
                of_model = _used(used) if used else None
                self.steps[f"{kind} {outcome}"] += 1
                if error != _NONE:
                    self.step_errors[error] += 1
                if was_ready is not None:
                    self.waited[was_ready] += 1
                if took is not None:
                    self.called[took] += 1
                if of_model is not None:
                    self._add_model(*of_model)
            case _:
                raise ValueError("it is none of the lines")

    def merge(self, other: SpanTally) -> None:
        """Add what another one has."""
        for name in ("runs", "run_errors", "steps", "step_errors", "waited", "called"):
            getattr(self, name).update(getattr(other, name))
        for model, numbers in other.models.items():
            self._add_model(model, numbers)

    def to_json(self, number: int) -> bytes:
        """As it is stored, with the number of its span."""
        models = {name: [numbers[column] for column in MODEL_COLUMNS] for name, numbers in self.models.items()}
        times = ({str(bucket): n for bucket, n in times.items()} for times in (self.waited, self.called))
        counts = (self.runs, self.run_errors, self.steps, self.step_errors)
        return orjson.dumps({"v": VERSION, "number": number, "tally": [*counts, *times, models]})

    @classmethod
    def of_json(cls, text: bytes) -> tuple[int, Self]:
        """Read one, and the number of its span. Raises NewerTally."""
        stored = orjson.loads(text)
        if isinstance(stored, list):
            stored = {"v": VERSION, "number": stored[0], "tally": stored[1:]}
        number = stored["number"]
        if stored["v"] != VERSION:
            raise NewerTally(stored["v"], number)
        runs, run_errors, steps, step_errors, waited, called, models = stored["tally"]
        return number, cls(
            Counter(runs),
            Counter(run_errors),
            Counter(steps),
            Counter(step_errors),
            _times(waited),
            _times(called),
            {name: Counter(dict(zip(MODEL_COLUMNS, numbers, strict=True))) for name, numbers in models.items()},
        )

    def _add_model(self, model: str, numbers: Counter[str]) -> None:
        # Users name models: one tally must not hold as many as they can think of.
        if model not in self.models and len(self.models) >= limit_of("statistics_models"):
            model = OTHER
        self.models.setdefault(model, Counter()).update(numbers)


def _used(words: list[str]) -> tuple[str, Counter[str]]:
    """The model that was called, and its numbers."""
    model, calls, read, written, cost = words
    priced = ("cost", int(cost)) if cost != _NONE else ("unpriced_calls", int(calls))
    numbers = {"calls": int(calls), "input_tokens": int(read), "output_tokens": int(written)}
    return model, Counter({**numbers, priced[0]: priced[1]})


def _times(stored: dict[str, Any]) -> Counter[int]:
    return Counter({int(bucket): number for bucket, number in stored.items()})
