"""Each check of a watched launch has one that fails it: a wrong kernel, or a fault planted in a compiler stage."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from conformance import targets
from conformance.records import CaseRecord, read_records
from conformance.watching.device_memory import DeviceMemory
from conformance.watching.launch_judge import LaunchJudge
from conformance.watching.run_records import WatchRecords
from conformance.watching.settings import WatchSettings
from conformance.watching.triton_driver import StandInDriver, driving
from tests.watching import user_suite

Edit = Callable[[str], str]


class Edited:
    """A module of a compiler stage whose file has another text; the next stage takes the module as it was."""

    def __init__(self, module: Any, text: str) -> None:
        self.module, self.text = module, text

    def __str__(self) -> str:
        return self.text


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str, Edit], None]:
    """Returns a function that plants an edit in the text of a compiler stage."""
    from triton.backends import backends

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))

    def plant(stage: str, edit: Edit) -> None:
        for backend in {each.compiler for each in backends.values()}:
            monkeypatch.setattr(backend, "add_stages", _with_edit(backend.add_stages, stage, edit))

    return plant


def _with_edit(add_stages: Any, stage: str, edit: Edit) -> Any:
    def changed(backend: Any, stages: dict[str, Any], *rest: Any) -> None:
        add_stages(backend, stages, *rest)
        for name, make in list(stages.items()):

            def made(module: Any, metadata: Any, name: str = name, make: Any = make) -> Any:
                result = make(module.module if isinstance(module, Edited) else module, metadata)
                if name != stage:
                    return result
                text = edit(str(result))
                assert text != str(result)
                return text if isinstance(result, str) else Edited(result, text)

            stages[name] = made

    return changed


def launched(
    folder: Path, target: str, kernel: Any, grid: tuple[int, ...], *arguments: Any, **words: Any
) -> CaseRecord:
    """Returns the record of a launch that is taken here."""
    chosen, memory = targets.find(target), DeviceMemory()
    (folder / "run").mkdir(parents=True)
    records = WatchRecords(folder / "run", "main", chosen.id, {})
    judge = LaunchJudge(WatchSettings(target, str(folder / "run")), chosen, memory, records)
    for value in arguments:
        if isinstance(value, torch.Tensor):
            memory.mark(value)
    with driving(StandInDriver(chosen, judge.take), "first"):
        try:
            kernel[grid](*arguments, **words)
        finally:
            kernel.device_caches.clear()
            gc.collect()  # a compiled kernel asks the driver when it ends
            records.close()
    (record,) = read_records(folder / "run").records
    return record


def product_of(folder: Path, target: str, block: int = 32, **options: Any) -> CaseRecord:
    """Returns the record of a product of fp16."""
    k = 6 * block
    a, b = torch.randn(block, k).half(), torch.randn(k, block).half()
    c = torch.zeros(block, block)
    return launched(folder, target, user_suite.product, (1,), a, b, c, k, BLOCK=block, **options)


def sum_of(folder: Path, target: str) -> CaseRecord:
    return launched(folder, target, user_suite.sums_all_lanes, (1,), torch.randn(100), torch.zeros(1), 100, BLOCK=128)


def replaced(pattern: str, by: str) -> Edit:
    return lambda text: re.sub(pattern, by, text)


#: Launches that are right, by name.
LAUNCHES: dict[str, Callable[[Path], CaseRecord]] = {
    "product on sm_80": lambda folder: product_of(folder, "sm_80"),
    "product on sm_90": lambda folder: product_of(folder, "sm_90", 64),
    "product on gfx942": lambda folder: product_of(folder, "gfx942"),
    "sum on sm_90": lambda folder: sum_of(folder, "sm_90"),
}
#: By check: the launch, the stage in which a fault is planted, the fault, and words of the failing verdict.
FAULTS: dict[str, tuple[str, str, Edit, str]] = {
    "executed/ttgir": (
        *("product on sm_80", "ttgir", replaced(r"(async_wait [^{]*)\{num = \d+", r"\1{num = 9")),
        "which async_copy_global_to_local (user_suite.py:57) may still be writing",
    ),
    "executed/layouts": (
        *("product on sm_80", "ttgir", replaced(r"(opIdx = 1, parent = #mma, kWidth = )2", r"\g<1>4")),
        "A has kWidth 2 and B 4",
    ),
    "codegen/repeated-k": (
        *("product on sm_80", "ttgir", replaced(r"kWidth = 2", "kWidth = 16")),
        "multiplies tiles of 16 k in a layout of kWidth 16",
    ),
    "codegen/operand-slots": (
        *("product on sm_90", "ttgir", replaced(r"memdesc<3x", "memdesc<1x")),
        "in shared memory (ttgir): its loop copies the next tile into a slot before wgmma has read it",
    ),
    "codegen/order/fence": (
        *("product on sm_90", "ptx", replaced(r"fence\.proxy\.async\S*;", "")),
        "no fence.proxy.async stands between",
    ),
    "codegen/order/wait": (
        *("product on sm_90", "ptx", replaced(r"wgmma\.wait_group\S* \d;", "")),
        "its loop never waits for it",
    ),
    "codegen/order/lds": (
        *("product on gfx942", "amdgcn", replaced(r"s_waitcnt lgkmcnt\(0\)", "")),
        "nothing waits for it before the barrier",
    ),
    "undefined-lanes": (
        *("sum on sm_90", "llir", replaced(r"mov\.u32 \$0, 0x0;", "mov.u32 $0, 0x1;")),
        "the code gives no known value to user_suite.py",
    ),
}


@pytest.mark.parametrize("name", LAUNCHES)
def test_code_without_a_fault_passes(tmp_path: Path, name: str) -> None:
    record = LAUNCHES[name](tmp_path)
    assert record.status.value == "pass", record.failing


@pytest.mark.parametrize("check", FAULTS)
def test_a_fault_of_the_compiler_fails_the_launch(
    planted: Callable[[str, Edit], None], tmp_path: Path, check: str
) -> None:
    launch, stage, edit, words = FAULTS[check]
    planted(stage, edit)
    record = LAUNCHES[launch](tmp_path)
    assert record.status.value == "fail"
    assert words in dict(record.failing)[check]


def test_a_block_with_too_many_registers_fails(tmp_path: Path) -> None:
    record = product_of(tmp_path, "sm_80", 128, num_warps=32, maxnreg=128)
    (text,) = dict(record.failing).values()
    assert re.search(r"for each of 1024 threads take \d+ of the 65536 that sm_80 has per block", text)


def test_each_check_of_the_guide_has_a_launch_that_fails_it() -> None:
    table = (Path(__file__).parents[2] / "docs/watch.md").read_text().partition("| check |")[2].partition("\n\n")[0]
    checks = {name for row in table.splitlines() for name in re.findall(r"`([a-z/.-]+)`", row.split(" | ")[0])}
    assert "memory/bounds" in checks
    others = {"memory/bounds", "races", "resources"}  # of test_watched_run, and above
    tested = {re.sub("codegen/order/.*", "codegen/order/...", check) for check in {*FAULTS, *others}}
    assert checks == tested
