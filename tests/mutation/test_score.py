"""Scores, causes, known survivors and kept results."""

from __future__ import annotations

import dataclasses

import pytest

from conformance.mutation import score
from conformance.mutation.known_survivors import KNOWN, WrongLine, known_survivors
from conformance.mutation.operators import CLASSES
from conformance.mutation.results import Lines, MutantOutcome, Result
from conformance.mutation.score import ACCEPTED, Named, named_cause
from conformance.mutation.session import sample, unknown

KILLED = Result(
    "key", "tiles.f:body0:mask:1", "mask", "tiles.f", MutantOutcome.KILLED, "numerics/wide-A", diff=("-a", "+b")
)
SURVIVED = dataclasses.replace(
    KILLED, key="other", mutant="tiles.f:body1:loop:1", kind="loop", outcome=MutantOutcome.SURVIVED
)
EQUIVALENT = dataclasses.replace(
    KILLED, mutant="tiles.g:body1:loop:1", function="tiles.g", outcome=MutantOutcome.EQUIVALENT
)


def test_equivalents_count_neither_way():
    assert score.share_killed([KILLED, KILLED, KILLED, SURVIVED, EQUIVALENT]) == 75.0
    assert score.share_killed([EQUIVALENT]) == 100.0


def test_tables_name_rows_and_survivors():
    results = [KILLED, SURVIVED, EQUIVALENT]
    text = score.report(results, {}, causes=True)
    assert "| tiles.f | 2 | 1 | 0 | 1 | 0 | 0 | 50.0 |" in text
    assert "| loop | 1 | 0 | 0 | 1 | 0 | 0 | 0.0 |" in text
    assert "| **all** | 3 | 1 | 0 | 1 | 0 | 1 | 50.0 |" in text
    assert "| numerics/wide-A | 1 |" in text
    explained = {SURVIVED.mutant: "the loop has one step"}
    assert "| tiles.f | 2 | 1 | 0 | 0 | 1 | 0 | 50.0 |" in score.report(results, explained, causes=False)
    assert score.survivors(results, explained) == f"{SURVIVED.mutant}: the loop has one step\n    -a\n    +b"


def test_only_survivors_that_are_not_known_are_complained_about():
    assert unknown([KILLED, SURVIVED, EQUIVALENT], {}) == [SURVIVED]
    assert unknown([KILLED, SURVIVED, EQUIVALENT], {SURVIVED.mutant: "why"}) == []


@pytest.mark.parametrize(
    ("kind", "cause", "named"),
    [
        ("mask", "the K tail is not masked: k 97..111 read", Named.RIGHT),
        ("scale", "alpha and beta are exchanged", Named.RIGHT),
        ("scale", "k-block 1 of 3 (BLOCK_K=16) is skipped", Named.WRONG),
        ("loop", "k-block 2 of 3 (BLOCK_K=16) is skipped", Named.RIGHT),
        ("loop", "", Named.NONE),
        ("call", "anything", Named.UNTOLD),
        ("stride", "b is read 3 elements behind the last element, by program (0, 0, 0) at tiles.py:21", Named.RIGHT),
        ("scale", "b is read 3 elements behind the last element, by program (0, 0, 0) at tiles.py:21", Named.WRONG),
        ("bound", "program (0, 0, 0) stores out without key 3 of k, and reads key 0..2, at tiles.py:38", Named.RIGHT),
        ("scale", "the kernel raises ValueError (x) at tiles.py:49 in store, called at a.py:58 in f", Named.RIGHT),
        ("scale", "the kernel raises ValueError (x) at tiles.py:49 in store_rows", Named.UNTOLD),
    ],
)
def test_whether_a_named_cause_is_right(kind, cause, named):
    assert named_cause(kind, cause, "tiles.f") is named


def test_causes_are_accepted_for_classes_that_exist():
    assert set(ACCEPTED) < set(CLASSES)


def test_the_packages_list_can_be_read_and_wrong_lines_are_refused(tmp_path):
    assert all(reason for reason in known_survivors(KNOWN).values())
    path = tmp_path / "known.txt"
    path.write_text("# why\n\ntiles.f:body0:mask:1 the mask is always true\n")
    assert known_survivors(path) == {"tiles.f:body0:mask:1": "the mask is always true"}
    for wrong in ("tiles.f:body0:mask:1\n", "tiles.f no id\n"):
        path.write_text(wrong)
        with pytest.raises(WrongLine, match=r"known\.txt:1: an id of a mutant and the reason"):
            known_survivors(path)


def test_results_are_kept_and_an_unfinished_line_is_none(tmp_path):
    file = Lines(tmp_path / "results.jsonl")
    file.add(KILLED.to_json())
    file.add(SURVIVED.to_json())
    with file.path.open("a") as end:
        end.write(EQUIVALENT.to_json()[:40])
    assert [Result.from_json(line) for line in file] == [KILLED, SURVIVED]


def test_a_sample_is_the_same_each_time_and_has_something_of_each_function_and_class():
    mutants = [
        _Mutant(f"{function}{kind}{number}", kind, _Function(function))
        for function, count in (("small", 2), ("large", 50))
        for kind in ("mask", "loop")
        for number in range(count)
    ]
    first = sample(mutants, 3, 8)
    assert first == sample(mutants, 3, 8)
    assert first != sample(mutants, 4, 8)
    assert {(mutant.function.name, mutant.kind) for mutant in first} == {
        (function, kind) for function in ("small", "large") for kind in ("mask", "loop")
    }
    assert sorted(sample(mutants, 0, 1000), key=str) == sorted(mutants, key=str)


@dataclasses.dataclass(frozen=True)
class _Function:
    name: str


@dataclasses.dataclass(frozen=True)
class _Mutant:
    id: str
    kind: str
    function: _Function
