"""Compares the files that a process may open at once with those that a run has been seen to need, and keeps some."""

from __future__ import annotations

import os
import resource

#: Files that are kept for the records: of a case, its artefacts and the faults of its process.
KEPT_FILES = 4
#: Files that a process of a run without workers, or a worker, had open at once: 24 to 29 (``--suite transposition``).
PROCESS_FILES = 30 + KEPT_FILES
#: Files that each worker adds in the process that leads them.
WORKER_FILES = 2


def too_few_files(workers: int) -> str:
    """Returns a sentence if this process may open fewer files than a run with ``workers`` needs; else empty."""
    limit, needed = resource.getrlimit(resource.RLIMIT_NOFILE)[0], PROCESS_FILES + workers * WORKER_FILES
    if limit == resource.RLIM_INFINITY or limit >= needed:
        return ""
    whose = f"with {workers} workers" if workers > 1 else "of the suites"
    return (
        f"a process may open {limit} files at once (ulimit -n). A run {whose} needs at least {needed}: raise the "
        "limit, such as with 'ulimit -n 1024'"
    )


class KeptFiles:
    """Keeps numbers of files, so that records can be written although a case has taken all others. Raises OSError if
    there are none."""

    def __init__(self) -> None:
        self._numbers = [os.open(os.devnull, os.O_RDONLY) for _ in range(KEPT_FILES)]
        self._device = os.fstat(self._numbers[0]).st_rdev

    def needed(self) -> bool:
        """Returns True, and gives the kept numbers back, if this process can open no more files."""
        try:
            os.close(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            while self._numbers:
                self._give_back(self._numbers.pop())
            return True
        return False

    def _give_back(self, number: int) -> None:
        try:
            if os.fstat(number).st_rdev == self._device:  # the case may have closed it, and have opened another
                os.close(number)
        except OSError:
            return
