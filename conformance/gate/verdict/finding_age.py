"""Says how old the cause of a finding is, by what older releases show of its cases.

Nothing is called new unless the release before it was judged and does not show the cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from packaging.version import Version

from conformance.gate.verdict.shown_again import Shows, Sight
from conformance.user_files.findings import Age, Comparison, Finding, Group, Kind, Severity

#: How many cases of all causes are run with older releases.
MOST_CASES = 20
#: Beginnings of the causes of faults that both sides have and that a check names by itself: the order of the code, and
#: known defects.
_NAMED_BY_ITSELF = ("codegen/order/", "expected: ")


@dataclass(frozen=True)
class Releases:
    """The releases of one ``component``, such as "triton", before that of the ``candidate``, which is a version. Their
    versions are in ascending order. ``listed``: an index named them, so none is missing between them. ``not_asked``
    says why a release was not run, ``why_none`` why no more releases are known."""

    component: str
    candidate: Version
    versions: tuple[Version, ...]
    listed: bool
    not_asked: Mapping[Version, str] = field(default_factory=dict)
    why_none: str = ""


def chosen_cases(groups: Iterable[Group], most: int = MOST_CASES) -> list[tuple[Group, Finding]]:
    """Returns the findings by whose cases the ages are asked for, ``most`` at most. The first of each regression comes
    first. Then comes the first of each fault that the baseline has, too, if a check names it by itself. Last is a
    second of each regression, of another kernel or target if there is one."""
    groups = list(groups)
    regressions = [group for group in groups if group.severity is Severity.REGRESSION]
    older = [group for group in groups if group.kind is Kind.STILL_FAIL and group.cause.startswith(_NAMED_BY_ITSELF)]
    firsts = [(group, group.findings[0]) for group in (*regressions, *older)]
    seconds = [(group, second) for group in regressions if (second := _unlike(group.findings)) is not None]
    chosen: list[tuple[Group, Finding]] = []
    cases: set[str] = set()
    for group, one in (*firsts, *seconds):
        if one.case in cases or len(cases) < most:
            cases.add(one.case)
            chosen.append((group, one))
    return chosen


def _unlike(findings: Sequence[Finding]) -> Finding | None:
    """Returns the finding that differs most from the first: in its kernel, else in its target, else in its case
    alone."""
    first, others = findings[0], [one for one in findings[1:] if one.case != findings[0].case]
    others.sort(key=lambda one: (one.kernel == first.kernel, one.target == first.target))
    return others[0] if others else None


def age_of(releases: Releases, sights: Mapping[Version, Sight]) -> str:
    """Returns the age of the cause of one finding in words, such as "new in 3.8.0" or "as old as 3.6.0". ``sights``:
    what each release that was asked shows of its case."""
    oldest, between = releases.candidate, list[Version]()  # those whose answer is not known
    earliest = min(sights, default=releases.candidate)
    for version in sorted({*sights, *(one for one in releases.versions if one >= earliest)}, reverse=True):
        shows = sights[version].shows if version in sights else Shows.UNKNOWN
        if shows is Shows.NO:
            again = [older for older in sorted(sights) if older < version and sights[older].shows is Shows.YES]
            before = f"; {_named(again)} had it, too" if again else ""
            if releases.listed and not between:
                return f"new in {_release(releases, oldest)}{before}"
            gap = _not_known(releases, sights, between) or ", whether there is a release between them is not known"
            return f"in {_release(releases, oldest)}, not in {version}{gap}{before}"
        if shows is Shows.YES:
            oldest, between = version, []
        else:
            between.append(version)
    older = [*between, *(version for version in sorted(releases.not_asked, reverse=True) if version < earliest)]
    text = f"{'in' if oldest == releases.candidate else 'as old as'} {_release(releases, oldest)}"
    why_none = f", not asked: any older release ({releases.why_none})" if releases.why_none and not older else ""
    return text + _not_known(releases, sights, older) + why_none


def _release(releases: Releases, version: Version) -> str:
    """A release of Triton is known by its number alone."""
    return str(version) if releases.component == "triton" else f"{releases.component} {version}"


def _not_known(releases: Releases, sights: Mapping[Version, Sight], versions: Sequence[Version]) -> str:
    """Returns the sentence that ``versions`` were not asked or not judged, with the reasons; "" if there is none."""
    whys: dict[tuple[str, str], list[Version]] = {}
    for version in versions:
        judged = version in sights
        why = sights[version].why if judged else releases.not_asked.get(version, "")
        whys.setdefault(("not judged" if judged else "not asked", why), []).append(version)
    return "".join(f", {what}: {_named(those)}{f' ({why})' if why else ''}" for (what, why), those in whys.items())


def _named(versions: Sequence[Version]) -> str:
    return ", ".join(map(str, versions))


def aged(
    comparison: Comparison, releases: Releases, sights: Sequence[tuple[Group, Finding, Mapping[Version, Sight]]]
) -> Comparison:
    """``comparison`` with the age of each cause: ``sights`` has what the older releases show of the chosen cases. A
    cause of which no case was chosen says so."""
    by_group: dict[tuple[object, ...], list[tuple[Finding, Mapping[Version, Sight]]]] = {}
    for group, one, seen in sights:
        by_group.setdefault(_key(group), []).append((one, seen))
    groups = (_aged(group, releases, by_group.get(_key(group), ())) for group in comparison.groups)
    return replace(comparison, groups=tuple(groups))


def _aged(group: Group, releases: Releases, cases: Sequence[tuple[Finding, Mapping[Version, Sight]]]) -> Group:
    if cases:
        text, shown = _text(releases, cases), {one.case: _words(seen) for one, seen in cases}
    elif group.severity is Severity.REGRESSION:
        text, shown = f"not asked: {MOST_CASES} cases of other causes were run with older releases", {}
    else:
        return group
    return replace(group, age=Age(text, releases.component, shown), notes=(f"age: {text}", *group.notes))


def _key(group: Group) -> tuple[object, ...]:
    return group.severity, group.kind, group.cause


def _text(releases: Releases, cases: Sequence[tuple[Finding, Mapping[Version, Sight]]]) -> str:
    """Returns the age of a cause by its cases: once if they agree, else that of each."""
    texts: dict[str, list[str]] = {}
    for one, seen in cases:
        where = f"{one.kernel or one.case}{f' on {one.target}' if one.target else ''}"
        texts.setdefault(age_of(releases, seen), []).append(where)
    if len(texts) == 1:
        return next(iter(texts))
    return "; ".join(f"{', '.join(dict.fromkeys(names))}: {text}" for text, names in texts.items())


def _words(seen: Mapping[Version, Sight]) -> dict[str, str]:
    """Returns a text for each release about what it shows, as the JSON has it, the newest first."""
    words = {Shows.YES: "shows it", Shows.NO: "does not show it"}
    return {
        str(version): words.get(sight.shows, f"not judged: {sight.why}")
        for version, sight in sorted(seen.items(), reverse=True)
    }
