"""The findings of a comparison of two runs: kinds with their severity, one finding per case, groups by cause."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import Any

from conformance.faults import Fault, FaultClass


class Severity(str, Enum):
    """``REGRESSION`` fails the gate, ``WARNING`` wants to be read, ``INFO`` is for the record."""

    REGRESSION = "regression"
    WARNING = "warning"
    INFO = "info"


class Kind(str, Enum):
    """The kind of a finding about a case, its code or its time. The order is that of a report, the worst first."""

    NEW_CRASH = "NEW_CRASH"  # crash, timeout or out of memory where the baseline had none
    NEW_FAIL = "NEW_FAIL"
    NONDETERMINISTIC = "NONDETERMINISTIC"  # two runs of one input differ, where the baseline's agreed
    NEW_KNOWN_DEFECT = "NEW_KNOWN_DEFECT"  # fails as an expected failure says, where the baseline did not
    WAIT_MOVED = "WAIT_MOVED"  # a wait for copies that no barrier follows any more
    LDS_ACROSS_BARRIER = "LDS_ACROSS_BARRIER"  # an access that is open while a barrier is passed
    ORDER_LOST = "ORDER_LOST"  # no barrier or fence precedes a product or its arrival any more
    LIMIT_CROSSED = "LIMIT_CROSSED"  # within the target's limit before, past it now
    LOST_COVERAGE = "LOST_COVERAGE"  # ran before; refused, not run or missing now
    FEATURE_LOST = "FEATURE_LOST"
    ACCUMULATOR_MOVED = "ACCUMULATOR_MOVED"  # out of tensor memory and back within the loop
    MORE_SPILLS = "MORE_SPILLS"
    LESS_OCCUPANCY = "LESS_OCCUPANCY"  # fewer blocks or waves are resident on a multiprocessor
    SLOWER = "SLOWER"
    STILL_FAIL = "STILL_FAIL"
    UNDEFINED_LANES = "UNDEFINED_LANES"  # a warning about lanes without a value is new, or another one
    SYNC_CHANGED = "SYNC_CHANGED"  # other counts of instructions that synchronise, or use tensor memory in loops
    BEST_CONFIG_MOVED = "BEST_CONFIG_MOVED"
    MORE_SHARED_MEMORY = "MORE_SHARED_MEMORY"
    MORE_REGISTERS = "MORE_REGISTERS"
    LARGER_CODE = "LARGER_CODE"
    SLOWER_COMPILE = "SLOWER_COMPILE"
    OTHER_INSTRUCTIONS = "OTHER_INSTRUCTIONS"  # the mix of instructions changed
    CONFIGS_CHANGED = "CONFIGS_CHANGED"  # torch's own config tables have other rows
    WAIVED = "WAIVED"  # a regression that a waiver of the user's covers
    NUMERICS_DRIFT = "NUMERICS_DRIFT"  # other bits, both within the bound
    AMBIGUOUS = "AMBIGUOUS"  # the times neither differ by the threshold nor agree within it
    FIXED = "FIXED"
    NEW_COVERAGE = "NEW_COVERAGE"
    FEATURE_GAINED = "FEATURE_GAINED"
    FEWER_SPILLS = "FEWER_SPILLS"
    MORE_OCCUPANCY = "MORE_OCCUPANCY"
    LESS_SHARED_MEMORY = "LESS_SHARED_MEMORY"
    FEWER_REGISTERS = "FEWER_REGISTERS"
    SMALLER_CODE = "SMALLER_CODE"
    FASTER_COMPILE = "FASTER_COMPILE"
    FASTER = "FASTER"


_REGRESSIONS = (
    *(Kind.NEW_CRASH, Kind.NEW_FAIL, Kind.NONDETERMINISTIC, Kind.NEW_KNOWN_DEFECT),
    *(Kind.WAIT_MOVED, Kind.LDS_ACROSS_BARRIER, Kind.ORDER_LOST, Kind.LIMIT_CROSSED),
    *(Kind.LOST_COVERAGE, Kind.FEATURE_LOST, Kind.ACCUMULATOR_MOVED, Kind.MORE_SPILLS),
    *(Kind.LESS_OCCUPANCY, Kind.SLOWER),
)
_WARNINGS = (
    *(Kind.STILL_FAIL, Kind.UNDEFINED_LANES, Kind.SYNC_CHANGED, Kind.BEST_CONFIG_MOVED, Kind.MORE_SHARED_MEMORY),
    *(Kind.MORE_REGISTERS, Kind.LARGER_CODE, Kind.SLOWER_COMPILE, Kind.OTHER_INSTRUCTIONS, Kind.CONFIGS_CHANGED),
)
#: What a case fails by that did not fail in the baseline, or not in this way.
NEW_FAILURES = (Kind.NEW_CRASH, Kind.NEW_FAIL, Kind.NONDETERMINISTIC, Kind.NEW_KNOWN_DEFECT)
#: What got better. A case that fails gains nothing by it.
GAINS = (
    *(Kind.FIXED, Kind.NEW_COVERAGE, Kind.FEATURE_GAINED, Kind.FEWER_SPILLS, Kind.MORE_OCCUPANCY),
    *(Kind.LESS_SHARED_MEMORY, Kind.FEWER_REGISTERS, Kind.SMALLER_CODE, Kind.FASTER_COMPILE, Kind.FASTER),
)
#: The severity of each kind. A finding that is ``minor`` has a lesser one.
SEVERITY: Mapping[Kind, Severity] = {
    **dict.fromkeys(Kind, Severity.INFO),
    **dict.fromkeys(_REGRESSIONS, Severity.REGRESSION),
    **dict.fromkeys(_WARNINGS, Severity.WARNING),
}


#: What a finding of a kind means, for somebody who knows no kind.
MEANING: Mapping[Kind, str] = {
    Kind.NEW_CRASH: "crashes, hangs or runs out of memory; it did not before",
    Kind.NEW_FAIL: "gives a wrong result, or breaks another promise; it did not before",
    Kind.NONDETERMINISTIC: "gives other results for the same input from run to run; it did not before",
    Kind.NEW_KNOWN_DEFECT: "fails as a list of known defects says; it did not before",
    Kind.LOST_COVERAGE: "could be judged before and cannot now, so that no fault can be excluded",
    Kind.FEATURE_LOST: "compiles to code that no longer uses a feature of the hardware",
    Kind.LIMIT_CROSSED: "needs more than the hardware has, and cannot be launched there",
    Kind.MORE_SPILLS: "keeps more registers in memory, which may cost time",
    Kind.WAIT_MOVED: "waits for its copies and then uses shared memory without a barrier, so it may read what other "
    "threads have not copied yet",
    Kind.LDS_ACROSS_BARRIER: "passes a barrier before its access of shared memory has ended, so other waves may see or "
    "overwrite what they must not",
    Kind.ORDER_LOST: "multiplies, or reports products as done, without the barrier, fence or wait that it had",
    Kind.ACCUMULATOR_MOVED: "moves its sum out of tensor memory and back within the loop, which may cost time",
    Kind.LESS_OCCUPANCY: "leaves room for fewer blocks at a time on each multiprocessor, which may cost time",
    Kind.SLOWER: "takes longer on the device",
    Kind.BEST_CONFIG_MOVED: "is fastest with another config than before",
    Kind.MORE_SHARED_MEMORY: "needs more shared memory",
    Kind.MORE_REGISTERS: "needs more registers",
    Kind.LARGER_CODE: "compiles to more code",
    Kind.SLOWER_COMPILE: "takes longer to compile",
    Kind.UNDEFINED_LANES: "lets lanes that a mask leaves without a value reach a result, which it did not before, or "
    "not in this way; the code gives them 0, and nothing promises that",
    Kind.SYNC_CHANGED: "has other counts of instructions that synchronise or that use tensor memory in loops",
    Kind.OTHER_INSTRUCTIONS: "compiles to another mix of instructions",
    Kind.CONFIGS_CHANGED: "has other rows in a config table of torch's, so other configs may be picked",
    Kind.AMBIGUOUS: "has times that are neither equal nor clearly different",
    Kind.STILL_FAIL: "failed before and fails now",
    Kind.FIXED: "failed before, or its code had a fault, and has it no longer",
    Kind.NEW_COVERAGE: "can be judged now and could not before",
    Kind.FEATURE_GAINED: "compiles to code that uses a feature of the hardware, which it did not before",
    Kind.FEWER_SPILLS: "keeps fewer registers in memory",
    Kind.MORE_OCCUPANCY: "leaves room for more blocks at a time on each multiprocessor",
    Kind.LESS_SHARED_MEMORY: "needs less shared memory",
    Kind.FEWER_REGISTERS: "needs fewer registers",
    Kind.SMALLER_CODE: "compiles to less code",
    Kind.FASTER_COMPILE: "takes less time to compile",
    Kind.FASTER: "takes less time on the device",
    Kind.NUMERICS_DRIFT: "gives other bits than before, and passes with both",
    Kind.WAIVED: "got worse, and your waivers accept that",
}


class Harm(str, Enum):
    """Says what a failure does to who relies on the kernel. The order is that of a report: wrong comes before slow."""

    WRONG = "wrong numbers"
    RACE = "race"
    MEMORY = "wrong memory access"
    CRASH = "crash, hang or out of memory"
    NOT_COMPILED = "does not compile"
    RAISES = "raises an exception"
    TOO_LARGE = "past a limit of the target"
    UNKNOWN = "unknown"
    FEATURE_LOST = "feature lost"
    SPILLS = "more spills"


#: What makes nothing wrong, and costs time.
COSTS = (Harm.FEATURE_LOST, Harm.SPILLS)


@dataclass(frozen=True)
class KnownDefect:
    """The expected failure by which a case fails. ``id`` names its entry, ``harm`` is what it does, ``link`` is where
    it is reported. ``fixed_in`` is the release that mends it, such as "triton 3.9.0". Texts are empty where the record
    does not say them."""

    id: str
    harm: Harm
    link: str = ""
    fixed_in: str = ""

    def __str__(self) -> str:
        return ", ".join(filter(None, (f"{self.harm.value}: {self.id}", self.link)))


@dataclass(frozen=True)
class Finding:
    """One difference of one case. ``cause`` is the same text for all cases of one cause: what was lost, or the
    diagnosis without what is only this case's. ``before`` and ``after`` are what differs, for people; ``ratio`` is
    after / before where both are numbers, and the first is not 0. ``from_zero`` is the figure that there is now where
    there was none, in its unit; 0 elsewhere. ``minor``: a warning although the kind is a regression, because it is
    small, cost no time, or lost a row that torch has no longer. ``newly_fails``: the case fails by this, and did
    not in the baseline, or not in this way. ``defect`` is the known one by which it fails as an entry expects.
    ``baseline_runs``: in how many runs of the baseline the case shows the same, and how many there are that judged
    it."""

    kind: Kind
    case: str
    kernel: str | None
    target: str | None
    cause: str
    before: str
    after: str
    ratio: float | None = None
    detail: str = ""
    from_zero: float = 0.0
    minor: bool = False
    newly_fails: bool = False
    defect: KnownDefect | None = None
    baseline_runs: tuple[int, int] | None = None

    @property
    def severity(self) -> Severity:
        kinds = SEVERITY[self.kind]
        return Severity.WARNING if self.minor and kinds is Severity.REGRESSION else kinds

    @property
    def cost(self) -> tuple[float, float]:
        """Returns the sort key of findings of one kind, larger first: what grew from zero, then by what factor the
        figure changed, 1 or more; 0 without figures."""
        if self.ratio == 0:
            return 0.0, inf
        return self.from_zero, max(self.ratio, 1 / self.ratio) if self.ratio else 0.0


@dataclass(frozen=True)
class Age:
    """The age of a cause: ``text``, such as "new in 3.8.0". ``releases`` are what the releases of the ``component``
    show, by the cases that were run with them."""

    text: str
    component: str
    releases: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Group:
    """Findings of one kind, cause and severity, the costliest first. ``notes`` say what else came with them: a feature
    in the same cases, or another assembler. ``age`` and ``earlier`` are None where they were not asked for: how old the
    cause is, and whether an earlier answer has it."""

    kind: Kind
    cause: str
    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()
    age: Age | None = None
    earlier: str | None = None

    @property
    def severity(self) -> Severity:
        return self.findings[0].severity if self.findings else SEVERITY[self.kind]

    @property
    def meaning(self) -> str:
        """A sentence for somebody who knows no kind."""
        uncompiled = self.kind is Kind.NEW_FAIL and all(f.after.startswith("compile-error") for f in self.findings)
        return f"A case {'no longer compiles' if uncompiled else MEANING[self.kind]}."


@dataclass(frozen=True)
class Side:
    """One of the two runs. ``name`` is what the user called it; ``problems`` are sentences about unusable lines;
    ``bill`` names all that makes code, empty for a run that did not say it; ``started`` is when the run began, in ISO
    format, empty likewise."""

    name: str
    stack: Mapping[str, Any]
    tier: str | None
    seed: int | None
    cases: int
    statuses: Mapping[str, int]
    problems: tuple[str, ...] = ()
    bill: Mapping[str, str] = field(default_factory=dict)
    started: str = ""


@dataclass(frozen=True)
class Scope:
    """The reach of a comparison. ``cases`` are those of either side; ``refused`` counts by reason those that are not
    applicable on both. Those that were judged on both are counted by what they prove (``levels``) and by target
    (``targets``). ``shapes`` counts them by the class of shapes that their ids name. ``timed`` were timed on both,
    ``other_device`` of these on another device than before."""

    cases: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    levels: Mapping[str, int] = field(default_factory=dict)
    shapes: Mapping[str, int] = field(default_factory=dict)
    targets: Mapping[str, int] = field(default_factory=dict)
    timed: int = 0
    other_device: int = 0

    @property
    def judged(self) -> int:
        return sum(self.levels.values())


@dataclass(frozen=True)
class Narrowing:
    """Says that a comparison is of a part of a tier only. ``options`` are those of the runs that left cases out.
    ``cases`` is how many are compared, ``whole`` how many a whole run has, None if no list of the package says it."""

    options: tuple[str, ...]
    cases: int
    whole: int | None = None


@dataclass(frozen=True)
class OwnThresholds:
    """Thresholds that a third-party kernel has instead of the usual ones. ``by`` is who declared them, ``kinds`` are
    the kinds of findings that have others, ``values`` the others by their names in a comparison's thresholds."""

    by: str
    kinds: tuple[Kind, ...]
    values: Mapping[str, float]


@dataclass(frozen=True)
class BrokenSide:
    """One of the two runs that gives no answer. ``side`` is "baseline" or "candidate", ``faults`` are what made it
    unfinished or broke it, the worst class first, which is ``fault_class``."""

    side: str
    fault_class: FaultClass
    faults: tuple[Fault, ...]


@dataclass(frozen=True)
class Comparison:
    """All that a comparison says. ``groups`` are ranked: by severity, kind, cost and number of cases. ``warnings`` say
    why the two runs are only partly comparable. ``objections`` are what else speaks against the candidate, such as
    waivers that do not hold, claims that are not proven and cases that are owed. ``broken`` are the sides for whose
    runs there is no answer, whatever else was found. ``scripts`` say what became of the scripts that were tried with
    both stacks, and which compiler stages are guilty. ``assemblers`` are what each target was assembled with in the
    baseline and in the candidate, as far as both are known. ``own_thresholds`` are by the names of kernels.
    ``narrowing`` is None for two whole runs. ``history`` are sentences about earlier answers and about further runs of
    the baseline."""

    baseline: Side
    candidate: Side
    groups: tuple[Group, ...]
    compared: int
    unchanged: int
    warnings: tuple[str, ...] = ()
    objections: tuple[str, ...] = ()
    thresholds: Mapping[str, float] = field(default_factory=dict)
    own_thresholds: Mapping[str, OwnThresholds] = field(default_factory=dict)
    scripts: tuple[str, ...] = ()
    assemblers: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    scope: Scope = field(default_factory=Scope)
    narrowing: Narrowing | None = None
    history: tuple[str, ...] = ()
    broken: tuple[BrokenSide, ...] = ()

    @property
    def regressions(self) -> tuple[Group, ...]:
        return tuple(group for group in self.groups if group.severity is Severity.REGRESSION)

    @property
    def newly_failing(self) -> frozenset[str]:
        """The cases that fail and did not in the baseline, or fail in another way than there; also those that waivers
        cover."""
        return frozenset(one.case for group in self.groups for one in group.findings if one.newly_fails)

    @property
    def newly_failing_by_known_defects(self) -> frozenset[str]:
        """Returns the cases of :attr:`newly_failing` that fail as an expected failure says."""
        return frozenset(one.case for group in self.groups for one in group.findings if one.newly_fails and one.defect)

    @property
    def waived(self) -> int:
        """Returns the number of regressions that waivers cover."""
        return sum(len(group.findings) for group in self.groups if group.kind is Kind.WAIVED)

    @property
    def safe(self) -> bool:
        """True if there is an answer, and nothing here speaks against the candidate."""
        return not self.broken and not self.regressions and not self.objections
