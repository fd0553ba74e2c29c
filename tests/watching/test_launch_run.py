"""A launch is judged by its TTGIR: text from which a wait is removed gives other results, and a store is checked."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from conformance.kernels.launch import Launch
from conformance.records import CaseRecord
from conformance.ttgir.arithmetic import UnknownOperation
from conformance.watching.launch_memory import Observations, WatchedMemory
from conformance.watching.launch_run import LaunchRunner
from tests.watching.test_watched_run import launch_of

Watched = tuple[int, dict[str, CaseRecord]]

pytestmark = pytest.mark.long(15)  # the first of them watches the whole suite


@pytest.fixture(scope="module")
def product(whole_suite: Watched, watched_folder: Path) -> str:
    """Returns the TTGIR of the user's product."""
    path = watched_folder / "run" / launch_of(whole_suite[1], "test_product").artefacts["ttgir"]
    return path.read_text()


def judged(ttgir: str, seconds: float = 60) -> dict[str, Any]:
    """Returns the verdicts of a launch of the product by check."""
    a, b = torch.randn(32, 96).half(), torch.randn(96, 32).half()
    parameters = [
        SimpleNamespace(name=name, has_default=False, default=None)
        for name in ("a_ptr", "b_ptr", "c_ptr", "K", "BLOCK")
    ]
    function = SimpleNamespace(fn=SimpleNamespace(__name__="product"), params=parameters)
    arguments = {"a_ptr": a, "b_ptr": b, "c_ptr": torch.zeros(32, 32), "K": 96, "BLOCK": 32}
    launch = Launch(function, (1, 1, 1), arguments)
    runner = LaunchRunner(launch, ttgir, "", elsewhere=lambda address: None, programs=1, seconds=seconds)
    return {verdict.check: verdict for verdict in runner.run().verdicts}


def test_a_missing_wait_is_a_fault(product: str) -> None:
    assert judged(product)["executed/ttgir"].passed
    without = re.sub(r"(ttg\.async_wait [^{]*)\{num = \d+ : i32\}", r"\1{num = 9 : i32}", product)
    assert without != product
    verdict = judged(without)["executed/ttgir"]
    assert not verdict.passed
    assert "order" in verdict.text


def test_a_launch_ends_at_its_time(product: str) -> None:
    with pytest.raises(UnknownOperation, match="the time for one launch has passed"):
        judged(product, seconds=0)


def stored_by_two(atomically: bool) -> Observations:
    """Returns what is seen of two programs that change one element, between atomic operations on another or not."""
    data, lock, seen = torch.zeros(4, dtype=torch.int32), torch.zeros(1, dtype=torch.int32), Observations()
    memory = WatchedMemory([data, lock], {data.data_ptr(): ("data", 4), lock.data_ptr(): ("lock", 4)}, seen)
    for program in range(2):
        memory.begin_program((program, 0, 0))
        memory.at_line("store (a.py:1)")
        if atomically:
            with memory.atomic(np.array([lock.data_ptr()])):
                memory.load(np.array([lock.data_ptr()]), None, None, "i32")
        memory.store(np.array([data.data_ptr()]), np.array([program + 1]), None, "i32")
        if atomically:
            with memory.atomic(np.array([lock.data_ptr()])):
                memory.store(np.array([lock.data_ptr()]), np.array([program]), None, "i32")
    assert data[0] == 2
    return seen


def test_atomic_operations_order_programs() -> None:
    assert stored_by_two(atomically=True).races == {}
    (race,) = stored_by_two(atomically=False).races.values()
    assert "program (1, 0, 0) changes element 0 of 'data', which program (0, 0, 0) changed" in race


def test_one_store_of_two_values_to_an_element_is_a_race() -> None:
    data, seen = torch.zeros(4, dtype=torch.int32), Observations()
    memory = WatchedMemory([data], {data.data_ptr(): ("data", 4)}, seen)
    memory.begin_program((0, 0, 0))
    memory.at_line("store (a.py:1)")
    memory.store(np.full(2, data.data_ptr()), np.array([1, 1]), None, "i32")
    assert seen.races == {}
    memory.store(np.full(2, data.data_ptr()), np.array([1, 2]), None, "i32")
    assert "stores different values to element 0 of 'data' at once" in seen.races["store (a.py:1)"]


def test_an_address_from_a_table_is_found() -> None:
    data, other, seen = torch.zeros(4, dtype=torch.int32), torch.arange(4, dtype=torch.int32), Observations()
    span = (other.data_ptr(), 16)
    memory = WatchedMemory([data], {}, seen, elsewhere=lambda address: span if span[0] <= address < sum(span) else None)
    memory.begin_program((0, 0, 0))
    memory.at_line("load (a.py:1)")
    loaded = memory.load(np.array([other.data_ptr() + 8, other.data_ptr() + 12]), None, None, "i32")
    assert loaded.tolist() == [2, 3]
    assert seen.strays == {}
    assert memory.load(np.array([other.data_ptr() + 16]), None, None, "i32").tolist() == [0]
    assert "reads 1 elements out of bounds" in seen.strays["load (a.py:1)"]
