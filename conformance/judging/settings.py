"""The settings of a run, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from conformance.machine.gpus import Gpus
from conformance.records import KernelDeclarations
from conformance.shards.numbers import ShardNumber
from conformance.user_files.expected_failures import ExpectedFailures


@dataclass(frozen=True)
class Settings:
    """The settings of this run.

    ``targets`` empty means the default; ``run_dir`` None a new folder under reports; ``expected_failure_files`` are as
    they were given. ``reproducers`` is the folder of scripts, ``compiled`` that of kernels from another machine; None
    for neither. ``without_gpu``: the user wants no GPU, and not only that none was found. ``configs`` empty means all;
    ``case_list`` are the ids in the file ``case_file``, None without one. A trial is made ``repeats`` times.
    A failed case is judged ``reruns`` times more. ``calibration`` is the file that says how the device computes; None:
    the package says it.
    ``require`` is the level by which each case must be proven, None for any.
    ``ttgir`` says where the TTGIR of compiled kernels is run: "auto" without a device, "always" or "never".
    ``shard`` is the part of the selected cases that is run, None for all. The cut is by the durations of the run
    ``durations_from``, None for the package's figures. ``resume`` is the folder of a run to go on with.
    ``ray`` is the address of the Ray cluster on which the workers live, None for workers of this machine.
    ``declared`` is what third-party kernels say of themselves, by their names.
    """

    tier: str
    targets: tuple[str, ...]
    kernels: tuple[str, ...]
    suites: tuple[str, ...]
    seed: int
    run_dir: Path | None
    gpus: Gpus
    case: str | None
    case_timeout_s: float
    expected_failure_files: tuple[str, ...]
    expected_failures: ExpectedFailures
    compile_only: bool = False
    reproducers: Path | None = None
    compiled: Path | None = None
    without_gpu: bool = False
    configs: tuple[str, ...] = ()
    case_file: Path | None = None
    case_list: frozenset[str] | None = None
    repeats: int = 1
    reruns: int = 0
    calibration: Path | None = None
    ttgir: str = "auto"
    require: str | None = None
    shard: ShardNumber | None = None
    durations_from: Path | None = None
    resume: Path | None = None
    ray: str | None = None
    declared: Mapping[str, KernelDeclarations] = field(default_factory=dict)

    @property
    def whole_tier(self) -> bool:
        """True if the tier has every case that a scenario names, so that its runs are the ones to keep figures of."""
        return self.tier in ("full", "exhaustive")

    @property
    def interprets(self) -> bool:
        """True if the interpreter runs the cases."""
        return not self.has_gpu and not self.compile_only

    @property
    def executes(self) -> bool:
        """True if the TTGIR of compiled kernels is run."""
        return not self.compile_only and (self.ttgir == "always" or (self.ttgir == "auto" and not self.has_gpu))

    @property
    def explains(self) -> bool:
        """True if the TTGIR of a kernel that was wrong on a device is run, to tell where the fault arises."""
        return self.has_gpu and not self.compile_only and self.ttgir != "never"

    @property
    def has_gpu(self) -> bool:
        return bool(self.gpus.entries)
