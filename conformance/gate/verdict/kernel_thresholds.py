"""The thresholds of each kernel: the usual ones, those that a third-party kernel declares, those of the user's file.

A later one of these moves an earlier one, key by key, so that the user of the gate has the last word. What a kernel
declares counts for its own findings. It is read from the candidate's run, which recorded it: the kernel need not be
installed where two runs are compared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from conformance.records import RUN_FILE, KernelDeclarations, RunInfo
from conformance.user_files.findings import OwnThresholds
from conformance.user_files.threshold_file import checked
from conformance.user_files.thresholds import DEFAULT, FIELDS, Tables, Thresholds, moved
from conformance.user_files.toml_entries import EntryError


class KernelThresholds:
    """The thresholds of each kernel of a comparison. ``file`` is what the user's file says."""

    def __init__(self, file: Tables, baseline: RunInfo | None, candidate: RunInfo | None) -> None:
        self.usual = moved(DEFAULT, file)
        self._before: Mapping[str, KernelDeclarations] = baseline.declared if baseline else {}
        self._now: Mapping[str, KernelDeclarations] = candidate.declared if candidate else {}
        self._own: dict[str, Thresholds] = {}
        self._unusable: dict[str, str] = {}
        for kernel, declared in self._now.items():
            try:
                tables = checked(declared.thresholds, f"{RUN_FILE}: the thresholds of {kernel}")
                self._own[kernel] = moved(moved(DEFAULT, tables), file)
            except EntryError as error:
                self._unusable[kernel] = f"{error}; the usual ones apply"

    def of(self, kernel: str | None) -> Thresholds:
        """Returns the thresholds of findings about ``kernel``."""
        return self._own.get(kernel or "", self.usual)

    def others(self, kernels: Collection[str]) -> dict[str, OwnThresholds]:
        """Returns the thresholds that differ from the usual ones, for each of ``kernels`` that has some."""
        usual, others = self.usual.named(), {}
        for kernel in sorted(self._own.keys() & set(kernels)):
            own = self._own[kernel]
            values = {name: value for name, value in own.named().items() if value != usual[name]}
            kinds = [kind for kind, field in FIELDS.items() if getattr(own, field) != getattr(self.usual, field)]
            if kinds:
                others[kernel] = OwnThresholds(self._now[kernel].by, tuple(kinds), values)
        return others

    def warnings(self, kernels: Collection[str]) -> Iterator[str]:
        """Sentences about the thresholds of ``kernels`` that cannot be used, or that were others in the baseline."""
        for kernel in sorted(kernels):
            if kernel in self._unusable:
                yield self._unusable[kernel]
            elif _tables(self._before, kernel) != _tables(self._now, kernel):
                what = "other thresholds" if _tables(self._before, kernel) else "no thresholds of its own"
                yield f"in the baseline's run {kernel} declared {what}: those of the candidate's run apply"


def _tables(declared: Mapping[str, KernelDeclarations], kernel: str) -> Tables:
    return declared[kernel].thresholds if kernel in declared else {}
