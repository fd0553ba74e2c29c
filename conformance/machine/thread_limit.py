"""Tries whether the system lets a run have the threads and processes that it needs: a limit counts both alike."""

from __future__ import annotations

import contextlib
import resource
import threading

#: Threads and processes that a run without workers has been seen to start.
RUN_THREADS = 3
#: Those that each worker adds: its process, the threads in it and those that talk to it.
WORKER_THREADS = 6
#: Bytes of a stack of a thread that does nothing.
_STACK = 1 << 16


def too_few_threads(workers: int) -> str:
    """Returns a sentence if the system refuses the threads and processes that a run with ``workers`` needs; else empty.
    The limit of a user, that of a container and what other processes use all count, so this tries."""
    needed = RUN_THREADS + workers * WORKER_THREADS
    started = _startable(needed)
    if started == needed:
        return ""
    limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    of_user = f", whose limit is {limit} for a user (ulimit -u)" if limit != resource.RLIM_INFINITY else ""
    whose = f"with {workers} workers" if workers > 1 else "of the suites"
    return (
        f"the system refuses more than {started} further threads and processes{of_user}. A run {whose} needs at least "
        f"{needed}: raise 'ulimit -u', or a container's limit of processes, or start fewer workers with -n"
    )


def _startable(count: int) -> int:
    """Returns how many threads can be started and kept, at most ``count``."""
    ends, threads = threading.Event(), []
    stack = threading.stack_size(_STACK)
    try:
        with contextlib.suppress(RuntimeError):
            for _ in range(count):
                thread = threading.Thread(target=ends.wait, name="thread-limit", daemon=True)
                thread.start()
                threads.append(thread)
    finally:
        threading.stack_size(stack)
        ends.set()
        for thread in threads:
            thread.join()
    return len(threads)
