"""Says which cases the candidate lost, and whether the two runs are whole and comparable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from conformance.gate.runs.run_reader import ComparedRun
from conformance.records import CaseRecord

#: Groups in which lost cases are counted, in order of preference. If a kernel and a suite lost the same number, the
#: kernel is named as the cause.
_GROUPS = ("kernel", "suite", "target")


#: Name and value of each group that a case is in.
Groups = tuple[tuple[str, str], ...]


def groups_of(record: CaseRecord) -> Groups:
    return tuple((name, value) for name in _GROUPS if (value := getattr(record, name)) is not None)


class Absences:
    """The reasons for which the candidate lacks cases of the baseline. If it recorded no case of the same kernel, suite
    or target, the largest such group is the cause; otherwise a case is only not recorded."""

    def __init__(self, before: int, after: int) -> None:
        self._before, self._after = before, after  # cases of each side
        self._totals: Counter[tuple[str, str]] = Counter()
        self._recorded: set[tuple[str, str]] = set()

    def add(self, before: CaseRecord, after: CaseRecord | None) -> None:
        """Counts a case of the baseline. All are counted before a cause is asked for."""
        groups = groups_of(before)
        self._totals.update(groups)
        if after is not None:
            self._recorded.update(groups)

    def cause(self, groups: Groups) -> str:
        """The cause for a case in these groups that the candidate did not record."""
        if not self._after:
            return f"the candidate recorded none of the {self._before} cases"
        whole = [group for group in groups if group not in self._recorded]
        if not whole:
            return "not recorded"
        name, value = max(whole, key=self._totals.__getitem__)  # the first of equals
        return f"{name} {value}: none of its {self._totals[name, value]} cases was recorded"


def warnings(baseline: ComparedRun, candidate: ComparedRun) -> list[str]:
    """Returns sentences about why the two runs are only partly comparable, and what else a reader should know
    of them."""
    texts = [
        f"{what} differ: {was} before, {now} now; {so}"
        for what, was, now, so in _differences(baseline, candidate)
        if was != now
    ]
    for label, side in (("baseline", baseline), ("candidate", candidate)):
        selected = side.run.selected if side.run else None
        if side.run is None and not side.problems:  # which would say more
            texts.append(f"the {label} has no usable run.json: whether its run ended and what was selected is unknown")
        elif selected is not None and selected < len(side.records):
            texts.append(f"the {label}'s run selected {selected} cases; {len(side.records)} are recorded")
        merged = side.run.merged if side.run else None
        if merged is not None and merged.mixed_devices:
            devices = ", ".join(sorted({shard.device or "no device" for shard in merged.shards}))
            texts.append(
                f"the {label}'s run was merged from shards on several devices ({devices}): times are compared "
                "between cases of one device"
            )
        mixed = [what for what in side.mixed if merged is None or not what.startswith("device (")]
        if mixed:
            texts.append(
                f"the {label}'s records are of several runs, which differ in {', '.join(mixed)}: "
                "a finding may come from that, not from the candidate"
            )
    return texts


def _differences(baseline: ComparedRun, candidate: ComparedRun) -> Iterator[tuple[str, object, object, str]]:
    both = (baseline, candidate)
    yield "tiers", baseline.tier, candidate.tier, "cases of one tier only count as lost or new"
    yield "seeds", baseline.seed, candidate.seed, "the bits of outputs are not compared"
    if baseline.run and candidate.run:
        targets = (", ".join(sorted(side.run.targets)) or "the default" for side in both if side.run)
        yield "targets", next(targets), next(targets), "cases of one run's targets only count as lost or new"
    mixed = any(side.run and side.run.merged and side.run.merged.mixed_devices for side in both)
    times = "times are compared between cases of one device" if mixed else "times are not compared"
    for key, what, so in (("harness", "harnesses", "checks may differ"), ("device", "devices", times)):
        yield what, baseline.stack.get(key), candidate.stack.get(key), so
