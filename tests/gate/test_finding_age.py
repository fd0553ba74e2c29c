"""A cause is new in a release only if the release before it was judged and does not show it."""

from __future__ import annotations

import pytest
from packaging.version import Version

from conformance.gate.verdict.finding_age import MOST_CASES, Releases, age_of, aged, chosen_cases
from conformance.gate.verdict.shown_again import Shows, Sight
from conformance.user_files.findings import Comparison, Finding, Group, Kind, Side

SHOWN, CLEAN, UNKNOWN = Sight(Shows.YES), Sight(Shows.NO), Sight(Shows.UNKNOWN, "it crashed")
INDEX = ("3.5.0", "3.6.0", "3.7.0", "3.7.1")


def versions(sights: dict[str, Sight]) -> dict[Version, Sight]:
    return {Version(text): sight for text, sight in sights.items()}


def releases(index=INDEX, listed=True, not_asked=(), component="triton", why_none="") -> Releases:
    refused = {Version(text): why for text, why in dict(not_asked).items()}
    return Releases(component, Version("3.8.0"), tuple(map(Version, index)), listed, refused, why_none)


@pytest.mark.parametrize(
    ("sights", "more", "text"),
    [
        ({"3.7.1": CLEAN, "3.7.0": CLEAN, "3.6.0": CLEAN}, {}, "new in 3.8.0"),
        ({"3.7.1": SHOWN, "3.7.0": CLEAN, "3.6.0": CLEAN}, {}, "new in 3.7.1"),
        ({"3.7.1": SHOWN, "3.7.0": SHOWN, "3.6.0": CLEAN}, {}, "new in 3.7.0"),
        ({"3.7.1": SHOWN, "3.7.0": SHOWN, "3.6.0": SHOWN}, {}, "as old as 3.6.0"),
        ({"3.7.1": CLEAN, "3.7.0": SHOWN, "3.6.0": CLEAN}, {}, "new in 3.8.0; 3.7.0 had it, too"),
        ({"3.7.1": CLEAN}, {"not_asked": {"3.7.0": "no network"}}, "new in 3.8.0"),
        # nothing is new of which the release before is not known
        ({"3.7.1": UNKNOWN, "3.7.0": CLEAN}, {}, "in 3.8.0, not in 3.7.0, not judged: 3.7.1 (it crashed)"),
        ({"3.7.0": CLEAN}, {"not_asked": {"3.7.1": "no wheel"}}, "in 3.8.0, not in 3.7.0, not asked: 3.7.1 (no wheel)"),
        ({"3.7.0": CLEAN}, {}, "in 3.8.0, not in 3.7.0, not asked: 3.7.1"),
        ({"3.7.1": CLEAN}, {"index": (), "listed": False, "why_none": "offline"},
         "in 3.8.0, not in 3.7.1, whether there is a release between them is not known"),
        ({"3.7.1": UNKNOWN, "3.7.0": UNKNOWN}, {}, "in 3.8.0, not judged: 3.7.1, 3.7.0 (it crashed)"),
        ({}, {"not_asked": {"3.7.1": "a", "3.7.0": "a", "3.6.0": "b"}},
         "in 3.8.0, not asked: 3.7.1, 3.7.0 (a), not asked: 3.6.0 (b)"),
        ({}, {"index": (), "listed": False, "why_none": "offline"}, "in 3.8.0, not asked: any older release (offline)"),
        # what is older than the oldest that shows it
        ({"3.7.1": SHOWN, "3.7.0": SHOWN}, {"not_asked": {"3.6.0": "no wheel"}},
         "as old as 3.7.0, not asked: 3.6.0 (no wheel)"),
        ({"3.7.1": SHOWN, "3.6.0": UNKNOWN}, {}, "as old as 3.7.1, not asked: 3.7.0, not judged: 3.6.0 (it crashed)"),
        ({"3.7.1": UNKNOWN, "3.7.0": SHOWN, "3.6.0": SHOWN}, {}, "as old as 3.6.0"),
        # a baseline that is older than the last three
        ({"3.7.1": SHOWN, "3.5.0": CLEAN}, {}, "in 3.7.1, not in 3.5.0, not asked: 3.7.0, 3.6.0"),
        ({"3.7.1+vendor": CLEAN, "3.7.1": CLEAN}, {}, "new in 3.8.0"),
        ({"3.7.1": CLEAN}, {"component": "torch"}, "new in torch 3.8.0"),
    ],
)  # fmt: skip
def test_the_age_of_a_cause(sights, more, text):
    assert age_of(releases(**more), versions(sights)) == text


def group(kind: Kind, cause: str, *cases: str, kernel: str = "mm") -> Group:
    findings = (Finding(kind, case, case.partition("-")[0] or kernel, "sm_90", cause, "", "") for case in cases)
    return Group(kind, cause, tuple(findings))


def test_each_cause_has_a_case_before_any_has_two():
    groups = [group(Kind.NEW_FAIL, f"cause {n}", f"mm-{n}", f"mm-{n}b", f"bmm-{n}") for n in range(15)]
    old = group(Kind.STILL_FAIL, "codegen/order/fence: none", "mm-old", "bmm-old")
    chosen = [one.case for _, one in chosen_cases([*groups, old])]
    assert chosen[:16] == [*(f"mm-{n}" for n in range(15)), "mm-old"]
    assert chosen[16:] == [f"bmm-{n}" for n in range(4)]  # of another kernel than the first
    assert len(set(chosen)) == MOST_CASES


def test_a_case_of_two_causes_is_run_once_and_counts_for_both():
    groups = [group(Kind.NEW_FAIL, f"cause {n}", "mm-a") for n in range(30)]
    assert len(chosen_cases(groups)) == 30


def test_no_age_is_asked_for_other_warnings():
    assert chosen_cases([group(Kind.SYNC_CHANGED, "fewer", "mm-a"), group(Kind.STILL_FAIL, "timeout", "mm-a")]) == []


SIDE = Side("a", {}, "quick", 0, 1, {})


def test_the_groups_say_how_old_they_are():
    first, second = group(Kind.NEW_FAIL, "x", "mm-a", "bmm-b"), group(Kind.MORE_SPILLS, "y", "mm-c")
    rest = group(Kind.NEW_CRASH, "z", "mm-d")
    sights = [
        (first, first.findings[0], versions({"3.7.1": CLEAN})),
        (first, first.findings[1], versions({"3.7.1": SHOWN, "3.7.0": CLEAN})),
        (second, second.findings[0], versions({"3.7.1": SHOWN, "3.7.0": UNKNOWN})),
    ]
    groups = aged(Comparison(SIDE, SIDE, (first, second, rest), 4, 0), releases(), sights).groups
    texts = [each.age.text for each in groups]
    assert texts[0] == "mm on sm_90: new in 3.8.0; bmm on sm_90: new in 3.7.1"
    assert texts[1] == "as old as 3.7.1, not judged: 3.7.0 (it crashed)"
    assert texts[2] == "not asked: 20 cases of other causes were run with older releases"
    assert [each.notes for each in groups] == [(f"age: {text}",) for text in texts]
    assert groups[1].age.releases == {"mm-c": {"3.7.1": "shows it", "3.7.0": "not judged: it crashed"}}
    assert [each.severity for each in groups] == [each.severity for each in (first, second, rest)]
