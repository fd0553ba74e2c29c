"""The server of the workers imports Inductor only for cases that surely run its code on a device."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from conformance.plugin import _surely_needs_inductor
from conformance.plugin.worker_imports import INDUCTOR_IMPORT, WorkerImports


def surely(
    suites: tuple[str, ...] = (), *, has_gpu: bool = True, kernels: tuple[str, ...] = (), **options: Any
) -> bool:
    names = ("conformance_case", "conformance_cases", "conformance_config", "keyword", "markexpr", "deselect")
    chosen = {**dict.fromkeys(names), "conformance_suite": suites, **options}
    arguments = chosen.pop("arguments", ["conformance/suites"])
    config: Any = SimpleNamespace(args=arguments, option=SimpleNamespace(**chosen))
    settings: Any = SimpleNamespace(suites=suites, has_gpu=has_gpu, kernels=kernels)
    return _surely_needs_inductor(config, settings)


def test_inductor_is_imported_for_all_suites_and_for_its_own() -> None:
    assert surely()
    assert surely(("batching", "inductor_gemm"))


@pytest.mark.parametrize(
    "chosen",
    [
        {"suites": ("batching",)},
        {"has_gpu": False},
        {"kernels": ("mm",)},
        {"keyword": "batching"},
        {"markexpr": "timed"},
        {"deselect": ["inductor"]},
        {"conformance_case": "test_batching.py::test_batch[a]"},
        {"conformance_cases": "ids.txt"},
        {"conformance_config": ["64x64x32-s2-w4"]},
        {"arguments": ["conformance/suites/test_batching.py"]},
    ],
    ids=str,
)
def test_inductor_is_not_imported_where_it_may_be_for_nothing(chosen: dict[str, Any]) -> None:
    assert not surely(**chosen)


def test_the_modules_are_part_of_how_a_worker_is_started() -> None:
    assert WorkerImports([INDUCTOR_IMPORT]).specification.endswith(f"worker_launcher.py {INDUCTOR_IMPORT}")
    assert INDUCTOR_IMPORT not in WorkerImports().specification
