"""Each sentence that reassures, with records that contradict it: there it does not appear, and another one does.

A row of :func:`planted` names what is planted, the sentence, what stands there instead, and what makes the text.
:data:`TRUE` makes each sentence from records that bear it out: one that nothing says any more would prove nothing.
Sentences about running TTGIR are in ``test_sync_contradictions.py``, those of a diagnosis in
``tests/numerics/test_coincidences.py``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import made_records
import pytest
from made_records import (
    BASE,
    CONFIGS,
    Record,
    by,
    changed,
    crash,
    fail,
    failing,
    measured_once,
    not_run,
    observing,
    refused,
    then,
    timed,
    untimed,
    without,
)

from conformance.blame.answer_text import summary as blame_summary
from conformance.blame.inquiry import CaseAnswer
from conformance.commands.shared.blamed_findings import SYMPTOMS
from conformance.commands.shared.confirmed_scripts import reproduced
from conformance.commands.show import describe
from conformance.gate.runs.run_reader import read_compared_run
from conformance.gate.stacks.confirm_scripts import Attempt, Confirmation, ScriptOutcome
from conformance.records import CaseRecord, RunInfo, Status, Verdict, from_line
from conformance.reporting import html_data
from conformance.reporting.comparison import render_markdown, render_terminal
from conformance.reporting.decision import next_steps, not_looked_at, reach
from conformance.reporting.first_line import answer
from conformance.reporting.matrix_page import render as render_matrix
from conformance.reporting.run_verdict import headline
from conformance.reporting.summary import Tally
from conformance.reporting.sweep import fastest, rows
from conformance.user_files.findings import SEVERITY, Comparison, Kind, Severity

SMALL = [one for one in BASE if one["kernel"] == "mm" and one["target"] == "sm_90"]
Change = Callable[[Record], None]
#: Makes a text in this folder.
Text = Callable[[Path], str]
INFO = RunInfo("run", "2026-01-02T03:04:05+00:00", "full", 0, gpus=("0",))


def compared(folder: Path, change: Change | None = None, *, before: Change | None = None, **run: object) -> Comparison:
    """Eight cases before and now; ``before`` and ``change`` plant what the first and the second run record."""
    baseline = changed(SMALL, before, target="sm_90") if before else copy.deepcopy(SMALL)
    candidate = changed(baseline, change, target="sm_90") if change else copy.deepcopy(baseline)
    return made_records.compared(folder, baseline, candidate, **run)


def steps(change: Change | None, **fields: object) -> Text:
    """Returns the page's next steps."""
    return lambda folder: "\n".join(next_steps(replace(compared(folder, change), **fields), INFO))  # type: ignore[arg-type]


def first_line(change: Change, before: Change | None = None) -> Text:
    return lambda folder: answer(compared(folder, change, before=before))


def terminal(change: Change, before: Change | None = None) -> Text:
    return lambda folder: render_terminal(compared(folder, change, before=before))


def page_limits(change: Change, before: Change | None = None) -> Text:
    """Returns the reach of the answer that the page states, for a run whose stack and options name a GPU."""

    def text(folder: Path) -> str:
        comparison = compared(folder, change, before=before)
        return f"{reach(comparison, INFO)}\n" + "\n".join(not_looked_at(comparison, INFO, folder))

    return text


# What records are made to say

slower, faster = timed(1.3), timed(0.9)
wrong = failing("numerics/randn", "FAIL bounded/randn seed 0: 3/416 wrong")
differs = failing("repeat/randn", "two runs differ")
more_spills = observing("resources", spills=96, spill_unit="bytes")
spill_from_some = observing("resources", spills=32, spill_unit="bytes")
less_room = observing("resources", shared_memory=229_000, registers=250)
moved = observing("code", sync={"accumulator round trips": 1})
still = observing("code", sync={"barrier": 4})
waits_less = observing("code", sync={"barrier": 3})
unfenced = observing("code", sync={"barrier": 4, "products behind copies without a proxy fence": 2})
open_store = observing("code", sync={"barrier": 4, "LDS stores open at a barrier": 2})
other_bits = observing("outputs", randn="0" * 64)
another_problem = observing("run", problem="mm-1x1x1")
late_wait = observing("code", sync={"barrier": 4, "waits behind their barrier": 2})


reduce_fails = failing("resources/reduce", "tensor memory: 768 columns, sm_90 has 512")


def reduce_fits(one: Record) -> None:
    one["verdicts"].append({"check": "resources/reduce", "passed": True, "text": "fits", "details": {}})


def unchanged(one: Record) -> None:
    pass


def lose_wgmma(one: Record) -> None:
    one["observed"]["code"]["features"].remove("WGMMA")


def dies_compiling(one: Record) -> None:
    one.update(status="compile-error", executor=None, diagnosis="error: bad layout", verdicts=[])


def known(one: Record) -> None:
    fail(one, "numerics/randn", "FAIL bounded/randn seed 0: 3/416 wrong", "expected-fail")
    one["reason"] = {"code": "known-defect", "subject": "x", "detail": "https://a.b/1, owner me, expires 2027-01-01"}


def executed(one: Record) -> None:
    one["executor"] = "ttgir"
    verdict = {"check": "executed/ttgir", "passed": True, "text": "right in 12 runs, in 7 orders", "details": {}}
    one["verdicts"].append(verdict)


def half_interpreted(one: Record) -> None:
    one["executor"] = "interpreter" if CONFIGS[0] in one["case"] else "device"


def scattered(one: Record) -> None:
    times = one["observed"]["run"]["samples_us"]
    one["observed"]["run"]["samples_us"] = [us * (0.7 if at % 2 else 1.4) for at, us in enumerate(times)]


# Texts of other places


def matrix(*sides: Iterable[Record]) -> Text:
    def text(folder: Path) -> str:
        runs = [made_records.write_run(folder / str(at), records) for at, records in enumerate(sides)]
        return render_matrix([read_compared_run(run, run.name) for run in runs], [])

    return text


def swept(status: Status) -> Text:
    """The fastest rows of a sweep in which the faster one of two configs has ``status``."""
    verdicts = (Verdict("numerics", status is Status.PASS),)

    def record(config: str, us: float, status: Status) -> CaseRecord:
        case = f"test_config_space.py::test_config_space[mm-fp16-{config}-sm_90]"
        named = {"kernel": "mm", "config": {"id": config}, "options": {"dtype": "fp16"}, "target": "sm_90"}
        observed = {"run": {"problem": "mm-1x2x3", "us": us}}
        return CaseRecord(case, "config_space", status, verdicts=verdicts, observed=observed, **named)

    return lambda _: fastest(rows([record(CONFIGS[0], 10.0, status), record(CONFIGS[1], 20.0, Status.PASS)]))


def shown(change: Change) -> Text:
    """``conformance show`` of one case."""

    def text(folder: Path) -> str:
        (one, *_) = changed(SMALL[:1], change)
        line = made_records._line(one)
        return " ".join(describe(from_line(line), folder).split())  # without the ends of lines

    return text


def ended(*statuses: Status, problems: tuple[str, ...] = ()) -> Text:
    """The verdict on a run whose cases have these statuses."""

    def text(_: Path) -> str:
        tally = Tally()
        for number, status in enumerate(statuses):
            verdicts = (Verdict("numerics", status is Status.PASS, "wrong"),)
            tally.add(CaseRecord(f"test_a.py::test_x[{number}]", "a", status, verdicts=verdicts))
        return headline(tally.summary(replace(INFO, wall_s=1.0, problems=problems)))

    return text


def tried(before: Attempt, after: Attempt, outcome: ScriptOutcome) -> Text:
    return lambda _: Confirmation(outcome, before, after).text


def no_scripts(change: Change, before: Change | None = None) -> Text:
    """Returns the sentence about regressions that no script shows."""
    return lambda folder: "\n".join(reproduced(compared(folder, change, before=before), None, None, folder, 0))  # type: ignore[arg-type]


def blamed(**fields: object) -> Text:
    return lambda _: blame_summary(CaseAnswer("case", "sm_90", ("a", "b"), (), 1.0, **fields))  # type: ignore[arg-type]


def with_script(script: str) -> Text:
    return steps(wrong, scripts=(script,))


def titled(before: dict[str, str] | None = None, after: dict[str, str] | None = None, **stack: str) -> Text:
    """The title of the page of a comparison whose sides have these bills, or neither says its stack."""

    def text(folder: Path) -> str:
        one = compared(folder)
        fields = {"stack": {}} if stack else {}
        sides = [
            replace(side, bill=bill or {}, **fields) for side, bill in ((one.baseline, before), (one.candidate, after))
        ]
        return html_data._title(replace(one, baseline=sides[0], candidate=sides[1]))

    return text


NO_FAILURE = "No new failure was seen: what got worse may cost time."
REPLACE = "Replace the baseline"
ON_GPU = "No case was judged on a GPU"
NO_LONGER = "took no longer on the device"
INSIDE = "other bits, inside the bound"
WITHIN = "within the target's limits ->"
PASSED_BEFORE = "pass -> fail"
UNMOVED = "no figure of the 1 with figures changed by more than a threshold"
UNHARMED = "1 more that did not fail and were not lost"
QUICKEST = f"| {CONFIGS[0]} |"
COSTS = "costs time"
SEEN = "no fault was seen"
SEND = "Send a confirmed script"
FAILS = Attempt(1, "FAULT: wrong")
DIED = Attempt(-11, "")
FINE = Attempt(0, "")
ALL_PASSED = ": all 2 judged cases passed"
LISTED = "numerics/special, memory"
EVEN_FASTER = 'class="status good">-'

#: Texts from records that bear each sentence out.
TRUE: dict[str, Text] = {
    NO_FAILURE: steps(slower),
    REPLACE: steps(None),
    ON_GPU: page_limits(by("interpreter"), by("interpreter")),
    NO_LONGER: terminal(then(more_spills, faster), spill_from_some),
    INSIDE: terminal(other_bits),
    WITHIN: terminal(reduce_fails, reduce_fits),
    PASSED_BEFORE: terminal(failing("codegen/requires/WGMMA", "no match")),
    UNMOVED: matrix(SMALL, SMALL),
    UNHARMED: matrix(SMALL, SMALL),
    QUICKEST: swept(Status.PASS),
    SEND: with_script("NEW_FAIL x: a.py: confirmed, the fault shows in the candidate and not in the baseline"),
    ALL_PASSED: ended(Status.PASS, Status.PASS),
    LISTED: shown(unchanged),
    "The same stack": titled({"libtriton sha256": "a"}, {"libtriton sha256": "a"}),
    "no regression in": first_line(faster),
    "8 unchanged": first_line(unchanged),
    "nothing that is looked at without a device differs": blamed(),
    EVEN_FASTER: matrix(SMALL, changed(SMALL, observing("resources", registers=100))),
}

_REGRESSIONS = {
    "a wrong result": (wrong, "NEW_FAIL"),
    "a crash": (crash, "NEW_CRASH"),
    "a compiler that fails": (dies_compiling, "NEW_FAIL"),
    "two runs that differ": (differs, "NONDETERMINISTIC"),
    "a known defect": (known, "NEW_KNOWN_DEFECT"),
    "a case that is refused": (refused, "LOST_COVERAGE"),
    "a case that is not run": (not_run, "LOST_COVERAGE"),
    "a check that is gone": (without("memory"), "LOST_COVERAGE"),
    "a feature that is gone": (lose_wgmma, "FEATURE_LOST"),
    "another executor": (by("interpreter"), "LOST_COVERAGE"),
    "times that are gone": (untimed, "LOST_COVERAGE"),
    "a longer time": (slower, "SLOWER"),
}
_ORDERS = {
    "a product that is not fenced": (unfenced, "ORDER_LOST"),
    "a store that is open": (open_store, "LDS_ACROSS_BARRIER"),
    "a wait that moved": (late_wait, "WAIT_MOVED"),
}
_MAY_COST = {
    "spills": (more_spills, spill_from_some),
    "occupancy": (less_room, unchanged),
    "an accumulator that moves": (moved, still),
}
_NO_TIME_EXCUSES = {
    "a wrong kernel": (then(wrong, faster), None),
    "a wrong kernel before": (faster, wrong),
    "one measurement": (then(faster, measured_once), None),
    "times that scatter": (scattered, None),
    "another problem": (then(faster, another_problem), None),
    "another device": (then(faster, observing("run", device="b")), observing("run", device="a")),
    "a longer time": (slower, None),
    "no time": (untimed, None),
}


def _beside(change: Change, more: Change) -> Change:
    """``change`` in half of the cases, and ``more`` in the others."""
    return lambda one: (change if CONFIGS[0] in one["case"] or CONFIGS[1] in one["case"] else more)(one)


def planted() -> Iterable[tuple[str, str, str, Text]]:
    """Each contradiction: what is planted, the sentence, what stands there instead, and the text."""
    for name, (change, kind) in {**_REGRESSIONS, **_ORDERS}.items():
        before = still if name in _ORDERS else None
        yield name, "no regression in", f" {kind}", first_line(change, before)
        yield name, "8 unchanged", "NOT SAFE", first_line(change, before)
        if kind != "SLOWER":
            yield name, REPLACE, "", steps(change) if before is None else steps_of(change, before)
        if kind not in ("SLOWER", "FEATURE_LOST"):
            yield f"{name} beside a longer time", NO_FAILURE, "", steps_of(_beside(slower, change), before)
    yield (
        "every case refused on both sides",
        REPLACE,
        "Find out why no case was judged",
        steps_of(None, refused, all_=True),
    )
    yield "objections", REPLACE, "Read what else speaks against", steps(None, objections=("the baseline is not whole",))
    yield "objections beside a longer time", NO_FAILURE, "Of what was judged", steps(slower, objections=("x",))
    yield "fewer barriers beside a longer time", NO_FAILURE, "may race", steps_of(then(slower, waits_less), still)
    yield "a waived wrong result", NO_FAILURE, "Keep the baseline where you use", waived_beside_slower
    for name, (cost, before) in _MAY_COST.items():
        for why, (change, earlier) in _NO_TIME_EXCUSES.items():
            both = then(before, earlier) if earlier else before
            yield f"{name}, {why}", NO_LONGER, "", terminal(then(cost, change), both)
    for executor in ("interpreter", None):
        text = page_limits(by(executor), by(executor))
        yield f"judged by {executor}, in a run with a GPU", "run on a device", ON_GPU, text
    yield (
        "TTGIR in a run with a GPU",
        "run on a device",
        "the TTGIR of compiled kernels was run",
        page_limits(unchanged, executed),
    )
    yield "half on a GPU", ON_GPU, "did not run on a device", page_limits(unchanged, half_interpreted)
    yield "all on a GPU", ON_GPU, "", page_limits(faster)
    yield (
        "no TTGIR was run",
        "TTGIR",
        "Triton's interpreter ran the source",
        page_limits(by("interpreter"), by("interpreter")),
    )
    nobody = "of which no check judged the numbers"
    yield "bits that no check judged", INSIDE, nobody, terminal(other_bits, without("numerics/randn"))
    yield "bits judged before alone", INSIDE, "LOST_COVERAGE", terminal(then(other_bits, without("numerics/randn")))
    yield "bits of a wrong result", INSIDE, "NEW_FAIL", terminal(then(other_bits, wrong))
    yield "bits of a result that was wrong", INSIDE, "STILL_FAIL", terminal(other_bits, wrong)
    yield "a limit that was not checked", WITHIN, "not checked ->", terminal(reduce_fails)
    yield "a limit that was crossed before", WITHIN, "STILL_FAIL", terminal(unchanged, reduce_fails)
    requires = failing("codegen/requires/TMA_STORE", "no match")
    yield "a feature that was not checked", PASSED_BEFORE, "not checked -> fail", terminal(requires)
    yield "a feature that was lacking before", PASSED_BEFORE, "STILL_FAIL", terminal(unchanged, requires)
    for name, change in {"fails": wrong, "crashes": crash, "is refused": refused}.items():
        yield f"a case that {name}", UNHARMED, "", matrix(SMALL, changed(SMALL, change, config=CONFIGS[0]))
        yield f"a kernel that {name}", UNMOVED, "", matrix(SMALL, changed(SMALL, change))
    yield "one of eight cases lost", UNHARMED, "", matrix(SMALL, SMALL[:7])
    yield (
        "a case that is no longer run",
        UNHARMED,
        "not run",
        matrix(SMALL, changed(SMALL, not_run, config=CONFIGS[0])),
    )
    yield "spills from none", UNMOVED, "from 0", matrix(SMALL, changed(SMALL, more_spills))
    yield "no figures", UNMOVED, UNHARMED, matrix(*[changed(SMALL, figureless)] * 2)
    smaller = observing("resources", registers=100)
    yield (
        "a wrong kernel with fewer registers",
        EVEN_FASTER,
        "8 failed",
        matrix(SMALL, changed(SMALL, then(wrong, smaller))),
    )
    for status in (
        Status.FAIL,
        Status.FLAKY,
        Status.EXPECTED_FAIL,
        Status.CRASH,
        Status.UNEXPECTED_PASS,
        Status.NOT_RUN,
    ):
        yield f"the faster config is {status.value}", QUICKEST, f"| {CONFIGS[1]} |", swept(status)
    for name, (cost, before) in _MAY_COST.items():
        yield name, f"which {COSTS}", "", meanings(cost, before)
    yield "a failure that is no longer run", SEEN, "nothing was judged there", no_scripts(not_run, wrong)
    yield "a crash that is refused now", SEEN, "nothing was judged there", no_scripts(refused, crash)
    yield "a failure that is no longer run, in words", SEEN, "no fault can be excluded", meanings(not_run, wrong)
    other = "the fault shows in the baseline"
    yield "it died before and is wrong now", other, "it died by SIGSEGV", tried(DIED, FAILS, ScriptOutcome.BOTH_FAIL)
    yield (
        "it hung before and died now",
        other,
        "it ran past its time",
        tried(Attempt(None, ""), DIED, ScriptOutcome.BOTH_FAIL),
    )
    for outcome in (
        "both fail, in the baseline it fails too",
        "not reproduced, the fault does not show in the candidate",
    ):
        yield f"a script that says {outcome}", SEND, "Keep the baseline", with_script(f"NEW_FAIL x: a.py: {outcome}")
    forged = "NEW_FAIL kernel: confirmed, it says: a.py: cannot run, the script cannot run: no module"
    yield "a cause with the word", SEND, "Keep the baseline", with_script(forged)
    nothing = "nothing that is looked at without a device differs"
    yield "orders that differ together", nothing, "and none of them alone: a race", blamed(together="a race")
    alone = f"{nothing}; TTGIR was not run"
    yield (
        "TTGIR that was not run",
        f"{nothing}$",
        alone,
        lambda folder: blamed(orders_why_not="TTGIR was not run")(folder) + "$",
    )
    for status in (Status.FAIL, Status.CRASH, Status.FLAKY, Status.COMPILE_ERROR, Status.TIMEOUT, Status.OOM):
        yield f"a run with a case that is {status.value}", ALL_PASSED, "FAILED: 1 of 2", ended(Status.PASS, status)
    yield "a run of which nothing ran", ALL_PASSED, "NOTHING WAS JUDGED", ended(Status.NOT_RUN, Status.NOT_APPLICABLE)
    yield (
        "a run that is not whole",
        ALL_PASSED,
        "NOT COMPLETE",
        ended(Status.PASS, Status.PASS, problems=("records are missing",)),
    )
    for name in ("libtriton sha256", "backend vendor (package) sha256", "ptxas sha256"):
        same = titled({name: "a"}, {name: "b"})
        yield f"another {name}", "The same stack", f"The same versions, and another {name}", same
    yield "no stack is recorded", "The same stack", "Stacks that are not recorded", titled(unknown="")
    yield "a case that changed its memory", LISTED, "FAIL memory", shown(failing("memory", "4 bytes changed"))


def figureless(one: Record) -> None:
    one["observed"] = {}


def steps_of(change: Change | None, before: Change | None, *, all_: bool = False) -> Text:
    """Returns the next steps where the first run has ``before``; with ``all_`` in every case of both."""

    def text(folder: Path) -> str:
        if all_ and before:
            cases = changed(SMALL, before)
            return "\n".join(next_steps(made_records.compared(folder, cases, cases), INFO))
        return "\n".join(next_steps(compared(folder, change, before=before), INFO))

    return text


def waived_beside_slower(folder: Path) -> str:
    """A wrong result that a waiver covers, next to cases that are only slower."""
    comparison = compared(folder, _beside(slower, wrong))
    groups = tuple(
        replace(group, kind=Kind.WAIVED, findings=tuple(replace(one, kind=Kind.WAIVED) for one in group.findings))
        if group.kind is Kind.NEW_FAIL
        else group
        for group in comparison.groups
    )
    return "\n".join(next_steps(replace(comparison, groups=groups), INFO))


def meanings(change: Change, before: Change) -> Text:
    """Returns the meaning of each group, in words."""
    return lambda folder: "\n".join(group.meaning for group in compared(folder, change, before=before).groups)


ROWS = list(planted())


@pytest.mark.parametrize(
    ("sentence", "instead", "text"), [pytest.param(*row[1:], id=f"{row[0]}: {row[1]}") for row in ROWS]
)
def test_a_sentence_that_a_record_contradicts_does_not_appear(tmp_path, sentence, instead, text):
    said = text(tmp_path)
    assert said
    assert sentence not in said
    assert instead in said


@pytest.mark.parametrize("sentence", TRUE)
def test_a_sentence_appears_where_the_records_bear_it_out(tmp_path, sentence):
    assert sentence in TRUE[sentence](tmp_path)


def test_there_are_enough_contradictions():
    assert len(ROWS) >= 60
    assert len({(name, sentence) for name, sentence, _, _ in ROWS}) == len(ROWS)


# Wrong comes before slow

_SLOW = {"a longer time": timed(40.0), "spills": then(observing("resources", spills=4000, spill_unit="bytes"), slower)}
_WRONG = {"NEW_FAIL": wrong, "NEW_CRASH": crash, "NONDETERMINISTIC": differs, "NEW_KNOWN_DEFECT": known}


@pytest.mark.parametrize("slow", _SLOW)
@pytest.mark.parametrize("kind", _WRONG)
def test_what_is_wrong_stands_above_what_is_slow(tmp_path, slow, kind):
    """One case is wrong, and many are slower by far: in every list the wrong one comes first."""
    first = SMALL[0]["case"]
    change = _WRONG[kind]
    comparison = compared(tmp_path, lambda one: (change if one["case"] == first else _SLOW[slow])(one))
    kinds = [group.kind.value for group in comparison.groups]
    other = "SLOWER" if slow == "a longer time" else "MORE_SPILLS"
    assert kinds.index(kind) < kinds.index(other)
    assert comparison.groups[0].kind.value == kind
    for text in (render_terminal(comparison), render_markdown(comparison), answer(comparison)):
        assert 0 <= text.index(kind) < text.index(other)
    assert next_steps(comparison, INFO)[0].startswith("Keep the baseline where you use")


@pytest.mark.parametrize("kind", _WRONG)
def test_a_kernel_that_is_wrong_stands_above_one_that_is_slow_in_a_matrix(tmp_path, kind):
    """The names of the kernels are in the other order."""
    kernels = [one for one in BASE if one["target"] == "sm_90" and one["kernel"] in ("addmm", "mm")]
    slow = changed(kernels, observing("resources", registers=250), kernel="addmm")
    page = matrix(kernels, changed(slow, _WRONG[kind], kernel="mm"))(tmp_path)
    assert page.index('<th scope="row">mm</th>') < page.index('<th scope="row">addmm</th>')


@pytest.mark.parametrize("kind", [kind for kind in Kind if SEVERITY[kind] is Severity.REGRESSION])
def test_each_regression_of_order_or_result_can_be_asked_about(kind):
    """Blame asks about the worst first: a kind that it does not know would give its place to a slower one."""
    assert (kind in SYMPTOMS) == (kind is not Kind.LOST_COVERAGE)
