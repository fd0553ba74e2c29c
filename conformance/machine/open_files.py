"""Compares the files that a process may open at once with those that a run has been seen to need."""

from __future__ import annotations

import resource

#: Files that a process of a run without workers, or a worker, had open at once: 24 to 29 (``--suite transposition``).
PROCESS_FILES = 30
#: Files that each worker adds in the process that leads them.
WORKER_FILES = 2


def too_few_files(workers: int) -> str:
    """Returns a sentence if this process may open fewer files than a run with ``workers`` needs; else empty."""
    limit, needed = resource.getrlimit(resource.RLIMIT_NOFILE)[0], PROCESS_FILES + workers * WORKER_FILES
    if limit == resource.RLIM_INFINITY or limit >= needed:
        return ""
    whose = f"with {workers} workers" if workers > 1 else "of the suites"
    return (
        f"a process may open {limit} files at once (ulimit -n), and a run {whose} needs at least {needed}: raise the "
        "limit, for example with 'ulimit -n 1024', and run again"
    )
