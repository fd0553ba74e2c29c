"""Failures that an expected failure knows: it says what they are, and only a waiver accepts them."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from made_records import BASE, KERNEL, Record, changed, compared, fail, kinds, observing, record, timed, write_run

import conformance.judging
from conformance.commands.shared.comparison_output import to_json
from conformance.gate.changes.status_changes import fails
from conformance.gate.runs.judged_records import judged_records
from conformance.gate.runs.known_defects import harm_of, harm_of_check, known_defect
from conformance.gate.runs.run_reader import read_compared_run
from conformance.gate.verdict import apply_waivers, gate_verdict
from conformance.gate.verdict.gate_verdict import with_policy
from conformance.records import CaseRecord, Check, CheckKind, Status, from_line, read_records
from conformance.reporting.comparison import render_markdown, render_terminal
from conformance.reporting.first_line import answer
from conformance.user_files import waiver_file
from conformance.user_files.expected_failures import ExpectedFailures, parsed, status_without_entry
from conformance.user_files.findings import GAINS, MEANING, NEW_FAILURES, SEVERITY, Comparison, Harm, Kind, Severity
from conformance.user_files.toml_entries import EntryError

LINK = "https://github.com/triton-lang/triton/issues/11733"
NUMBERS = ("numerics/transparent", "FAIL 9/416 wrong")
MEMORY = ("memory", "12 bytes written")
GRID = ("grid", "3, not 4")
LOST = ("codegen/requires/TMA_LOAD", "no match")
IN_TTGIR = ("executed/ttgir/numerics/transparent", "FAIL 9/416 wrong")
OTHER_IN_TTGIR = ("executed/ttgir/numerics/wide-A", "FAIL 3/416 wrong")
SPILLED = ("codegen/forbids/SPILL", "48 bytes")


def expected(
    *failing: tuple[str, str],
    entry: str = "entry-a",
    link: str = LINK,
    fixed_in: str = "",
    status: str | None = "fail",
    diagnosis: str = "",
) -> Record:
    """A case that fails as the entry ``entry`` expects. ``status`` is what it had without the entry, None for a record
    of an older version, which does not say it."""
    one = record()
    for check, text in failing:
        fail(one, check, text)
    if not failing:
        one.update(verdicts=[], executor=None)
        one["observed"] = {}
    one |= {"status": "expected-fail", "diagnosis": f"expected failure {entry} ({link}):\n{diagnosis}"}
    one["reason"] = {"code": "known-defect", "subject": entry, "detail": f"{link}, owner us, expires 2027-06-30"}
    if status is not None:
        one["observed"] = {
            **one["observed"],
            "expected_failure": {"status": status, "upstream": link, "fixed_in": fixed_in},
        }
    return one


def failed(*failing: tuple[str, str], status: str = "fail", diagnosis: str = "") -> Record:
    """A case that fails, and no entry knows it."""
    one = record()
    for check, text in failing:
        fail(one, check, text)
    if not failing:
        one.update(verdicts=[], executor=None, observed={})
    one |= {"status": status, "diagnosis": diagnosis or one["diagnosis"]}
    return one


def read(folder: Path, one: Record) -> CaseRecord:
    return read_compared_run(write_run(folder, [one])).records[one["case"]]


COMPILER = "triton.CompilationError: PassManager::run failed"
NOT_COMPILED = {"status": "compile-error", "diagnosis": COMPILER}
SAID_NO = {"diagnosis": "somebody said no"}


@pytest.mark.parametrize(
    ("one", "harm"),
    [
        (expected(NUMBERS), Harm.WRONG),
        (expected(LOST, NUMBERS), Harm.WRONG),
        (expected(("executed/ttgir/numerics/transparent", "9 wrong")), Harm.WRONG),
        (expected(("executed/layouts", "two rows in a byte, and the unit reads two depths")), Harm.WRONG),
        (expected(("codegen/repeated-k", "some k twice")), Harm.WRONG),
        (expected(("codegen/operand-order", "exchanged")), Harm.WRONG),
        (expected(("executed/ttgir", "the result of wgmma is read before anybody waited for it")), Harm.RACE),
        (expected(("codegen/order/unfenced", "no fence")), Harm.RACE),
        (expected(("codegen/lds-across-barrier", "open")), Harm.RACE),
        (expected(("repeat/randn", "differ")), Harm.RACE),
        (expected(MEMORY), Harm.MEMORY),
        (expected(("executed/ttgir/memory", "outside")), Harm.MEMORY),
        (expected(("executed/ttgir", "deadlock: everybody waits")), Harm.CRASH),
        (expected(("executed/ttgir", "something that nobody has seen")), Harm.UNKNOWN),
        (expected(LOST), Harm.FEATURE_LOST),
        (expected(("codegen/forbids/POINTER_LOAD", "found")), Harm.FEATURE_LOST),
        (expected(SPILLED), Harm.SPILLS),
        (expected(("spills", "48 bytes")), Harm.SPILLS),
        (expected(("resources", "shared memory: 2")), Harm.TOO_LARGE),
        (expected(("compile/template", "no")), Harm.NOT_COMPILED),
        (expected(("codegen/judged-is-launched", "no")), Harm.UNKNOWN),
        (expected(("a vendor's check", "no")), Harm.UNKNOWN),
        (expected(("diagnosis", "CAUSE"), LOST), Harm.FEATURE_LOST),
        (expected(status="compile-error", diagnosis="who knows"), Harm.NOT_COMPILED),
        (expected(status="crash", diagnosis="the compiler died: SIGABRT"), Harm.NOT_COMPILED),
        (expected(diagnosis="InterpreterError\nCAUSE the kernel raises AssertionError at a.py:3"), Harm.RAISES),
        (expected(diagnosis="somebody said no"), Harm.UNKNOWN),
        (expected(status=None, diagnosis="LLVM ERROR: cannot select"), Harm.NOT_COMPILED),
        (expected(status=None, diagnosis="somebody said no"), Harm.UNKNOWN),
        ({**expected(NUMBERS, status="crash"), "verdicts": []}, Harm.CRASH),
    ],
)
def test_what_a_defect_does_follows_from_the_record(tmp_path: Path, one: Record, harm: Harm) -> None:
    assert harm_of(read(tmp_path, one)) is harm


def test_every_fault_of_the_code_has_a_class() -> None:
    """A check of the code that the table lacks would be a defect of unknown class."""
    sources = [path.read_text() for path in sorted(Path(conformance.judging.__path__[0]).glob("*.py"))]
    subjects = {name for text in sources for name in re.findall(r"""_verdict\(\s*f?"([a-z][\w/-]*)""", text)}
    assert {"operand-slots", "repeated-k", "products"} <= subjects
    unknown = [name for name in subjects if harm_of_check(Check(CheckKind.CODEGEN, name)) is Harm.UNKNOWN]
    assert unknown == []


def test_a_known_defect_has_its_entry_its_link_and_the_release_that_mends_it(tmp_path: Path) -> None:
    defect = known_defect(read(tmp_path / "now", expected(NUMBERS, fixed_in="triton 3.9.0")))
    assert (defect.id, defect.harm, defect.link) == ("entry-a", Harm.WRONG, LINK)
    assert defect.fixed_in == "triton 3.9.0"
    assert str(defect) == f"wrong numbers: entry-a, {LINK}"
    old = known_defect(read(tmp_path / "old", expected(NUMBERS, status=None)))
    assert (old.id, old.harm, old.link, old.fixed_in) == ("entry-a", Harm.WRONG, LINK, "")


B = {"entry": "entry-b", "link": "https://github.com/triton-lang/triton/issues/2"}
#: What a case was, what it is, and the kind of the finding; "" for none.
CHANGES = {
    "passed": (record(), expected(NUMBERS), "NEW_KNOWN_DEFECT"),
    "only a feature": (record(), expected(LOST), "NEW_KNOWN_DEFECT"),
    "unknown harm": (record(), expected(diagnosis="no"), "NEW_KNOWN_DEFECT"),
    "the same": (expected(NUMBERS), expected(NUMBERS), ""),
    "another fill": (expected(NUMBERS), expected(NUMBERS, ("numerics/wide-A", "FAIL")), "NEW_KNOWN_DEFECT"),
    "the memory, too": (expected(NUMBERS), expected(NUMBERS, MEMORY), "NEW_KNOWN_DEFECT"),
    "the grid, too": (expected(NUMBERS), expected(NUMBERS, GRID), "NEW_KNOWN_DEFECT"),
    "another fill of TTGIR": (expected(IN_TTGIR), expected(IN_TTGIR, OTHER_IN_TTGIR), "NEW_KNOWN_DEFECT"),
    "fewer fills of TTGIR": (expected(IN_TTGIR, OTHER_IN_TTGIR), expected(IN_TTGIR), ""),
    "another fill of TTGIR, no entry": (failed(IN_TTGIR), failed(IN_TTGIR, OTHER_IN_TTGIR), "NEW_FAIL"),
    "the memory of TTGIR, too": (
        expected(IN_TTGIR),
        expected(IN_TTGIR, ("executed/ttgir/memory", "12 bytes")),
        "NEW_KNOWN_DEFECT",
    ),
    "fewer fills": (expected(NUMBERS, ("numerics/wide-A", "FAIL")), expected(NUMBERS), ""),
    "another defect": (expected(NUMBERS), expected(NUMBERS, **B), "NEW_KNOWN_DEFECT"),
    "two entries of one defect": (expected(NUMBERS), expected(NUMBERS, entry="entry-b"), "STILL_FAIL"),
    "compiles, and is wrong": (expected(**NOT_COMPILED), expected(NUMBERS, entry="entry-b"), "NEW_KNOWN_DEFECT"),
    "wrong, and compiles no more": (expected(NUMBERS), expected(**NOT_COMPILED, entry="entry-b"), "NEW_KNOWN_DEFECT"),
    "one entry, another harm": (expected(LOST), expected(NUMBERS, LOST), "NEW_KNOWN_DEFECT"),
    "wrong, now only slow": (expected(NUMBERS, LOST), expected(LOST, **B), "STILL_FAIL"),
    "raised, now not compiled": (
        expected(diagnosis="CAUSE the kernel raises AssertionError"),
        expected(**NOT_COMPILED),
        "",
    ),
    "an older record, the same entry": (expected(status=None), expected(status="compile-error"), ""),
    "failed without an entry, the same": (failed(NUMBERS), expected(NUMBERS), "STILL_FAIL"),
    "failed without an entry, otherwise": (failed(LOST), expected(NUMBERS, LOST), "NEW_KNOWN_DEFECT"),
    "failed without an entry, and more": (failed(NUMBERS), expected(NUMBERS, MEMORY), "NEW_KNOWN_DEFECT"),
    "not compiled without an entry": (failed(**NOT_COMPILED), expected(NUMBERS), "NEW_KNOWN_DEFECT"),
    "not compiled, the same": (failed(**NOT_COMPILED), expected(**NOT_COMPILED), "STILL_FAIL"),
    "crashed, now wrong": (failed(status="crash", diagnosis="SIGSEGV"), expected(NUMBERS), "NEW_KNOWN_DEFECT"),
    "failed without an entry or a check, now wrong": (failed(**SAID_NO), failed(NUMBERS), "NEW_FAIL"),
    "failed without a check, now wrong by an entry": (failed(**SAID_NO), expected(NUMBERS), "NEW_KNOWN_DEFECT"),
    "not compiled without a check, and by one now": (
        expected(**NOT_COMPILED),
        expected(("compile/template", "no")),
        "",
    ),
    "one entry, no check before, now wrong": (expected(**SAID_NO), expected(NUMBERS), "NEW_KNOWN_DEFECT"),
    "one entry, unknown before, now the grid": (expected(**SAID_NO), expected(GRID), "NEW_KNOWN_DEFECT"),
    "an unknown harm, now not compiled": (expected(**SAID_NO), expected(**NOT_COMPILED), "NEW_KNOWN_DEFECT"),
    "an older record, now wrong": (expected(status=None), expected(NUMBERS), "NEW_KNOWN_DEFECT"),
    "an older record, now a flaky one": (expected(status=None), expected(status="flaky"), "NEW_KNOWN_DEFECT"),
    "no entry any more": (expected(NUMBERS), failed(NUMBERS), "NEW_FAIL"),
    "passes": (expected(NUMBERS), record(), "FIXED"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_an_entry_makes_no_failure_less_than_a_regression(tmp_path: Path, name: str) -> None:
    before, after, kind = CHANGES[name]
    comparison = compared(tmp_path, [before], [after])
    assert kinds(comparison) == ({kind: 1} if kind else {})
    assert comparison.safe == (kind not in ("NEW_KNOWN_DEFECT", "NEW_FAIL"))
    assert len(comparison.newly_failing) == (not comparison.safe)


@pytest.mark.parametrize("status", ["not-run", "unexpected-pass"])
def test_a_failing_check_fails_whatever_the_status_says(tmp_path: Path, status: str) -> None:
    after = failed(NUMBERS, status=status)
    if status != "unexpected-pass":
        after["reason"] = {"code": "no-device", "subject": "it", "detail": "said so"}
    comparison = compared(tmp_path, [record()], [after])
    assert kinds(comparison) == {"NEW_FAIL": 1}
    assert answer(comparison).startswith("NOT SAFE for the 1 case that was compared: 1 case newly fails; 1 regression")


def test_the_first_line_counts_what_newly_fails_known_or_not(tmp_path: Path) -> None:
    before = [record(config=f"c{number}") for number in range(15)]
    after = [record(config=f"c{number}") for number in range(15)]
    for one in after[:6]:
        fail(one, *NUMBERS, "expected-fail")
        one["reason"] = {"code": "known-defect", "subject": "entry-a", "detail": f"{LINK}, owner us"}
    fail(after[6], *NUMBERS)
    comparison = compared(tmp_path, before, after)
    begins = "NOT SAFE: 7 cases newly fail (6 by known defects); 7 regressions in 2 groups (1 NEW_FAIL, 6 NEW_KNOWN_D"
    assert answer(comparison).startswith(begins)
    assert render_terminal(comparison).startswith(begins)
    assert "7 cases newly fail (6 by known defects)" in render_markdown(comparison).splitlines()[0]
    data = json.loads(to_json(comparison))
    assert (data["newly_failing"], data["newly_failing_by_known_defects"]) == (7, 6)
    assert data["groups"][1]["findings"][0]["defect"] == {
        "id": "entry-a",
        "harm": "wrong numbers",
        "link": LINK,
        "fixed_in": "",
    }
    assert f"wrong numbers: entry-a, {LINK}" in render_terminal(comparison)


def test_the_release_that_mends_a_defect_stands_below_its_group(tmp_path: Path) -> None:
    comparison = compared(tmp_path, [record()], [expected(NUMBERS, fixed_in="triton 3.9.0")])
    assert comparison.groups[0].notes[0] == "fixed in triton 3.9.0"
    assert "    fixed in triton 3.9.0\n" in render_terminal(comparison)


def test_a_small_spill_that_fails_a_case_is_in_the_first_line_of_a_safe_answer(tmp_path: Path) -> None:
    after = record()
    after["observed"]["resources"]["spills"] = 16
    after["observed"]["code"]["sha256"] = "0" * 64
    fail(after, *SPILLED)
    comparison = compared(tmp_path, [record()], [after])
    assert comparison.safe
    assert kinds(comparison) == {"MORE_SPILLS": 1}
    assert answer(comparison).startswith("SAFE for the 1 case that was compared, 1 case newly fails: no regression")


def better(one: Record) -> None:
    """Everything about the code of the case gets better."""
    observing("resources", registers=96, spills=0, shared_memory=65536)(one)
    code = one["observed"]["code"]
    code["features"] = [*code["features"], "TCGEN05", "SCALED_MMA"]
    code["bytes"] = 4000
    one["observed"]["compile_s"] = 0.1
    timed(0.5)(one)


def wrong(status: str) -> Callable[[Record], None]:
    def change(one: Record) -> None:
        better(one)
        fail(one, *NUMBERS, status)
        if status == "expected-fail":
            one["reason"] = {"code": "known-defect", "subject": "entry-a", "detail": LINK}

    return change


def spilling(one: Record) -> None:
    observing("resources", spills=16)(one)


@pytest.mark.parametrize("status", ["fail", "expected-fail", "flaky", "crash"])
def test_a_case_that_newly_fails_gains_nothing(tmp_path: Path, status: str) -> None:
    base = changed(BASE, spilling)
    gained = kinds(compared(tmp_path / "passing", base, changed(base, better, **KERNEL)))
    assert {"FEATURE_GAINED", "MORE_OCCUPANCY", "FEWER_SPILLS", "FASTER", "FASTER_COMPILE"} <= gained.keys()
    comparison = compared(tmp_path / "failing", base, changed(base, wrong(status), **KERNEL))
    assert not {Kind[kind] for kind in kinds(comparison)} & {*GAINS}
    (regression,) = comparison.regressions
    assert not [note for note in regression.notes if "gained" in note]
    assert "gained" not in render_terminal(comparison)
    assert "gained" not in render_markdown(comparison)


def test_a_config_that_is_wrong_now_is_not_the_best_one(tmp_path: Path) -> None:
    def fastest(one: Record) -> None:
        timed(0.1)(one)
        fail(one, *NUMBERS)

    one = {"kernel": "mm", "target": "sm_90", "config": "64x64x64-s3-w4"}
    right = compared(tmp_path / "right", BASE, changed(BASE, timed(0.1), **one))
    assert kinds(right).get("BEST_CONFIG_MOVED") == 2
    assert "BEST_CONFIG_MOVED" not in kinds(compared(tmp_path / "wrong", BASE, changed(BASE, fastest, **one)))


def test_wrong_comes_before_slow(tmp_path: Path) -> None:
    """Each of these cases has another regression."""
    changes: list[tuple[str, Callable[[Record], None]]] = [
        ("slower", timed(2)),
        ("lost", lambda one: one["observed"]["code"]["features"].remove("TMA_LOAD")),
        ("known loss", lambda one: one.update(expected(LOST, entry="entry-c"), case=one["case"])),
        ("known race", lambda one: one.update(expected(("repeat/randn", "differ"), entry="entry-b"), case=one["case"])),
        ("known wrong", lambda one: one.update(expected(NUMBERS), case=one["case"])),
        ("new", lambda one: fail(one, *NUMBERS)),
    ]
    before = [record(problem=name) for name, _ in changes]
    after = changed(before, lambda one: None)
    for one, (_, change) in zip(after, changes, strict=True):
        change(one)
    groups = compared(tmp_path, before, after).regressions
    shown = [f"{group.kind.value} {group.cause}" for group in groups]
    begins = (
        "NEW_FAIL numerics/",
        "NEW_KNOWN_DEFECT wrong numbers: entry-a",
        "NEW_KNOWN_DEFECT race: entry-b",
        "NEW_KNOWN_DEFECT feature lost: entry-c",
        "FEATURE_LOST TMA_LOAD lost",
        "SLOWER",
    )
    assert [text.startswith(words) for text, words in zip(shown, begins, strict=True)] == [True] * 6, shown


def test_the_order_of_kinds_has_what_is_wrong_before_what_is_slow() -> None:
    order = [kind for kind in Kind if SEVERITY[kind] is Severity.REGRESSION]
    races = (Kind.WAIT_MOVED, Kind.LDS_ACROSS_BARRIER, Kind.ORDER_LOST)
    slow = (Kind.FEATURE_LOST, Kind.ACCUMULATOR_MOVED, Kind.MORE_SPILLS, Kind.LESS_OCCUPANCY, Kind.SLOWER)
    assert max(map(order.index, (*NEW_FAILURES, *races))) < min(map(order.index, slow))
    assert [*Kind].index(Kind.WAIVED) < min([*Kind].index(kind) for kind in GAINS)
    assert Kind.NEW_KNOWN_DEFECT in MEANING


WAIVER = f"""[[waiver]]
cases = "test_config_space.py::test_row[mm-*"
stack = {{ triton = "==3.8.*" }}
kind = "NEW_KNOWN_DEFECT"
reason = "we multiply no mxfp4"
issue = "{LINK}"
owner = "us"
expires = 2027-06-30
"""


def applied(folder: Path, before: Record, after: Record, text: str) -> tuple[Comparison, gate_verdict.GateVerdict]:
    comparison = compared(folder, [before, record("addmm")], [after, record("addmm")])
    records = judged_records(read_records(folder / "candidate").records)
    waivers = waiver_file.parsed(text, "waivers.toml")
    waived = apply_waivers.apply(waivers, records, date(2026, 11, 26), comparison)
    passing = [one.case for one in records if one.status is Status.PASS]
    verdict = gate_verdict.decide(comparison=comparison, waivers=waived, passing=passing)
    return with_policy(comparison, verdict, waived.uncovered), verdict


@pytest.mark.parametrize("seen", ["", "FAIL 9/416", "numerics/", "entry-a", "11733"])
def test_only_a_waiver_accepts_a_known_defect_and_it_stays_in_the_first_line(tmp_path: Path, seen: str) -> None:
    text = WAIVER + (f'seen = "{seen}"\n' if seen else "")
    comparison, verdict = applied(tmp_path, record(), expected(NUMBERS), text)
    assert verdict.passed
    assert comparison.safe
    assert answer(comparison).startswith(
        "SAFE for the 2 cases that were compared, 1 regression waived, 1 case newly fails (by a known defect): "
        "no other regression in 2 of 2 cases"
    )
    data = json.loads(to_json(comparison))
    assert (data["waived"], data["newly_failing"], data["newly_failing_by_known_defects"]) == (1, 1, 1)


@pytest.mark.parametrize(
    "text",
    [
        WAIVER.replace('kind = "NEW_KNOWN_DEFECT"\n', ""),
        WAIVER + 'seen = "memory"\n',
        WAIVER.replace("2027", "2025"),
        WAIVER.replace("[mm-*", "[bmm-*"),
    ],
    ids=["NEW_FAIL", "another failure", "expired", "other cases"],
)
def test_a_waiver_of_something_else_does_not_accept_a_known_defect(tmp_path: Path, text: str) -> None:
    comparison, verdict = applied(tmp_path, record(), expected(NUMBERS), text)
    assert not comparison.safe
    edits = [reason.edit for reason in verdict.reasons if reason.text.startswith("NEW_KNOWN_DEFECT")]
    assert len(edits) == 1
    assert 'kind = "NEW_KNOWN_DEFECT"' in edits[0]


def test_a_waiver_of_a_known_defect_that_passes_is_removed(tmp_path: Path) -> None:
    _, verdict = applied(tmp_path, record(), record(), WAIVER)
    assert "pass unexpectedly" in str(verdict.reasons[0])


ENTRY = """[[expected_failure]]
id = "no-product"
cases = "test_config_space.py::*"
stack = { triton = ">=3.6,<3.9" }
upstream = "https://example.org/1"
seen = "PassManager"
owner = "us"
expires = 2099-01-01
"""


def of_entry(text: str = ENTRY, status: Status = Status.COMPILE_ERROR) -> CaseRecord:
    """The record of a case of triton 3.8.0 that fails with ``status``, after the entry ``text`` was applied."""
    one = from_line(json.dumps(failed(status=status.value, diagnosis=COMPILER)))
    return ExpectedFailures(tuple(parsed(text, "mine.toml"))).applied(one)


def test_a_record_keeps_what_its_entry_says(tmp_path: Path) -> None:
    """The user's own entries, and those of third-party kernels, go the same way as those of the package."""
    text = ENTRY.replace("seen =", 'fixed_in = "triton 3.9.0"\nseen =')
    excused = of_entry(text)
    assert excused.status is Status.EXPECTED_FAIL
    assert status_without_entry(excused) is Status.COMPILE_ERROR
    folder = write_run(tmp_path / "candidate", [])
    (folder / "records.jsonl").write_text(excused.to_line())
    defect = known_defect(read_compared_run(folder).records[excused.case])
    assert defect.harm is Harm.NOT_COMPILED
    assert (defect.id, defect.link, defect.fixed_in) == ("no-product", "https://example.org/1", "triton 3.9.0")


@pytest.mark.parametrize("observed", [{}, {"expected_failure": 3}, {"expected_failure": {"status": "no"}}])
def test_an_older_record_keeps_its_status(observed: dict[str, object]) -> None:
    assert status_without_entry(replace(of_entry(), observed=observed)) is Status.EXPECTED_FAIL


@pytest.mark.parametrize("release", ["3.9.0", "triton", "triton 3.8.1", "torch 2.14.0", "triton >=3.9"])
def test_the_release_that_mends_a_defect_is_one_that_the_entry_does_not_cover(release: str) -> None:
    with pytest.raises(EntryError, match="fixed_in"):
        parsed(ENTRY.replace("seen =", f'fixed_in = "{release}"\nseen ='), "mine.toml")


def test_of_all_pairs_none_that_newly_fails_is_less_than_a_regression(tmp_path: Path) -> None:
    """Every record of this file before, and every one after: no pair of them is passed over."""
    kinds_of_records = [one for sides in CHANGES.values() for one in sides[:2]]
    for status, code in (("not-run", "no-device"), ("not-applicable", "capability"), ("unexpected-pass", "x")):
        bare = {**record(), "status": status, "reason": {"code": code, "subject": "it", "detail": "said so"}}
        kinds_of_records += [bare, {**failed(NUMBERS, LOST), "status": status, "reason": bare["reason"]}]
        if code == "x":
            kinds_of_records[-2:] = [{**one, "reason": None} for one in kinds_of_records[-2:]]
    different = {json.dumps(one): one for one in kinds_of_records}.values()
    pairs = list(itertools.product(different, repeat=2))
    befores, afters = ([{**pair[at], "case": f"case-{n:05}"} for n, pair in enumerate(pairs)] for at in (0, 1))
    comparison = compared(tmp_path, befores, afters)
    regressed = {one.case for group in comparison.regressions for one in group.findings}
    gained = {one.case for group in comparison.groups if group.kind in GAINS for one in group.findings}
    sides = [read_compared_run(tmp_path / name).records for name in ("baseline", "candidate")]
    newly = {case for case in sides[1] if fails(sides[1][case]) and not fails(sides[0][case])}
    assert len(newly) > 50
    assert newly <= regressed
    assert newly <= comparison.newly_failing
    assert not gained & {case for case in sides[1] if fails(sides[1][case])}
