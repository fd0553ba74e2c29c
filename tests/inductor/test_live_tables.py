"""Torch's own config tables are read, told and swept; what cannot be read fails."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from dataclasses import dataclass, field
from typing import Any

import pytest

from conformance.execution.compile.compilation import CompilePool, Task
from conformance.heuristics.configs import Config, FlexBackwardConfig, FlexConfig, FlexDecodeConfig, TemplateConfig
from conformance.heuristics.device_class import DeviceClass
from conformance.heuristics.lookup import CUDA
from conformance.inductor.tables import live, read
from conformance.inductor.tables.live import Device
from conformance.inductor.topics import live_tables as checks
from conformance.records import Status
from conformance.targets import Target, find
from tests.inductor.sample_programs import product


@dataclass
class Gemm:
    block_m: int
    block_n: int
    block_k: int
    num_stages: int
    num_warps: int
    group_m: int = field(default=8, kw_only=True)


@dataclass
class Flex:
    block_m: int
    block_n: int
    num_stages: int
    num_warps: int


class Heuristics:
    """As torch's: its instances hold tables, numbers and mappings of defaults."""

    def __init__(self) -> None:
        self.mm_configs = [Gemm(32, 32, 16, 1, 2), Gemm(128, 128, 64, 3, 4, group_m=4)]
        self.extra_mm_configs = [Gemm(16, 16, 16, 1, 1)]
        self.default_flex_config = {("torch.float16", 64): Flex(128, 64, 3, 4), "arch": {8: Flex(64, 64, 3, 4)}}
        self.should_scale_configs = True


class Extra(Heuristics):
    def __init__(self) -> None:
        super().__init__()
        self.mm_configs = self.extra_mm_configs


class Own(Heuristics):
    def __init__(self) -> None:
        super().__init__()
        self.mm_configs = [*self.mm_configs, *self.extra_mm_configs]
        self.should_scale_configs = False


class Odd(Heuristics):
    def __init__(self) -> None:
        super().__init__()
        self.odd_configs = ["128x128"]


class Raising(Heuristics):
    def __init__(self) -> None:
        raise RuntimeError("no driver")


REGISTRY: dict[tuple[str | None, ...], Any] = {
    ("triton::mm", "cuda", None): Heuristics,
    ("triton::mm", "cuda", "mm-ah"): Extra,
    ("triton::tma", "cuda", "addmm"): Own,
    ("triton::mm", "xpu", None): Own,
    ("aten::mm", "cuda", None): int,
}


def device(registry: Any = REGISTRY, heuristics: type = Heuristics) -> Device:
    return Device(**read.read_device(heuristics, registry, "cuda", {}))


# --- reading ----------------------------------------------------------------------------------------------------------


def test_tables_of_a_device():
    one = device()
    assert [live.row_text(row) for row in one.rows("mm_configs")] == ["32x32x16-s1-w2", "128x128x64-s3-w4-g4"]
    assert [live.row_text(row) for row in one.rows("default_flex_config")] == [
        "float16/64=128x64-s3-w4",
        "arch/8=64x64-s3-w4",
    ]
    assert one.settings == {"should_scale_configs": 1}
    assert one.templates == {
        "triton::mm": {},
        "triton::mm/mm-ah": {"mm_configs": "extra_mm_configs"},
        "triton::tma/addmm": {"mm_configs": "triton::tma/addmm.mm_configs", "should_scale_configs": 0},
        "aten::mm": {},
    }
    assert len(list(one.rows("triton::tma/addmm.mm_configs"))) == 3
    assert one.missing == one.unreadable == {}


def test_no_registry_is_missing():
    assert "no registry" in device(None).missing["templates"]
    assert device(None).templates == {}


@pytest.mark.parametrize(
    ("registry", "heuristics", "name", "why"),
    [
        ({}, Odd, "Odd.odd_configs", "'128x128' is no dataclass"),
        ({("triton::mm", "cuda", None): Odd}, Heuristics, "triton::mm.odd_configs", "'128x128' is no dataclass"),
        ({("triton::mm", "cuda", None): Raising}, Heuristics, "triton::mm", "RuntimeError: no driver"),
    ],
)
def test_what_cannot_be_read_fails(registry, heuristics, name, why):
    one = device(registry, heuristics)
    assert why in one.unreadable[name]
    verdicts, _ = checks.check_tables({"cuda": one}, CUDA, ["*"])
    assert [verdict.check for verdict in verdicts if not verdict.passed] == ["readable/cuda"]
    assert why in verdicts[0].text


def test_a_device_without_tables_needs_a_reason():
    verdicts, _ = checks.check_tables({"cuda": Device()}, CUDA, ["*"])
    assert [verdict.check for verdict in verdicts if not verdict.passed] == ["tables/cuda"]
    verdicts, _ = checks.check_tables({"mtia": Device(missing={"tables": "torch has no class"})}, CUDA, ["*"])
    assert all(verdict.passed for verdict in verdicts)


def test_a_registry_that_raises_makes_its_device_unreadable(monkeypatch):
    def broken() -> None:
        raise AttributeError("the registry moved")

    monkeypatch.setattr(read, "heuristics", broken)
    assert read._contained("CUDAConfigHeuristic", "cuda") == {
        "unreadable": {"tables": "AttributeError: the registry moved"}
    }


def test_a_process_that_fails_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(live.TablesUnread, match="ended with 1: it printed nothing"):
        live.live_devices()


def test_what_was_read_is_kept_unless_a_table_is_missing(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    asked = []

    def answer(unreadable: dict[str, str]) -> dict[str, Any]:
        asked.append(unreadable)
        return {"cuda": {**dataclasses.asdict(device()), "unreadable": unreadable}}

    assert live.live_devices(lambda: answer({"mm": "odd"}))["cuda"].unreadable
    for _ in range(2):
        assert not live.live_devices(lambda: answer({}))["cuda"].unreadable
    assert len(asked) == 2


def test_the_installed_torch_is_read():
    devices = live.installed()
    assert not any(one.unreadable for one in devices.values())
    assert {"cuda", "cpu", "xpu", "any", *(f"rocm:{arch}" for arch in live.amd_archs())} <= devices.keys()
    for name in ("cuda", "rocm:gfx942"):
        assert len(devices[name].tables["mm_configs"]["rows"]) >= 19
        assert devices[name].templates or devices[name].missing["templates"]
    amd = live.configs(devices["rocm:gfx942"], ["mm_configs"])
    assert all(dict(config.vendor).keys() == live.AMD_OPTIONS.keys() for config in amd)


# --- what a record holds ----------------------------------------------------------------------------------------------


# called in a process of the pool
def offered_around_a_reading(before: bool, target: Target) -> tuple[list[str], ...]:
    """The choices for one product after the tables were read, and ``before`` too."""
    from conformance.inductor.compile.deviceless_worker import generate

    def offered() -> list[str]:
        return [choice.description for choice in generate(product(templates=None), target).offered]

    first = [offered()] if before else []
    read.read_tables(("gfx942", "gfx1250"))
    return (*first, offered())


@pytest.mark.long(11)
def test_what_is_generated_after_a_reading_is_for_the_same_vendor():
    """Two processes: Inductor is used before the reading, or not."""
    target = find("sm_90")
    offers = []
    for before in (True, False):
        with contextlib.closing(CompilePool(1, deadline=300)) as alone:
            task = Task(f"{__name__}:offered_around_a_reading", before, target)
            result = alone.submit(task).result()
        assert result.status is Status.PASS, result.error
        offers += result.value
    assert offers[0]
    assert all(one == offers[0] for one in offers)
    assert not any("waves_per_eu" in description for description in offers[0])


def test_a_record_holds_the_rows_and_what_changed_since():
    seeds = DeviceClass("seeds", {"mm": (Config(32, 32, 16, 1, 2), Config(64, 64, 64, 3, 4))})
    verdicts, observed = checks.check_tables({"cuda": device()}, seeds, ["*mm_configs"])
    assert all(verdict.passed for verdict in verdicts)
    assert observed["config_tables"]["mm_configs"] == ["32x32x16-s1-w2", "128x128x64-s3-w4-g4"]
    assert observed["config_tables"]["templates"][1:3] == [
        "triton::mm/mm-ah",
        "triton::mm/mm-ah.mm_configs=extra_mm_configs",
    ]
    assert observed["since_july_2025"] == {
        "cuda": {"mm": {"gained": ["128x128x64-s3-w4-g4"], "lost": ["64x64x64-s3-w4"]}}
    }
    assert observed["unswept"] == {"cuda": ["default_flex_config"]}


def test_the_same_rows_have_not_changed():
    seeds = DeviceClass("seeds", {"mm": (Config(32, 32, 16, 1, 2), Config(128, 128, 64, 3, 4, group_m=4))})
    assert checks.check_tables({"cuda": device()}, seeds, ["*"])[1]["since_july_2025"] == {}


def test_a_second_device_has_only_what_differs():
    other = device({**REGISTRY, ("triton::new", "cuda", None): Heuristics})
    kept = checks.recorded({"rocm:a": device(), "rocm:b": other})
    assert [name for name in kept if name.startswith("rocm:")] == ["rocm:b templates"]
    lacking = dataclasses.replace(other, tables={})
    assert checks.recorded({"rocm:a": device(), "rocm:b": lacking})["rocm:b mm_configs"] == []


def test_devices_have_the_order_of_their_names():
    devices = {"mtia": Device(), "rocm:a": Device(), "any": Device(), "rocm:b": Device()}
    assert list(checks.of_group(devices, ["any", "mtia"])) == ["any", "mtia"]
    assert list(checks.of_group(devices, ["rocm:*"])) == ["rocm:a", "rocm:b"]


def test_an_enumerated_table_is_told_by_its_columns():
    rows = [[m, n, 16, 1, 4] for m in range(20) for n in range(20)]
    table = {"columns": ["block_m", "block_n", "block_k", "num_stages", "num_warps"], "rows": rows}
    texts = checks.as_texts(table)
    assert texts[0] == "rows=400"
    assert "num_warps=4" in texts
    assert checks.as_texts({**table, "rows": [*rows[1:], rows[0]]}) != texts


# --- rows as configs --------------------------------------------------------------------------------------------------


def one_config(settings: dict[str, int] | None = None, table: str = "t", **row: Any) -> Any:
    listed = {table: {"columns": list(row), "rows": [list(row.values())]}}
    return next(iter(live.configs(Device(listed, settings or {}), ["*"])), None)


TILE = {"block_m": 64, "block_n": 32, "block_k": 16, "num_stages": 3, "num_warps": 4}
FLEX = {"num_stages": 1, "num_warps": 4}


def test_rows_become_configs():
    assert one_config(**TILE, hint_override=None, group_m=4) == Config(64, 32, 16, 3, 4, group_m=4)
    special = one_config(**TILE, epilogue_subtile=2, flatten=False, warp_specialize=True)
    assert special == TemplateConfig(64, 32, 16, 3, 4, epilogue_subtile=2, flatten=False)
    assert special.id == "64x32x16-s3-w4-sub2-nested"
    assert special.options == {"num_stages": 3, "num_warps": 4}
    assert one_config(**TILE, epilogue_subtile=2, flatten=True, warp_specialize=False) is None
    assert one_config(block_m=64, block_n=32, **FLEX, key="float16/64") == FlexConfig(64, 32, 1, 4)
    assert one_config(block_n=32, **FLEX) == FlexDecodeConfig(32, 1, 4)
    assert one_config(block_m1=16, block_n1=32, block_m2=32, block_n2=16, **FLEX) == FlexConfig(16, 32, 1, 4)
    apart = one_config(block_m1=16, block_n1=32, block_m2=64, block_n2=16, **FLEX)
    assert apart == FlexBackwardConfig(16, 32, 1, 4, block_m2=64, block_n2=16)
    assert apart.id == "16x32x64x16-s1-w4"
    assert one_config(block_n=16, block_l=32, block_c=32, **FLEX) is None


def test_rows_that_no_kernel_can_be_given_are_told():
    special = {**TILE, "epilogue_subtile": 2, "flatten": True}
    assert one_config(**special, two_ctas=False, data_partition_factor=1) is not None
    for unknown in ({"two_ctas": True}, {"data_partition_factor": 2}, {"of_a_later_torch": 1}):
        assert one_config(**special, **unknown) is None
    row = {**special, "two_ctas": True}
    rows = {"mm_configs": {"columns": list(row), "rows": [list(row.values())]}}
    observed = checks.check_tables({"cuda": Device(rows)}, CUDA, ["mm_configs"])[1]
    assert observed["unswept"] == {"cuda": ["mm_configs: 64x32x16-s3-w4-epilogue_subtile2-flatten1-two_ctas1"]}


def test_blocks_that_say_the_same_have_one_text():
    names = ("block_m1", "block_n1", "block_m2", "block_n2")
    assert live.row_text({**dict(zip(names, (16, 32, 32, 16), strict=True)), **FLEX}) == "16x32-s1-w4"
    assert live.row_text({**dict(zip(names, (16, 32, 16, 32), strict=True)), **FLEX}) == "16x32x16x32-s1-w4"


def test_amd_rows_have_amd_stages_and_options():
    settings = {"default_num_stages": 2, "kpack of block_k 16": 1}
    options = (("matrix_instr_nonkdim", 16), ("waves_per_eu", 0), ("kpack", 1))
    assert one_config(settings, **TILE) == Config(64, 32, 16, 2, 4, vendor=options)
    assert one_config(settings, "mm_plus_mm_configs", **TILE).num_stages == 1
    assert one_config(settings, **TILE, waves_per_eu=2).vendor == (options[0], ("waves_per_eu", 2), options[2])
