"""`python -m bench.console [--quick] [--only PART] [--out FILE]`: the console in a browser, as Markdown tables.

Needs Chromium. Everything listens on loopback alone, in processes that end with the bench. Takes about half an hour,
with --quick five minutes.
"""

from __future__ import annotations

from typing import Final

from bench.console import left_alone, many, night, weight
from bench.program import Part, main, report_on

PARTS: Final[dict[str, Part]] = {
    "weight": lambda quick: weight.measure(rounds=3 if quick else 15),
    "alone": lambda quick: left_alone.measure(seconds=20 if quick else 60),
    "night": lambda quick: night.measure(hours=1 if quick else 12, pages=1 if quick else 4),
    "runs": lambda quick: many.runs(10_000 if quick else 100_000),
    "events": lambda quick: many.events(1_000 if quick else 10_000),
}
TARGETS: Final = (
    "What it should show: 50 consoles that nobody touches cost the API at most 3 % of a core on any page; what a "
    "browser keeps of a page after a night is what it kept after an hour; a list of 100,000 runs opens, goes on and "
    "is filtered as one of a hundred."
)


if __name__ == "__main__":
    main("bench.console", __doc__, PARTS, report_on(PARTS, "The console, measured", TARGETS))
