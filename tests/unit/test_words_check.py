"""The check of names finds what it says that it finds."""

from __future__ import annotations

import pytest

from deploy.words_check import GENERATED, MOST_SIDES, SIDES, faults, indefinite, indefinite_faults, modules, part

GOOD = '''"""The lines of a queue."""

LIMIT = 3
"""The most lines."""
_LEAST = 1
"""How many at least."""


class Line:
    """A line. Which one comes first is for its reader to say."""

    length: int
    """The number of its entries."""

    def __init__(self) -> None:
        self.closed = False
        """True once nobody may join."""
        self._waiting = 0
        """How many wait."""

    def full(self) -> bool:
        """Tell whether it is full."""
        return self._full()

    def _full(self) -> bool:
        """Whether it is full."""
        return True


class _Place:
    """Where somebody stands."""

    number: int
    """Of those before it."""
'''


def _found(text: str, **others: str) -> list[str]:
    files = {"palaver/lines.py": text, **{f"api/{name}.py": other for name, other in others.items()}}
    return list(faults(files, {}))


def test_names_pass_and_so_does_what_is_private() -> None:
    assert _found(GOOD) == []


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("The lines of a queue.", "What a queue has.", "1: the module: 'What …'"),
        ("The lines of a queue.", "\n    Whose lines they are.", "1: the module: 'Whose …'"),
        ("The most lines.", "How many there may be.", "4: LIMIT: 'How …'"),
        ("A line.", "Who waits.", "10: Line: 'Who …'"),
        ("The number of its entries.", "Of its entries, the number.", "13: Line.length: 'Of …'"),
        ("True once nobody may join.", "Whether nobody may join.", "17: Line.__init__.closed: 'Whether …'"),
        ("Tell whether it is full.", "Whether it is full.", "22: Line.full: 'Whether …'"),
        ("Tell whether it is full.", "When it is full, and nobody may join.", "22: Line.full: 'When …'"),
        ("A line.", "Those that wait.", "10: Line: 'Those …'"),
        ("A line.", "Which lines there are.", "10: Line: 'Which …'"),
        ("A line.", "Where one waits.", "10: Line: 'Where …'"),
    ],
)
def test_a_headless_public_docstring_is_found(old: str, new: str, place: str) -> None:
    assert _found(GOOD.replace(old, new)) == [f"palaver/lines.py:{place} describes, and names nothing"]


def test_it_is_found_wherever_a_definition_stands() -> None:
    text = 'try:\n    LIMIT = 3\n    """How many there may be."""\nexcept LookupError:\n    LIMIT = 4\n'
    assert _found(text) == ["palaver/lines.py:3: LIMIT: 'How …' describes, and names nothing"]


def test_a_module_below_a_private_one_is_private() -> None:
    assert list(faults({"palaver/_lines/queue.py": '"""What a queue has."""'}, {})) == []


@pytest.mark.parametrize("word", ["Whatever", "Often", "Whole", "That", "Whereas", "Howling"])
def test_a_word_that_only_begins_like_one_passes(word: str) -> None:
    assert _found(GOOD.replace("A line.", f"{word} it is.")) == []


def test_two_classes_of_one_name_are_found() -> None:
    other = 'def place() -> None:\n    class Line:\n        """An iron one."""\n'
    assert _found(GOOD, rails=other) == ["palaver/lines.py:9: Line is another class, too: api/rails.py:2"]


def test_one_thing_may_have_two_sides_and_no_third() -> None:
    line = 'class Line:\n    """A line."""\n'
    sides = {"Line": "as the store and as the API has it"}
    files = {"palaver/lines.py": line, "api/lines.py": line}
    assert list(faults(files, sides)) == []
    assert list(faults(files | {"workers/lines.py": line}, sides)) == [
        "palaver/lines.py:1: Line is another class, too: api/lines.py:1, workers/lines.py:1"
    ]


def test_a_name_that_is_not_taken_twice_any_more_leaves_the_list() -> None:
    assert list(faults({"palaver/lines.py": 'class Line:\n    """A line."""\n'}, {"Line": "…", "Queue": "…"})) == [
        "SIDES: there are no two classes of the name Line",
        "SIDES: there are no two classes of the name Queue",
    ]


def test_the_list_is_short() -> None:
    line = 'class Line{}:\n    """A line."""\n'
    names = range(MOST_SIDES + 1)
    text = "".join(line.format(number) for number in names)
    sides = {f"Line{number}": "…" for number in names}
    assert list(faults({"palaver/lines.py": text, "api/lines.py": text}, sides)) == [
        f"SIDES: {MOST_SIDES + 1} names, of at most {MOST_SIDES}"
    ]


def test_the_list_gives_reasons() -> None:
    assert all(len(reason.split()) > 4 for reason in SIDES.values())


def test_it_reads_the_three_packages_but_not_the_generated_client() -> None:
    files = modules()
    assert {path.partition("/")[0] for path in files} == {"palaver", "workers", "api", "features"}
    assert {"palaver/client/aio/client.py", "palaver/client/__init__.py"} <= files.keys()
    assert not any(path.startswith(GENERATED) for path in files)


@pytest.mark.parametrize(
    ("path", "its"),
    [
        ("palaver/store/store.py", "product code"),
        ("features/batches/tests/test_runner.py", "tests and tools"),
        ("tests/unit/test_cli.py", "tests and tools"),
        ("features/batches/README.md", "pages"),
    ],
)
def test_a_file_belongs_to_a_part(path: str, its: str) -> None:
    assert part(path) == its


def test_sentences_that_do_not_say_who_acts_are_counted() -> None:
    files = {
        "api/a.py": '"""Nobody waits, whoever asks."""',
        "docs/a.md": "For somebody.\nEverybody.",
        "bench/a.py": "",
    }
    counts = indefinite(files)
    assert counts == {"product code": 2, "pages": 1, "tests and tools": 0}
    assert [*indefinite_faults(counts, {"product code": 2, "pages": 0, "tests and tools": 9})] == [
        "pages: whoever, somebody, nobody 1 times, of at most 0: say who acts"
    ]
