"""A claim is proven only if all cases are that the target owes for it. Its level is the least of theirs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conformance import targets
from conformance.gate.mustpass.mustpass_lists import Level, MustpassList
from conformance.gate.mustpass.profiles import (
    Profile,
    State,
    cases_by_kernel,
    claims,
    not_claimed,
    parsed,
    read_profiles,
)
from conformance.kernels import catalogue
from conformance.records import CaseRecord, Reason, ReasonCode, Status, Verdict
from conformance.user_files import toml_entries
from conformance.user_files.toml_entries import EntryError

FILE = """
[[profile]]
id = "baseline"
about = "products"
kernels = ["mm", "addmm"]

[[profile]]
id = "tma"
about = "loads by TMA"
kernels = ["*_tma"]
evidence = ["codegen/requires/TMA_LOAD"]

[[profile]]
id = "vendor"
about = "all of it"
includes = ["baseline", "tma"]

[[target]]
id = "sm_90"
claims = ["vendor"]

[[target]]
id = "sm_80"
claims = ["baseline"]
"""
PROFILES = parsed({"profiles.toml": FILE})
TMA = Verdict("codegen/requires/TMA_LOAD", True)
RAN = Verdict("memory", True)
EXECUTED = Verdict("executed/ttgir", True)
REFUSED = Reason(ReasonCode.CAPABILITY, "x", "y")


def record(kernel: str, target: str = "sm_90", status: Status = Status.PASS, **fields) -> CaseRecord:
    executor = fields.pop("executor", "ttgir")
    verdicts = fields.pop("verdicts", (RAN, EXECUTED, TMA) if "tma" in kernel else (RAN, EXECUTED))
    case = f"test_scaling.py::test_x[{kernel}-fp16-{target}]"
    return CaseRecord(case, "scaling", status, executor=executor, target=target, verdicts=verdicts, **fields)


RECORDS = [record("mm"), record("addmm"), record("mm_tma"), record("conv2d")]


def mustpass(target: str = "sm_90", records=RECORDS, **outcomes: str) -> dict[str, MustpassList]:
    """The list that owes all ``records``; ``outcomes``: of the cases of a kernel, if it is not a pass."""
    owed = {
        record.case: outcomes.get(record.case.split("[")[1].split("-")[0], "pass:interpreter") for record in records
    }
    return {target: MustpassList("quick", target, Level.INTERPRETED, (), {"triton": "==3.7.*"}, "", owed)}


def states(records, lists=None, excused=()) -> dict[str, State]:
    return {claim.profile: claim.state for claim in claims(PROFILES, lists or mustpass(), records, excused)}


def but(kernel: str, **fields) -> list[CaseRecord]:
    return [replace(record, **fields) if f"[{kernel}-" in record.case else record for record in RECORDS]


def test_claims_of_included_profiles_are_proven_by_their_own_cases():
    judged = claims(PROFILES, mustpass(), RECORDS)
    assert [str(claim) for claim in judged] == [
        "sm_90: baseline proven at level executed: 2 cases",
        "sm_90: tma proven at level executed: 1 cases",
    ]
    one_less = but("mm", executor="interpreter")
    assert str(claims(PROFILES, mustpass(), one_less)[0]) == "sm_90: baseline proven at level interpreted: 2 cases"


NO_RUN = "no compiled code was run: its cases ran the source alone, or only compiled"


def test_a_claim_needs_more_than_the_source():
    source = [replace(record, executor="interpreter") for record in RECORDS]
    judged = claims(PROFILES, mustpass(), source)
    assert [(claim.state, claim.text) for claim in judged] == [(State.NOT_PROVEN, NO_RUN)] * 2
    by_name_only = [replace(record, verdicts=(RAN, TMA)) for record in RECORDS]
    assert {claim.state for claim in claims(PROFILES, mustpass(), by_name_only)} == {State.NOT_PROVEN}


def test_a_claim_needs_more_than_code_that_was_not_run():
    fields = {"status": Status.NOT_RUN, "executor": None, "reason": REFUSED}
    compiled = [replace(record, verdicts=(Verdict("codegen/requires/MMA", True),), **fields) for record in RECORDS]
    judged, _ = claims(PROFILES, mustpass(mm="compiled", addmm="compiled"), compiled)
    assert (judged.state, judged.text) == (State.NOT_PROVEN, NO_RUN)


def test_evidence_must_be_in_code_that_was_run():
    cases = [RECORDS[2], record("other_tma", executor="interpreter")]
    lists = mustpass(records=cases)
    assert claims(PROFILES, lists, cases)[1].state is State.PROVEN
    elsewhere = [replace(cases[0], verdicts=(RAN, EXECUTED)), cases[1]]
    judged = claims(PROFILES, lists, elsewhere)[1]
    assert (judged.state, judged.text) == (
        State.NOT_PROVEN,
        "no case whose code was run passed codegen/requires/TMA_LOAD",
    )


def test_a_claim_with_a_failing_case_has_failed_and_names_it():
    judged = claims(PROFILES, mustpass(), but("addmm", status=Status.CRASH))
    assert (judged[0].state, judged[0].cases) == (State.FAILED, (RECORDS[1].case,))
    assert str(judged[0]) == "sm_90: baseline failed: 1 of 2 cases failed"
    assert judged[1].state is State.PROVEN


SKIPPED = {
    "left out": RECORDS[1:],
    "not run": but("mm", status=Status.NOT_RUN, reason=Reason(ReasonCode.NO_DEVICE, "x", "y"), executor=None),
    "declared not applicable": but("mm", status=Status.NOT_APPLICABLE, reason=REFUSED, executor=None),
    "only compiled": but("mm", status=Status.NOT_RUN, reason=REFUSED, executor=None, verdicts=(Verdict("x", True),)),
    "recorded twice": [*RECORDS, RECORDS[0]],
}


@pytest.mark.parametrize("how", SKIPPED)
def test_skipping_a_case_of_a_claim_leaves_it_unproven(how):
    judged = claims(PROFILES, mustpass(), SKIPPED[how])
    assert (judged[0].state, judged[0].proven, judged[0].owed) == (State.NOT_PROVEN, 1, 2)
    assert judged[0].cases == (RECORDS[0].case,)


def test_nothing_ran():
    assert set(states([]).values()) == {State.NOT_PROVEN}


def test_a_claim_of_which_the_list_owes_nothing_is_not_proven():
    judged = claims(PROFILES, mustpass(mm_tma="not-applicable:capability"), RECORDS)
    assert (
        str(judged[1]) == "sm_90: tma not proven: the target's list owes no case of it, 1 listed as refused or not run"
    )


def test_a_refusal_that_the_list_expects_is_not_owed():
    refused = but("addmm", status=Status.NOT_APPLICABLE, reason=REFUSED, executor=None)
    judged = claims(PROFILES, mustpass(addmm="not-applicable:capability"), refused)
    assert (judged[0].state, judged[0].owed) == (State.PROVEN, 1)


def test_cases_that_need_more_than_the_run_has_are_mentioned():
    judged = claims(PROFILES, mustpass(addmm="not-run:no-device"), RECORDS)
    assert judged[0].text == "1 cases, 1 more need what this run did not have"


def test_right_numbers_by_another_way_are_no_evidence():
    for verdicts in ((), (Verdict("codegen/requires/TMA_LOAD", False),), (Verdict("codegen/forbids/TMA_LOAD", True),)):
        judged = claims(PROFILES, mustpass(), but("mm_tma", verdicts=(RAN, EXECUTED, *verdicts)))
        assert judged[1].state is State.NOT_PROVEN
        assert judged[1].text == "no case whose code was run passed codegen/requires/TMA_LOAD"


def test_cases_that_ran_no_kernel_prove_nothing_of_the_target():
    refusals = but("mm_tma", executor=None)
    judged = claims(PROFILES, mustpass(mm_tma="pass"), refusals)
    assert judged[1].state is State.NOT_PROVEN
    assert "without compiling or running a kernel" in judged[1].text


def test_the_level_is_the_least_and_never_rounded_up():
    mixed = but("mm", executor="device")
    assert [claim.level for claim in claims(PROFILES, mustpass(), mixed)] == [Level.EXECUTED, Level.EXECUTED]
    device = [replace(record, executor="device") for record in RECORDS]
    assert [claim.level for claim in claims(PROFILES, mustpass(), device)] == [Level.DEVICE, Level.DEVICE]
    compiled = but("mm", status=Status.NOT_RUN, executor=None, verdicts=(Verdict("x", True),), reason=REFUSED)
    (first, _) = claims(PROFILES, mustpass(mm="compiled"), compiled)
    assert (first.state, first.level) == (State.PROVEN, Level.COMPILED)


def test_what_is_excused_is_said_and_not_proven():
    failing = but("mm", status=Status.FAIL)
    assert states(failing)["baseline"] is State.FAILED
    (judged, _) = claims(PROFILES, mustpass(), failing, {RECORDS[0].case})
    assert (judged.state, judged.proven, judged.cases) == (State.EXCUSED, 1, (RECORDS[0].case,))
    assert judged.text == "1 of 2 cases, 1 excused"
    assert states(but("mm", status=Status.EXPECTED_FAIL))["baseline"] is State.EXCUSED
    assert states(RECORDS[1:], excused={RECORDS[0].case})["baseline"] is State.NOT_PROVEN  # left out all the same


def test_what_is_shown_and_not_claimed_is_reported():
    records = [record("mm", "sm_80"), record("mm_tma", "sm_80")]
    lists = mustpass("sm_80", records)
    assert not_claimed(PROFILES, lists, records) == [("sm_80", "tma")]
    assert not_claimed(PROFILES, lists, [records[0], replace(records[1], verdicts=())]) == []
    by_source = replace(records[1], executor="interpreter")
    assert not_claimed(PROFILES, lists, [records[0], by_source]) == []
    assert not_claimed(PROFILES, mustpass(), RECORDS) == []
    assert claims(PROFILES, mustpass("gfx942", RECORDS), RECORDS) == []


def covers(profile: Profile, case: str) -> bool:
    return profile.chosen(cases_by_kernel([case])) == [case]


def test_cases_are_chosen_by_what_their_ids_say():
    profile = Profile(id="p", about="x", kernels=("mm",), suites=("scaling",), dtypes=("fp16",))
    assert covers(profile, "test_scaling.py::test_x[mm-fp16-128x64-sm_90]")
    assert not covers(profile, "test_scaling.py::test_x[mm-e4m3-out_dtype=fp16-sm_90]")
    assert not covers(profile, "test_scaling.py::test_x[mm_tma-fp16-sm_90]")
    assert not covers(profile, "test_zero_size.py::test_x[mm-fp16-sm_90]")
    assert not covers(profile, "test_scaling.py::test_x")
    assert not covers(profile, "no case")
    assert not covers(Profile(id="p", about="x", includes=("q",)), "test_scaling.py::test_x[mm-fp16-sm_90]")
    assert covers(Profile(id="p", about="x", suites=("scaling",)), "mine/test_scaling.py::test_x")
    products = Profile(id="p", about="x", kernels=("*mm",), without=("int_mm",))
    assert covers(products, "test_scaling.py::test_x[new_mm-fp16-sm_90]")
    assert not covers(products, "test_scaling.py::test_x[int_mm-int8-sm_90]")


def test_every_kernel_proves_a_profile_of_the_package():
    """So that a kernel is not forgotten when it is added. One that only older Tritons have proves none, nor need one of
    a family that no target claims."""
    profiles = [one for one in read_profiles().profiles.values() if one.kernels and not one.dtypes]
    proving: dict[str, dict[str, bool]] = {}
    for kernel in filter(lambda one: one.offered, catalogue.catalogue().values()):
        case = f"test_a.py::test_x[{kernel.name}-bf16-sm_90]"
        proving.setdefault(kernel.family, {})[kernel.name] = any(covers(profile, case) for profile in profiles)
    claimed = [kernels for kernels in proving.values() if any(kernels.values())]
    assert len(claimed) >= 14, "a profile lost a family"
    assert [name for kernels in claimed for name, proves in kernels.items() if not proves] == []


def test_the_profiles_of_the_package_are_valid_and_the_users_claims_stand_in(tmp_path):
    built_in = read_profiles(own_claims=targets.claims())
    assert {profile.id for profile in built_in.claimed("sm_90")} >= {"baseline", "tensor-core", "fp8", "tma", "flex"}
    assert "warp-specialised" in {profile.id for profile in built_in.claimed("sm_100")}
    assert "tma" not in {profile.id for profile in built_in.claimed("gfx942")}
    file = tmp_path / "mine.toml"
    file.write_text('[[target]]\nid = "sm_90"\nclaims = ["tma"]\n[[target]]\nid = "mine_1"\nclaims = ["baseline"]\n')
    users = read_profiles([file], targets.claims())
    assert [profile.id for profile in users.claimed("sm_90")] == ["tma"]
    assert [profile.id for profile in users.claimed("mine_1")] == ["baseline"]


def test_every_known_target_claims_something_and_a_claim_of_no_profile_is_an_error():
    assert {row.arch for row in targets.KNOWN if not row.claims} == set()
    with pytest.raises(EntryError, match="target 'sm_91' names profile 'vender'"):
        parsed({"f": FILE}, {"sm_91": ("vender",)})


def test_profiles_that_include_each_other_end():
    text = FILE.replace('includes = ["baseline", "tma"]', 'includes = ["baseline", "vendor", "tma"]')
    assert [profile.id for profile in parsed({"f": text}).claimed("sm_90")] == ["baseline", "tma"]


BROKEN = {
    "not-toml": ("id = ", "is not TOML"),
    "unknown-table": ("[[profiles]]\nid = 'x'\n", "only [[profile]] and [[target]] tables are read"),
    "unknown-key": (
        FILE.replace("kernels", "kernel"),
        "profile 'baseline': unknown key `kernel`: the keys are id, about; includes,",
    ),
    "missing-key": (FILE.replace('about = "products"', ""), "profile 'baseline': missing key `about`"),
    "wrong-type": (FILE.replace('["*_tma"]', '"*_tma"'), "profile 'tma': kernels = '*_tma': a list of texts"),
    "wrong-items": (FILE.replace('["*_tma"]', "[1]"), "profile 'tma': kernels = [1]"),
    "spaces": (FILE.replace('id = "tma"', 'id = "t m a"'), "text without spaces is required"),
    "twice": (FILE + FILE.split("[[target]]")[0], "profile 'baseline' is twice: an id must be unique"),
    "target-twice": (FILE.replace('"sm_80"', '"sm_90"'), "target 'sm_90' is twice"),
    "unknown-profile": (FILE.replace('["vendor"]', '["vender"]'), "target 'sm_90' names profile 'vender', which there"),
    "unknown-include": (FILE.replace('["baseline", "tma"]', '["tmb"]'), "profile 'vendor' names profile 'tmb'"),
    "no-cases": ('[[profile]]\nid = "x"\nabout = "y"\n', "profile 'x': it has no cases"),
    "evidence-of-nothing": (
        FILE.replace('"tma"]\n', '"tma"]\nevidence = ["x"]\n'),
        "profile 'vendor': it has no cases",
    ),
    "claims-of-no-target": (FILE.replace('id = "sm_80"\n', ""), "target 2: missing key `id`: the keys are id, claims"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_file_is_an_error_that_says_what_is_wrong(fault):
    text, message = BROKEN[fault]
    with pytest.raises(EntryError) as error:
        parsed({"f.toml": text})
    assert message in str(error.value)


def test_a_huge_file_is_refused(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text("#" * (toml_entries.FILE_LIMIT + 1))
    with pytest.raises(EntryError, match="a file of profiles has at most"):
        read_profiles([file])
