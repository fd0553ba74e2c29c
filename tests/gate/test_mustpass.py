"""A run is checked against the cases that it owes: a missing, added, doubled or different one is named and fails."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import pytest

from conformance.commands import CommandError
from conformance.commands import mustpass as command
from conformance.gate.mustpass import mustpass_lists
from conformance.gate.mustpass.mustpass_check import check
from conformance.gate.mustpass.mustpass_lists import Level, MustpassError, lists_of, outcome, parsed, satisfies, written
from conformance.gate.runs.run_environment import ENVIRONMENT_FILE
from conformance.records import CaseRecord, Reason, ReasonCode, RunInfo, Status, Verdict
from tests.command_runs import call, write_run
from tests.gate.sample_bundles import sample_environment
from tests.gate.sample_entries import waiver

STACK = {"torch": "2.13.0+cpu", "triton": "3.7.1", "device": None}


def case(
    name: str, status: Status = Status.PASS, code: ReasonCode | None = None, executor="interpreter", **fields
) -> CaseRecord:
    fields = {"verdicts": (Verdict("memory", True),) if status is Status.PASS else (), "stack": STACK, **fields}
    reason = Reason(code, "x", "y") if code else None
    return CaseRecord(f"test_a.py::{name}", "a", status, reason=reason, executor=executor, **fields)


RECORDS = (
    case("test_one[mm-fp16-sm_90]", target="sm_90"),
    case("test_one[mm-bf16-sm_90]", target="sm_90"),
    case("test_refused[sm_90]", Status.NOT_APPLICABLE, ReasonCode.CAPABILITY, executor=None),
    case("test_device[sm_90]", Status.NOT_RUN, ReasonCode.NO_DEVICE, executor=None),
    case("test_one[mm-fp16-gfx942]", target="gfx942"),
    case("test_host[(32, 32)]", executor=None),
)
RUN = RunInfo("r", "2026-09-01", "quick", 0, stack=STACK, selected=len(RECORDS), wall_s=9.0)
LISTS = lists_of(RUN, RECORDS)


def run_of(records, **fields) -> tuple[RunInfo, tuple[CaseRecord, ...]]:
    return replace(RUN, selected=len(records), **fields), tuple(records)


def without(name: str) -> list[CaseRecord]:
    return [record for record in RECORDS if name not in record.case]


def but(name: str, **fields) -> list[CaseRecord]:
    return [replace(record, **fields) if name in record.case else record for record in RECORDS]


def differences(records, excused=(), lists=LISTS) -> list[str]:
    return [str(difference) for difference in check(lists, *run_of(records), excused).differences]


def test_a_run_is_a_list_for_each_target_and_one_for_the_cases_without():
    assert [(mustpass.name, dict(mustpass.outcomes)) for mustpass in LISTS] == [
        ("quick-any-interpreted.txt", {"test_a.py::test_host[(32, 32)]": "pass"}),
        ("quick-gfx942-interpreted.txt", {"test_a.py::test_one[mm-fp16-gfx942]": "pass:interpreter"}),
        (
            "quick-sm_90-interpreted.txt",
            {
                "test_a.py::test_device[sm_90]": "not-run:no-device",
                "test_a.py::test_one[mm-bf16-sm_90]": "pass:interpreter",
                "test_a.py::test_one[mm-fp16-sm_90]": "pass:interpreter",
                "test_a.py::test_refused[sm_90]": "not-applicable:capability",
            },
        ),
    ]
    assert LISTS[0].stack == {"torch": "==2.13.*", "triton": "==3.7.*"}


def test_a_list_reads_back_as_it_was_written_and_is_the_same_every_time():
    for mustpass in LISTS:
        assert parsed(written(mustpass), "f") == mustpass
    assert [written(mustpass) for mustpass in lists_of(RUN, RECORDS[::-1])] == [written(mustpass) for mustpass in LISTS]


def test_the_run_that_made_the_lists_is_as_they_say():
    checked = check(LISTS, RUN, RECORDS)
    assert (checked.differences, checked.lacking, checked.complete) == ((), (), True)
    assert [str(headline) for headline in checked.headlines] == [
        "any: 1 of 1 owed cases proven, level interpreted (1 pass)",
        "gfx942: 1 of 1 owed cases proven, level interpreted (1 pass:interpreter)",
        "sm_90: 2 of 3 owed cases proven, level interpreted (2 pass:interpreter)",
    ]


NEW = [case(f"test_new[{number}-sm_90]") for number in range(9)]


@pytest.mark.parametrize(
    ("records", "difference", "proven"),
    [
        (without("bf16"), "sm_90: 1 missing: test_a.py::test_one[mm-bf16-sm_90]", 1),
        ([*RECORDS, replace(RECORDS[0])], "sm_90: 1 duplicate: test_a.py::test_one[mm-fp16-sm_90]", 1),
        ([*RECORDS, *NEW[:2]], "sm_90: 2 unlisted: test_a.py::test_new[0-sm_90], test_a.py::test_new[1-sm_90]", 2),
        ([*RECORDS, *NEW], f"sm_90: 9 unlisted: {', '.join(record.case for record in NEW[:3])} and 6 more", 2),
    ],
    ids=["a case is missing", "a case is there twice", "cases are new", "many cases are new"],
)
def test_a_difference_fails_names_its_first_cases_and_proves_nothing(records, difference, proven):
    checked = check(LISTS, *run_of(records))
    assert [str(each) for each in checked.differences] == [difference]
    assert checked.complete == ("missing" not in difference)
    assert (checked.headlines[2].proven, checked.headlines[2].owed) == (proven, 3)


def test_a_whole_target_that_is_left_out_is_missing():
    assert differences(without("gfx942")) == ["gfx942: 1 missing: test_a.py::test_one[mm-fp16-gfx942]"]


def test_a_proof_that_was_not_owed_counts():
    not_run = case("test_device[sm_90]", Status.NOT_RUN, ReasonCode.NO_DEVICE, executor=None)
    lists = lists_of(*run_of([not_run, RECORDS[0]]))
    for record, proven in ((case("test_device[sm_90]"), 2), (case("test_device[sm_90]", Status.FAIL), 1)):
        (headline,) = check(lists, *run_of([record, RECORDS[0]])).headlines
        assert (headline.owed, headline.proven) == (2, proven)


def test_a_run_of_one_target_is_held_against_the_list_of_all():
    """It has the same cases of that target. Those that name no target are not held: the target decides what they do."""
    narrowed = [record for record in RECORDS if "gfx942" not in record.case]
    checked = check(LISTS, *run_of(narrowed, targets=("sm_90",)))
    assert (checked.differences, checked.lacking) == ((), ())
    assert [headline.target for headline in checked.headlines] == ["sm_90"]
    less = [record for record in narrowed if "bf16" not in record.case]
    more = [*narrowed, case("test_one[mm-fp8-sm_90]", target="sm_90")]
    for records, what in ((less, "missing"), (more, "unlisted")):
        (difference,) = check(LISTS, *run_of(records, targets=("sm_90",))).differences
        assert (difference.target, difference.what, len(difference.cases)) == ("sm_90", what, 1)
    own = lists_of(*run_of(less, targets=("sm_90",)))
    assert check([*LISTS, *own], *run_of(less, targets=("sm_90",))).complete, "a list for these targets comes first"


def test_two_lists_for_one_run_are_refused():
    wide = [replace(mustpass, stack={"triton": ">=3.6,<3.9"}) for mustpass in LISTS]
    with pytest.raises(MustpassError, match=r"two lists are for this run, of torch ==2\.13.* and triton >=3\.6,<3\.9"):
        check([*LISTS, *wide], *run_of(RECORDS))


REFUSED = Reason(ReasonCode.DTYPE, "x", "y")
OTHERWISE = {
    "failed": ("bf16", {"status": Status.FAIL}, "pass:interpreter is owed, fail found"),
    "refused": (
        "bf16",
        {"status": Status.NOT_APPLICABLE, "reason": REFUSED},
        "pass:interpreter is owed, not-applicable:dtype found",
    ),
    "refused-for-another-reason": (
        "refused",
        {"reason": REFUSED},
        "not-applicable:capability is owed, not-applicable:dtype found",
    ),
    "only-compiled": (
        "bf16",
        {"status": Status.NOT_RUN, "executor": None, "verdicts": (Verdict("x", True),), "reason": REFUSED},
        "pass:interpreter is owed, compiled found",
    ),
    "passed-without-running": ("bf16", {"executor": None}, "pass:interpreter is owed, pass found"),
    "passes-now": ("refused", {"status": Status.PASS, "reason": None}, "not-applicable:capability is owed, pass found"),
    "unexpected-pass": ("bf16", {"status": Status.UNEXPECTED_PASS}, "pass:interpreter is owed, unexpected-pass found"),
}


@pytest.mark.parametrize("how", OTHERWISE)
def test_another_outcome_fails(how):
    name, fields, text = OTHERWISE[how]
    (difference,) = differences(but(name, **fields))
    assert difference.startswith("sm_90: 1 differing: ")
    assert text in difference


def test_what_is_excused_is_no_difference_and_not_proven():
    failing = but("bf16", status=Status.FAIL)
    checked = check(LISTS, *run_of(failing), {"test_a.py::test_one[mm-bf16-sm_90]"})
    assert (checked.differences, checked.headlines[2].proven) == ((), 1)
    waived = check(LISTS, *run_of(but("bf16", status=Status.EXPECTED_FAIL)))
    assert (waived.differences, waived.headlines[2].proven) == ((), 1)
    assert differences(without("bf16"), {"test_a.py::test_one[mm-bf16-sm_90]"}) != []


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"tier": "default"}, "for tier default, level interpreted, targets default"),
        ({"stack": {**STACK, "triton": "3.8.0"}}, "torch 2.13.0+cpu, triton 3.8.0"),
        ({"stack": {"triton": "3.7.1"}}, "torch None, triton 3.7.1"),
    ],
)
def test_a_run_of_another_kind_has_no_list_and_proves_nothing(fields, text):
    checked = check(LISTS, *run_of(RECORDS, **fields))
    assert not checked.complete
    assert checked.headlines == ()
    assert any(text in sentence and "conformance mustpass write" in sentence for sentence in checked.lacking)
    assert "sm_90: no mustpass list" in "".join(checked.lacking)
    assert "Cases without a list: 4." in "".join(checked.lacking)


def test_a_run_that_only_compiled_does_not_count_as_one_that_ran():
    compiled = {"executor": None, "status": Status.NOT_RUN, "verdicts": (Verdict("codegen/requires/MMA", True),)}
    checked = check(LISTS, *run_of([replace(record, **compiled, reason=REFUSED) for record in RECORDS]))
    assert "level compiled" in checked.lacking[0]
    assert checked.headlines == ()


def test_a_target_whose_list_is_gone_is_seen():
    checked = check(LISTS[:2], RUN, RECORDS)
    assert len(checked.lacking) == 1
    assert checked.lacking[0].startswith("sm_90: no mustpass list for tier quick")


EXECUTED = (Verdict("memory", True), Verdict("executed/ttgir", True))


def test_a_pass_is_called_by_what_its_verdicts_show():
    assert outcome(case("z", executor="ttgir")) == "pass:interpreter"
    assert outcome(case("z", executor="ttgir", verdicts=EXECUTED)) == "pass:ttgir"
    assert outcome(case("z", executor="device", verdicts=(Verdict("codegen/requires/MMA", True),))) == "pass"


def test_levels_and_outcomes():
    verdict = Verdict("codegen/requires/MMA", True)
    not_run = case("x", Status.NOT_RUN, ReasonCode.NO_DEVICE, executor=None, verdicts=(verdict,))
    assert outcome(not_run) == "compiled"
    assert outcome(replace(not_run, verdicts=(verdict, Verdict("y", False)))) == "not-run:no-device"
    assert mustpass_lists.level_of([not_run]) is Level.COMPILED
    assert mustpass_lists.level_of([not_run, case("y"), case("z", executor="device")]) is Level.DEVICE
    assert (
        mustpass_lists.level_of([not_run, case("y"), replace(case("z", executor="ttgir"), verdicts=EXECUTED)])
        is Level.EXECUTED
    )
    assert mustpass_lists.level_of([case("y")]) is Level.INTERPRETED
    assert satisfies("pass:device", "pass:interpreter")
    assert satisfies("pass:ttgir", "pass:interpreter")
    assert satisfies("pass:device", "pass:ttgir")
    assert not satisfies("pass:interpreter", "pass:ttgir")
    assert satisfies("pass:device", "pass")
    assert satisfies("pass", "compiled")
    assert satisfies("pass:device", "not-run:no-device"), "the list is from a machine with fewer GPUs"
    assert not satisfies("not-run:no-device", "compiled")
    assert not satisfies("fail", "not-run:no-device")
    assert not satisfies("pass", "not-run:capability")
    assert not satisfies("pass:interpreter", "pass:device")
    assert not satisfies("pass", "pass:interpreter")
    assert not satisfies("compiled", "pass")


def test_a_case_that_fails_is_owed_as_a_pass():
    (_, _, owed) = lists_of(*run_of(but("bf16", status=Status.CRASH)))
    assert owed.outcomes["test_a.py::test_one[mm-bf16-sm_90]"] == "pass:interpreter"


INCOMPLETE = {
    "did not end": (RECORDS, {"wall_s": None}, "it did not end"),
    "records are missing": (RECORDS[1:], {"selected": 6}, "6 cases were selected and 5 are recorded"),
    "problems": (RECORDS, {"problems": ("1 selected but not recorded",)}, "1 selected but not recorded"),
    "duplicate": ([*RECORDS, RECORDS[0]], {"selected": 7}, "is recorded more than once"),
    "empty": ([], {"selected": 0}, "it has no records"),
    "an id of two lines": ([case("a\nb")], {"selected": 1}, "cannot be listed"),
    "a path for a tier": (RECORDS, {"tier": "../../quick"}, "'../../quick' cannot be part of a file's name"),
    "a path for a target": (RECORDS, {"targets": ("a/b",)}, "'a/b' cannot be part of a file's name"),
}


@pytest.mark.parametrize("how", INCOMPLETE)
def test_an_incomplete_run_gives_no_list(how):
    records, fields, text = INCOMPLETE[how]
    with pytest.raises(MustpassError, match=text):
        lists_of(replace(RUN, **fields), tuple(records))


TEXT = written(LISTS[2])
TAMPERED = {
    "a case removed": (
        TEXT.replace("pass:interpreter test_a.py::test_one[mm-bf16-sm_90]\n", ""),
        "not those that were",
    ),
    "an outcome weakened": (TEXT.replace("pass:interpreter test_a", "compiled test_a", 1), "not those that were"),
    "count": (TEXT.replace("cases: 4", "cases: 3"), "not those that were"),
    "format": (TEXT.replace("format: 1", "format: 2"), "format '2': this version reads format 1"),
    "level": (TEXT.replace("level: interpreted", "level: certain"), "level 'certain' must be one of compiled"),
    "stack": (TEXT.replace("==2.13.*", "2.13"), "a version specifier such as"),
    "no stack": (TEXT.replace("stack: torch ==2.13.*; triton ==3.7.*", "stack: -"), "no range of versions"),
    "header": (TEXT.replace("tier: quick\n", ""), "not a mustpass list"),
    "another file": ("hello\n", "not a mustpass list"),
    "empty": ("", "not a mustpass list"),
    "cut": (TEXT[:-1], "not a mustpass list"),
}


@pytest.mark.parametrize("how", TAMPERED)
def test_a_list_that_is_not_as_written_is_refused(tmp_path, how):
    text, message = TAMPERED[how]
    path = tmp_path / "quick.txt"
    path.write_text(text)
    with pytest.raises(MustpassError, match=r"quick\.txt: ") as error:
        mustpass_lists.read_list(path)
    assert message in str(error.value)
    assert "write the list again" in str(error.value)


def test_a_list_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    with pytest.raises(MustpassError, match=r"none\.txt cannot be read"):
        mustpass_lists.read_list(tmp_path / "none.txt")
    with pytest.raises(MustpassError, match="holds no mustpass list"):
        mustpass_lists.read_lists(tmp_path)
    (tmp_path / "a.txt").write_bytes(b"\xff")
    with pytest.raises(MustpassError, match=r"a\.txt cannot be read"):
        mustpass_lists.read_lists(tmp_path)
    monkeypatch.setattr(mustpass_lists, "FILE_LIMIT", 0)
    with pytest.raises(MustpassError, match="at most 0 bytes"):
        mustpass_lists.read_lists(tmp_path)


# --- the command ------------------------------------------------------------------------------------------------------


conformance_mustpass = partial(call, command)


def folder(path, records, **fields):
    run, records = run_of(records, **fields)
    return with_options(write_run(path, records, run))


def with_options(path, *options: str, **variables: str):
    """``path``, a run's folder, as one of pytest's ``options``."""
    environment = sample_environment(options=options, variables=variables)
    (path / ENVIRONMENT_FILE).write_text(json.dumps(environment))
    return path


@pytest.fixture
def lists(tmp_path, capsys):
    """The folder of the lists of :data:`RECORDS`, whose run lies next to it."""
    assert conformance_mustpass("write", folder(tmp_path / "run", RECORDS), "--to", tmp_path / "lists") == 0
    return tmp_path / "lists"


def test_lists_are_written_and_a_run_is_checked(tmp_path, capsys, lists):
    assert "quick-sm_90-interpreted.txt: 4 cases; 4 added, 0 removed" in capsys.readouterr().out
    assert conformance_mustpass("check", tmp_path / "run", "--mustpass", lists) == 1
    assert "sm_90: 2 of 3 owed cases proven" in capsys.readouterr().out  # a list of the whole, but not of all claims
    fewer = folder(tmp_path / "fewer", without("bf16"))
    assert conformance_mustpass("check", fewer, "--mustpass", lists) == 1
    assert "mustpass: sm_90: 1 missing\n    test_a.py::test_one[mm-bf16-sm_90]\n" in capsys.readouterr().out


def test_a_run_that_is_as_listed_passes_with_its_waivers_and_claims(tmp_path, capsys):
    def executed(records):
        return [
            replace(record, executor="ttgir", verdicts=EXECUTED) if record.executor else record for record in records
        ]

    lists = tmp_path / "lists"
    assert conformance_mustpass("write", folder(tmp_path / "run", executed(RECORDS)), "--to", lists) == 0
    claimed, waived = tmp_path / "profiles.toml", tmp_path / "waivers.toml"
    claimed.write_text("".join(f'[[target]]\nid = "{name}"\nclaims = ["baseline"]\n' for name in ("sm_90", "gfx942")))
    options = ("--mustpass", lists, "--profiles", claimed)
    assert conformance_mustpass("check", tmp_path / "run", *options) == 0
    failing = folder(tmp_path / "failing", executed(but("bf16", status=Status.FAIL)))
    assert conformance_mustpass("check", failing, *options) == 1
    waived.write_text(waiver(cases='"*[mm-bf16-sm_90]"', stack='{ triton = "==3.7.*" }', expires="2999-12-31"))
    capsys.readouterr()
    assert conformance_mustpass("check", failing, *options, "--waivers", waived) == 0
    out = capsys.readouterr().out
    assert "gate: passed\n" in out
    assert "sm_90: 1 of 3 owed cases proven" in out
    assert "waived: NEW_FAIL test_a.py::test_one[mm-bf16-sm_90]: slow path until the fix" in out
    waived.write_text("[[waiver]]\n")
    with pytest.raises(
        CommandError, match=r"waivers\.toml: waiver 1: missing key `cases`: the keys are cases, stack, reason"
    ):
        conformance_mustpass("check", failing, *options, "--waivers", waived)


SHRINKING = {
    "removed": (without("bf16"), "removed: test_a.py::test_one[mm-bf16-sm_90]"),
    "refused": (
        but("bf16", status=Status.NOT_APPLICABLE, reason=REFUSED),
        "owes less: test_a.py::test_one[mm-bf16-sm_90]",
    ),
    "passed without running": (but("bf16", executor=None), "owes less: test_a.py::test_one[mm-bf16-sm_90]"),
}


@pytest.mark.parametrize("how", SHRINKING)
def test_lists_shrink_only_when_told_to(tmp_path, capsys, lists, how):
    records, text = SHRINKING[how]
    before = {path.name: path.read_text() for path in lists.iterdir()}
    capsys.readouterr()
    fewer = folder(tmp_path / "fewer", records)
    assert conformance_mustpass("write", fewer, "--to", lists) == 1
    out = capsys.readouterr().out
    assert text in out
    assert "nothing was written: the lists would shrink or be replaced" in out
    assert {path.name: path.read_text() for path in lists.iterdir()} == before
    assert conformance_mustpass("write", fewer, "--to", lists, "--allow-removal") == 0
    assert {path.name: path.read_text() for path in lists.iterdir()} != before


def test_lists_grow_without_being_told_to(tmp_path, capsys):
    lists = tmp_path / "lists"
    conformance_mustpass("write", folder(tmp_path / "run", without("bf16")), "--to", lists)
    more = folder(
        tmp_path / "more",
        but("refused", status=Status.PASS, executor="interpreter", verdicts=(Verdict("memory", True),)),
    )
    assert conformance_mustpass("write", more, "--to", lists) == 0
    out = capsys.readouterr().out
    assert "1 added, 0 removed, 0 owe less, 1 owe more" in out


def test_failing_cases_are_counted_when_a_list_is_written(tmp_path, capsys):
    run = folder(tmp_path / "run", but("bf16", status=Status.FAIL))
    assert conformance_mustpass("write", run, "--to", tmp_path / "lists") == 0
    assert "1 cases do not pass in this run and are owed all the same" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "variables", "message"),
    [
        (("--kernel", "mm"), {}, "was narrowed by --kernel mm: its lists would owe less"),
        (("--suite=tma_store",), {}, "narrowed by --suite tma_store"),
        (("-k", "mm and not bf16"), {}, "narrowed by -k mm and not bf16"),
        (("--deselect", "test_a.py::test_one"), {}, "narrowed by --deselect test_a.py::test_one"),
        (("conformance/suites/test_scaling.py",), {}, "narrowed by only conformance/suites/test_scaling.py"),
        (("--conformance-case=x", "-x"), {}, "narrowed by --conformance-case x, -x"),
        (("--shard-id=1",), {}, "was run with --shard-id=1, which may leave cases out"),
        ((), {"PYTEST_PLUGINS": "mine"}, "was run with PYTEST_PLUGINS=mine, which may leave cases out"),
    ],
)
def test_a_run_that_options_narrowed_gives_no_list(tmp_path, options, variables, message):
    run = with_options(folder(tmp_path / "run", RECORDS), "--tier", "quick", *options, **variables)
    with pytest.raises(CommandError) as error:
        conformance_mustpass("write", run, "--to", tmp_path / "lists")
    assert message in str(error.value)
    assert not (tmp_path / "lists").exists()


def test_targets_that_were_asked_for_are_part_of_the_list_and_narrow_nothing(tmp_path):
    run = folder(tmp_path / "run", without("gfx942"), targets=("sm_90",))
    with_options(run, "--tier=quick", "--target", "sm_90", "-n", "2", "--pyargs", "conformance.suites")
    assert conformance_mustpass("write", run, "--to", tmp_path / "lists") == 0
    assert "targets: sm_90\n" in (tmp_path / "lists" / "quick-sm_90-interpreted.txt").read_text()


@pytest.mark.parametrize(
    ("content", "message"), [(None, "has no environment.json"), ("{}", "schema None"), ("[", "not JSON")]
)
def test_a_run_whose_options_are_not_known_gives_no_list(tmp_path, content, message):
    run = folder(tmp_path / "run", RECORDS)
    (run / ENVIRONMENT_FILE).unlink()
    if content:
        (run / ENVIRONMENT_FILE).write_text(content)
    with pytest.raises(CommandError, match=message):
        conformance_mustpass("write", run, "--to", tmp_path / "lists")


def test_the_range_of_stacks_can_be_given(tmp_path):
    run, lists = folder(tmp_path / "run", RECORDS), tmp_path / "lists"
    assert conformance_mustpass("write", run, "--to", lists, "--stack", "triton=>=3.6,<3.9") == 0
    assert "stack: triton >=3.6,<3.9\n" in (lists / "quick-any-interpreted.txt").read_text()
    with pytest.raises(CommandError, match=r"--stack: stack.triton = '3.6': a version specifier"):
        conformance_mustpass("write", run, "--to", lists, "--stack", "triton=3.6")


def test_a_list_for_another_stack_is_not_overwritten(tmp_path, capsys, lists):
    newer = folder(tmp_path / "newer", RECORDS, stack={**STACK, "triton": "3.8.0"})
    capsys.readouterr()
    assert conformance_mustpass("write", newer, "--to", lists) == 1
    assert "is there for torch ==2.13.*; triton ==3.7.* and targets default: give another folder" in (
        capsys.readouterr().out
    )
    assert conformance_mustpass("write", newer, "--to", lists / "3.8") == 0
    for checked_run in (tmp_path / "run", newer):
        conformance_mustpass("check", checked_run, "--mustpass", lists)
        assert "sm_90: 2 of 3 owed cases proven" in capsys.readouterr().out


def test_what_is_no_run_is_an_error_of_the_user(tmp_path):
    with pytest.raises(CommandError, match="no run can be read there"):
        conformance_mustpass("check", tmp_path, "--mustpass", tmp_path)
    run = folder(tmp_path / "run", RECORDS)
    with pytest.raises(CommandError, match="holds no mustpass list"):
        conformance_mustpass("check", run, "--mustpass", tmp_path / "none")
    (run / "records.jsonl").open("a").write('{"case":')
    with pytest.raises(CommandError, match=r"no list can be written from .*: records\.jsonl:7: torn last line"):
        conformance_mustpass("write", run, "--to", tmp_path / "lists")
