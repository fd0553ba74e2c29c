"""The first line of a comparison: the answer, for which part of a tier it holds, and what speaks for or against it."""

from __future__ import annotations

from collections import Counter

from conformance.faults import FaultClass
from conformance.reporting.text import clean, one_line
from conformance.user_files.findings import BrokenSide, Comparison, Scope, Severity

#: So many cases or fewer are a handful, and the answer says that it is about them alone.
HANDFUL = 12
SHAPES_SHOWN = 6
#: How many options of a narrowed run are named, and of how many characters each.
OPTIONS_SHOWN = 6
OPTION_CHARACTERS = 60
#: Characters of a version in the first line.
VERSION_CHARACTERS = 40
#: Characters of what broke a run.
FAULT_CHARACTERS = 200


def answer(comparison: Comparison) -> str:
    """One line that says whether the candidate may replace the baseline, for which cases, and why not; or which side
    gives no answer, and what broke there."""
    if comparison.broken:
        parts = [*map(broken_text, comparison.broken), _so_far(comparison)]
        return f"NO ANSWER{_reach(comparison)}: {'; '.join(parts)}"
    if not comparison.safe:
        against = [*_against(comparison), *_waived(comparison), *both_changed(comparison)]
        return f"NOT SAFE{_reach(comparison)}: {'; '.join(against)}"
    scope = comparison.scope
    other = "other " if comparison.waived else ""
    unchanged = comparison.unchanged - sum(scope.refused.values())
    warned = sum(group.severity is Severity.WARNING for group in comparison.groups) + len(comparison.warnings)
    both = "".join(f"; {text}" for text in both_changed(comparison))
    first = ", ".join(filter(None, (f"SAFE{_reach(comparison)}", *_waived(comparison), newly_failing(comparison))))
    rest = f"; {many(warned, 'warning')} to read" if warned else ""
    return (
        f"{first}: no {other}regression in {scope.judged:,} of {many(scope.cases, 'case')} "
        f"({'; '.join(proof(scope))}), {unchanged:,} unchanged{rest}{both}"
    )


def both_changed(comparison: Comparison) -> list[str]:
    """Returns the sentence that torch and Triton both changed, if they did: either may be the reason of a finding."""
    before, after = comparison.baseline.stack, comparison.candidate.stack
    changes = [
        f"{name} ({clean(str(before[name]))[:VERSION_CHARACTERS]} to {clean(str(after[name]))[:VERSION_CHARACTERS]})"
        for name in ("torch", "triton")
        if before.get(name) and after.get(name) and before[name] != after[name]
    ]
    return [f"{' and '.join(changes)} both changed"] if len(changes) > 1 else []


def broken_text(broken: BrokenSide) -> str:
    """Names the side that gives no answer, its class and what broke, such as "the baseline is unfinished (cut-off: the
    run did not end)"."""
    kinds = dict.fromkeys(one_line(fault.kind) for fault in broken.faults)
    first = clean(broken.faults[0].text).replace("\n", " ")[:FAULT_CHARACTERS]
    more = f" and {', '.join(list(kinds)[1:])}" if len(kinds) > 1 else ""
    how = "unfinished" if broken.fault_class is FaultClass.UNFINISHED else f"broken by its {broken.fault_class.value}"
    return f"the {broken.side} is {how} ({next(iter(kinds))}: {first}{more})"


def _so_far(comparison: Comparison) -> str:
    """Returns a text of what to do, and of what speaks against the candidate in the part that was compared."""
    against = "; ".join(_against(comparison))
    return "run it again" + (f"; found so far, and not to be relied on: {against}" if against else "")


def _against(comparison: Comparison) -> list[str]:
    """Returns all that speaks against the candidate: cases that newly fail, regressions by kind, and objections."""
    groups, parts = comparison.regressions, []
    if groups:
        by_kind = Counter[str]()
        for group in groups:
            by_kind[group.kind.value] += len(group.findings)
        kinds = ", ".join(f"{number:,} {kind}" for kind, number in by_kind.items())
        parts.append(f"{many(by_kind.total(), 'regression')} in {many(len(groups), 'group')} ({kinds})")
    if comparison.objections:
        parts.append(many(len(comparison.objections), "objection"))
    return [*filter(None, [newly_failing(comparison)]), *([", ".join(parts)] if parts else [])]


def newly_failing(comparison: Comparison) -> str:
    """Counts in words the cases that newly fail, and those of them by known defects; empty if none does."""
    cases = comparison.newly_failing
    if not cases:
        return ""
    by_defect = len(comparison.newly_failing_by_known_defects)
    which = "by a known defect" if by_defect == len(cases) == 1 else f"{by_defect:,} by known defects"
    by_known = f" ({which})" if by_defect else ""
    return f"{many(len(cases), 'case')} newly {'fails' if len(cases) == 1 else 'fail'}{by_known}"


def _waived(comparison: Comparison) -> list[str]:
    return [f"{many(comparison.waived, 'regression')} waived"] if comparison.waived else []


def _reach(comparison: Comparison) -> str:
    """For which cases the answer holds, if that is less than a whole run; else empty."""
    reach = narrowing_text(comparison)
    if reach:
        return f" for {reach}"
    cases = comparison.scope.cases
    return (
        f" for the {many(cases, 'case')} that {'was' if cases == 1 else 'were'} compared"
        if 0 < cases <= HANDFUL
        else ""
    )


def narrowing_text(comparison: Comparison) -> str:
    """The part of the tier that a narrowed comparison is of, such as "24 of 1,373 cases (--kernel mm)"; else empty."""
    narrowing = comparison.narrowing
    if narrowing is None:
        return ""
    options = [clean(option).replace("\n", " ")[:OPTION_CHARACTERS] for option in narrowing.options[:OPTIONS_SHOWN]]
    if len(narrowing.options) > OPTIONS_SHOWN:
        options.append(f"and {len(narrowing.options) - OPTIONS_SHOWN} more options")
    of = f"{narrowing.cases:,} of " if narrowing.whole is not None else ""
    count = many(narrowing.cases if narrowing.whole is None else narrowing.whole, "case")
    return f"{of}{count} ({' '.join(options) or 'options not recorded'})"


def proof(scope: Scope) -> list[str]:
    """Returns sentences about what the judged cases prove: how many by which level, and in which shapes; why others are
    not among them."""
    parts = [", ".join(f"{count:,} {level}" for level, count in scope.levels.items()) or "none was judged"]
    shapes = list(scope.shapes)
    if shapes:
        more = f" and {len(shapes) - SHAPES_SHOWN} more" if len(shapes) > SHAPES_SHOWN else ""
        parts.append(f"shapes {', '.join(clean(shape)[:40] for shape in shapes[:SHAPES_SHOWN])}{more}")
    return parts


def many(count: int, noun: str) -> str:
    """Returns ``count`` of ``noun`` in words, such as "1,373 cases".

    >>> many(1, "case"), many(1373, "case")
    ('1 case', '1,373 cases')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
