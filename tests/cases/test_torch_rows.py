"""A row that stands in the installed torch's tables alone becomes cases of the sweep, and moves no other case."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from conformance.cases import config_space
from conformance.cases.case_table import Selection, cases_of
from conformance.heuristics.configs import Config, TemplateConfig
from conformance.inductor.tables import live
from conformance.inductor.tables.live import Device
from conformance.kernels.catalogue import get
from conformance.targets import find

HOPPER, BLACKWELL = find("sm_90"), find("sm_100")
COLUMNS = ["block_m", "block_n", "block_k", "num_stages", "num_warps"]
KNOWN, NEW, NEW_ENUMERATED = (64, 64, 32, 2, 4), (64, 256, 32, 6, 4), (16, 48, 16, 1, 1)
DEVICES = {
    "cuda": Device(
        {
            "mm_configs": {"columns": COLUMNS, "rows": [[*KNOWN], [*NEW]]},
            "exhaustive_configs": {"columns": COLUMNS, "rows": [[*KNOWN], [*NEW_ENUMERATED]]},
            "blackwell_persistent_mm_configs": {
                "columns": [*COLUMNS, "epilogue_subtile", "flatten"],
                "rows": [[128, 128, 64, 3, 8, subtile, True] for subtile in (1, 2)],
            },
        }
    )
}


TORCH_ROWS = config_space.torch_rows


@pytest.fixture
def with_torch(monkeypatch):
    """Gives the sweep what was read of torch, in place of the installed one's tables."""

    def give(devices: dict[str, Device]) -> None:
        monkeypatch.setattr(config_space, "torch_rows", TORCH_ROWS)
        monkeypatch.setattr(config_space, "_devices", lambda: devices)
        TORCH_ROWS.cache_clear()

    yield give
    TORCH_ROWS.cache_clear()


def ids(tier: str, kernel: str = "mm", target: Any = HOPPER) -> set[str]:
    suite = importlib.import_module("conformance.suites.test_config_space")
    arguments = ("kernel", "target", "dtype", "config", "shape")
    return set(cases_of(suite.test_config_space).table(Selection((target,), tier, (kernel,)), arguments).rows)


@pytest.mark.parametrize("tier", ["default", "full"])
def test_a_row_of_torch_alone_becomes_cases(with_torch, tier):
    before = ids(tier)
    with_torch(DEVICES)
    after = ids(tier)
    assert before < after, "no other case moves"
    assert all("64x256x32-s6-w4" in case for case in after - before)
    unrolled = {"fp32"} if tier == "full" else set()  # this tile takes long to compile in fp32
    assert {case.split("-")[1] for case in after - before} == {"bf16", "fp16", "tf32"} | unrolled


def test_the_quick_tier_has_none(with_torch):
    before = ids("quick")
    with_torch(DEVICES)
    assert ids("quick") == before


def test_enumerated_rows_belong_to_the_exhaustive_tier(with_torch):
    with_torch(DEVICES)
    rows = {tier: set(config_space.torch_rows(get("mm"), HOPPER, tier)) for tier in ("quick", "full", "exhaustive")}
    assert rows == {
        "quick": set(),
        "full": {Config(*NEW)},
        "exhaustive": {Config(*NEW), Config(*NEW_ENUMERATED)},
    }


def test_rows_of_a_blackwell_kernel_keep_their_subtiles(with_torch):
    with_torch(DEVICES)
    rows = config_space.torch_rows(get("mm_blackwell_ws"), BLACKWELL, "full")
    assert list(rows) == [TemplateConfig(128, 128, 64, 3, 8, epilogue_subtile=subtile) for subtile in (1, 2)]
    assert {"128x128x64-s3-w8-sub1-flat", "128x128x64-s3-w8-sub2-flat"} <= {
        case.split("-", 2)[2].partition("-shape")[0] for case in ids("full", "mm_blackwell_ws", BLACKWELL)
    }


def test_a_row_says_where_it_stands(with_torch):
    with_torch(DEVICES)
    row = config_space.torch_row(get("mm"), HOPPER, Config(*NEW), "full")
    assert row == "cuda mm_configs: 64x256x32-s6-w4"
    assert config_space.torch_row(get("mm"), HOPPER, Config(*KNOWN), "full") is None


def test_tables_that_cannot_be_read_are_told(monkeypatch):
    def unread() -> None:
        raise live.TablesUnread("torch moved them")

    monkeypatch.setattr(live, "installed", unread)
    config_space._devices.cache_clear()
    with pytest.warns(UserWarning, match="not swept: torch moved them"):
        assert config_space._devices() == {}
    config_space._devices.cache_clear()


def test_every_table_of_the_map_belongs_to_a_kernel():
    from conformance.kernels.catalogue import own_kernels

    patterns = config_space.torch_tables(own_kernels().values())
    listed = {pattern for table in live.LISTED.values() for pattern in table}
    assert listed - {"persistent_mm_configs"} <= patterns
