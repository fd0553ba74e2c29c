"""Descendants of a process are known and ended, wherever their parents have gone."""

from __future__ import annotations

import functools
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from conformance.machine.descendants import adopted, descendants, end_descendants

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def alone(test: Callable[[], None]) -> Callable[[], None]:
    """Runs ``test`` in a fork. This process may have a compile server, whose assemblers are its descendants, too."""

    @functools.wraps(test)
    def in_a_fork() -> None:
        fork = multiprocessing.get_context("fork").Process(target=test)
        fork.start()
        fork.join()
        assert fork.exitcode == 0, "see the captured stderr"

    return in_a_fork


def started(seconds: str, shell: str = "sleep {}") -> int:
    """The number of a process that sleeps, whose parent may have ended."""
    command = ["sh", "-c", f"{shell.format(seconds)} & echo $!"]
    return int(subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout)


@alone
def test_orphans_are_adopted_and_all_but_the_spared_are_ended() -> None:
    with adopted():
        before = descendants()
        spared = subprocess.Popen(["sleep", "600"])
        try:
            orphan = started("601 >&-", "exec sleep {}")
            leader = started("602 >&-", "exec setsid sleep {}")
            assert {orphan, leader, spared.pid} <= descendants() - before
            ended = end_descendants(before | {spared.pid})
            assert sorted(ended) == sorted([f"sleep 601 (process {orphan})", f"sleep 602 (process {leader})"])
            assert {orphan, leader, spared.pid} & descendants() == {spared.pid}
        finally:
            spared.kill()
            spared.wait()


@alone
def test_what_ends_by_itself_is_not_named() -> None:
    before = descendants()
    with subprocess.Popen(["sleep", "0.1"]):
        assert end_descendants(before) == []


@alone
def test_helpers_that_end_with_their_user_are_left_to_it() -> None:
    before = descendants()
    with subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)  # multiprocessing.resource_tracker"]
    ) as one:
        try:
            assert end_descendants(before) == []
            assert one.poll() is None
        finally:
            one.kill()


@alone
def test_adoption_ends_with_its_block() -> None:
    with adopted():
        pass
    orphan = started("603 >&-", "exec sleep {}")
    try:
        assert orphan not in descendants()
    finally:
        os.kill(orphan, 9)
