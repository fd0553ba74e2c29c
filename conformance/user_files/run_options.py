"""The options of a run, each declared once: for pytest's command line, and for what they do to evidence.

A new option of this harness is an entry of :data:`OPTIONS`. The plugin adds it to pytest, and the evidence takes or
refuses the runs that were given it, by its ``effect``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

TIERS = ("quick", "default", "full", "exhaustive")  # quick and default are samples of full
TTGIR = ("auto", "always", "never")
REQUIRE = ("device", "executed", "interpreted")
DEFAULT_SEED = 0
DEFAULT_CASE_TIMEOUT_S = 300.0
DEFAULT_RERUNS = 2
#: An environment variable that the gate sets: that a stack has lost a kernel is a finding, and no mistake of the user.
KERNELS_MAY_BE_LOST = "CONFORMANCE_KERNELS_MAY_BE_LOST"
#: What ``conformance list`` says if there is none.
NO_CASE = "no case matches these filters"
#: What to do if the quick tier has none on the targets that were asked for.
ON_EACH_TARGET = "the quick tier has each row on one target, and --tier default on each"


class Effect(Enum):
    """The effect of an option on a run as evidence."""

    WHOLE = "the run has every case of its tier and its targets"
    NARROWS = "the run leaves cases out, or ends early"
    REFUSED = "no run with this option is evidence"


@dataclass(frozen=True, kw_only=True)
class RunOption:
    """One option. ``attributes`` are those of argparse. ``has_short_name``: it is also known without ``conformance-``
    where the suites are selected."""

    name: str
    effect: Effect
    attributes: Mapping[str, Any] = field(default_factory=dict)
    has_short_name: bool = True

    @property
    def long(self) -> str:
        """Returns the spelling that always works."""
        return f"--conformance-{self.name}"

    @property
    def short(self) -> str | None:
        """Returns the spelling where the suites are selected; None if there is none."""
        return f"--{self.name}" if self.has_short_name else None

    @property
    def dest(self) -> str:
        """The attribute of pytest's options that holds its value."""
        return "conformance_" + self.name.replace("-", "_")

    @property
    def is_flag(self) -> bool:
        """True if it is given without a value."""
        return self.attributes.get("action") == "store_true"


def _option(name: str, effect: Effect, text: str, *, has_short_name: bool = True, **attributes: Any) -> RunOption:
    """The option whose help is ``text``."""
    return RunOption(name=name, effect=effect, attributes={"help": text, **attributes}, has_short_name=has_short_name)


_REPEATABLE: dict[str, Any] = {"action": "append", "metavar": "NAME"}
OPTIONS = (
    _option(
        "tier",
        Effect.WHOLE,
        f"how much to run: {', '.join(TIERS)} (default: 'default' with a GPU, else 'quick')",
        metavar="TIER",
    ),
    _option(
        "target",
        Effect.WHOLE,  # a mustpass list is for the targets that were asked for
        "target to judge, repeatable (default: the device if there is one, else the compile-only targets)",
        action="append",
        metavar="SPEC",
    ),
    _option("kernel", Effect.NARROWS, "only the cases of this kernel, repeatable", **_REPEATABLE),
    _option("suite", Effect.NARROWS, "only this suite (such as scaling), repeatable", **_REPEATABLE),
    _option(
        "config", Effect.NARROWS, "only the cases of this config (such as 128x128x32-s4-w4), repeatable", **_REPEATABLE
    ),
    _option("cases", Effect.NARROWS, "run the cases whose ids this file lists, one a line", metavar="FILE"),
    _option(
        "case",
        Effect.NARROWS,
        "run the one case of this id (see a record or 'list')",
        has_short_name=False,
        metavar="ID",
    ),
    _option(
        "repeats",
        Effect.WHOLE,
        "judge each launch N times in its case, which passes if all agree: for what comes and goes (default: 1)",
        type=int,
        metavar="N",
    ),
    _option(
        "reruns",
        Effect.WHOLE,
        f"judge a failed case N times more, each in a fresh process; 0 for never (default: {DEFAULT_RERUNS})",
        has_short_name=False,  # pytest-rerunfailures has an option of this name
        type=int,
        metavar="N",
    ),
    _option("seed", Effect.WHOLE, f"seed of every fill (default: {DEFAULT_SEED})", type=int, metavar="N"),
    _option(
        "shard",
        Effect.NARROWS,
        "run one part of the selected cases, such as 3/8; auto: the one that the CI or batch system names",
        metavar="K/N",
    ),
    _option(
        "durations-from",
        Effect.WHOLE,
        "cut shards by the durations of this earlier run, or of a file that 'conformance durations' wrote",
        metavar="RUN",
    ),
    _option("run-dir", Effect.WHOLE, "new folder for this run's records (default: reports/<run id>)", metavar="DIR"),
    _option(
        "resume",
        Effect.WHOLE,
        "go on with the run in this folder, which ended early: judge the cases that have no record yet",
        metavar="DIR",
    ),
    _option(
        "ray",
        Effect.WHOLE,
        "run the cases on a Ray cluster, one worker for each GPU or core: auto for that of this machine",
        metavar="ADDRESS",
    ),
    _option(
        "device-class",
        Effect.WHOLE,
        "with --ray: use the nodes whose GPUs have this name, such as 'NVIDIA H100 80GB HBM3'",
        metavar="NAME",
    ),
    _option("gpus", Effect.WHOLE, "number of GPUs to use (default: all that are visible)", type=int, metavar="N"),
    _option("no-gpu", Effect.WHOLE, "use no GPU: interpreter and cross-compilation only", action="store_true"),
    _option(
        "compile-only",
        Effect.WHOLE,
        "compile and check the code, run nothing: every case that compiles ends as not-run",
        action="store_true",
    ),
    _option(
        "ttgir",
        Effect.WHOLE,
        "run the TTGIR of compiled kernels on the CPU: auto (default: where there is no GPU), always or never",
        choices=TTGIR,
    ),
    _option(
        "require",
        Effect.WHOLE,
        "fail the run if a case is proven by less, though more is possible: device, executed (its TTGIR, or a device) "
        "or interpreted (or more)",
        choices=REQUIRE,
    ),
    _option(
        "case-timeout",
        Effect.WHOLE,
        f"deadline of one case (default: {DEFAULT_CASE_TIMEOUT_S:g})",
        type=float,
        metavar="SECONDS",
    ),
    _option(
        "expected-failures",
        Effect.REFUSED,  # the file decides which failures count, and is not part of the bundle
        "expected failures (TOML) in addition to the built-in ones, repeatable",
        action="append",
        metavar="FILE",
    ),
    _option(
        "calibration",
        Effect.REFUSED,  # the file decides the contracts, and is not part of the bundle
        "take what 'conformance calibrate --output FILE' measured on a device of this class as its arithmetic",
        metavar="FILE",
    ),
    _option(
        "compiled",
        Effect.REFUSED,  # a verifier cannot check where the kernels were compiled
        "use the kernels that 'conformance precompile' left in this folder, and compile none",
        metavar="DIR",
    ),
    _option(
        "reproducers",
        Effect.WHOLE,
        "write a script that needs torch and triton only for each kernel case that fails, into this folder",
        metavar="DIR",
    ),
)

#: Options whose value is a path, as words of the command line.
_PATHS = {
    word
    for option in OPTIONS
    if option.attributes.get("metavar") in ("DIR", "FILE", "RUN", "ADDRESS")
    for word in (option.long, option.short)
}


def joined(words: Sequence[str]) -> list[str]:
    """``words`` of a command line with ``--run-dir=DIR`` for ``--run-dir DIR``, and other options with a path likewise.

    pytest reads its command line before it knows the options of plugins. It takes a path that stands alone and exists
    for a place of tests, and looks there for everything else.

    >>> joined(["--run-dir", "reports/a", "-k", "mm"])
    ['--run-dir=reports/a', '-k', 'mm']
    """
    result: list[str] = []
    for word in words:
        if result and result[-1] in _PATHS:
            result[-1] += f"={word}"
        else:
            result.append(word)
    return result


def without_option(name: str, words: Sequence[str]) -> list[str]:
    """Returns the ``words`` of a command line without the option ``name``, whose value is a path.

    >>> without_option("resume", ["--resume", "reports/a", "-k", "mm"])
    ['-k', 'mm']
    """
    spellings = tuple(f"{word}=" for option in OPTIONS if option.name == name for word in (option.long, option.short))
    return [word for word in joined(words) if not word.startswith(spellings)]
