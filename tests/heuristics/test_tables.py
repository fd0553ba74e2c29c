"""The tables hold as many distinct rows as published, and they cannot be changed."""

import dataclasses
import zlib
from collections.abc import Iterable

import pytest

from conformance.heuristics import base, lookup, rocm
from conformance.heuristics.configs import AnyConfig, Config
from conformance.heuristics.device_class import PERSISTENT, DeviceClass
from conformance.heuristics.lookup import CPU, XPU

CLASSES = (base.BASE, lookup.CUDA, rocm.ROCM, XPU, CPU)

#: Rows of each table: the base's; AMD's own, and the base's where rows that differ in their stages alone are one.
ROWS = {
    "mm": (19, 36),
    "bmm": (19, 36),
    "extra_mm": (10, 9),
    "int8_mm": (11, 11),
    "mixed_mm": (2, 2),
    "persistent_mm": (8, 6),
    "scaled_mm": (97, 33),
    "scaled_persistent_mm": (9, 3),
    "persistent_fp8": (11, 4),  # two of them the harness's own
    "mm_plus_mm": (10, 10),
    "conv": (7, 7),
    "flex_fwd": (5, 24),
    "flex_bwd": (28, 22),
    "flex_decode": (3, 6),
}
#: Rows of each exhaustive space: the base's and AMD's.
SPACES = {
    "mm": (1875, 6000),
    "bmm": (1875, 6000),
    "persistent_mm": (1250, 6000),
    "flex_fwd": (144, 288),
    "flex_bwd": (120, 240),
    "flex_decode": (48, 96),
}

#: CRC-32 of the ids, one a line: of the listed rows, of the exhaustive spaces, of attention's defaults.
CHECKSUMS = {
    "base": {
        "mm": 0x2E1D4EF6,
        "extra_mm": 0xAB9BEEF9,
        "int8_mm": 0x576FC077,
        "mixed_mm": 0x95E6162C,
        "persistent_mm": 0x146B209D,
        "scaled_mm": 0xD4B0F22E,
        "scaled_persistent_mm": 0xC13A174D,
        "mm_plus_mm": 0xF2A9C3CA,
        "conv": 0xD6DA5A84,
        "flex_fwd": 0x742B389E,
        "flex_bwd": 0xEDC0F4FA,
        "flex_decode": 0x060BD017,
    },
    "rocm": {"mm": 0x6B868400, "flex_fwd": 0x0EF4E53A, "flex_bwd": 0x959305CD, "flex_decode": 0xA3C22EDD},
}
SPACE_CHECKSUMS = {
    "base": {"mm": 0xFD653FEE, "flex_fwd": 0x6021D184, "flex_bwd": 0x2166C44C, "flex_decode": 0xE84CF061},
    "rocm": {"mm": 0x983C4BBB, "flex_fwd": 0x5F55959F, "flex_bwd": 0x906C9A22, "flex_decode": 0x4E00B00B},
}
DEFAULT_CHECKSUMS = {"H100": 0xEABAA373, "A100": 0x83631690, "rocm": 0x7B3C6D38}


def checksum(configs: Iterable[AnyConfig]) -> int:
    return zlib.crc32("\n".join(config.id for config in configs).encode())


def everything(device: DeviceClass) -> list[AnyConfig]:
    listed = [config for table in device.tables.values() for config in table]
    return listed + [config for name in device.spaces for config in device.exhaustive(name)]


@pytest.mark.parametrize("device", CLASSES, ids=lambda device: device.name)
def test_every_table_and_space_has_as_many_distinct_rows_as_published(device):
    tables, spaces = ({name: row[device is rocm.ROCM] for name, row in counts.items()} for counts in (ROWS, SPACES))
    assert {name: len(device.table(name)) for name in device.tables} == tables
    assert {name: len(set(device.table(name))) for name in device.tables} == tables
    assert {name: len(device.exhaustive(name)) for name in device.spaces} == spaces
    assert {name: len(set(device.exhaustive(name))) for name in device.spaces} == spaces


@pytest.mark.parametrize("device", [base.BASE, rocm.ROCM], ids=lambda device: device.name)
def test_every_row_is_as_published(device):
    """A number that slips while a table is edited shows here; whoever means it writes the new checksum down."""
    listed, spaces = CHECKSUMS[device.name], SPACE_CHECKSUMS[device.name]
    assert {name: checksum(device.table(name)) for name in listed} == listed
    assert {name: checksum(device.exhaustive(name)) for name in spaces} == spaces


def test_every_default_of_attention_is_as_published():
    tables = {"H100": lookup.H100, "A100": lookup.A100, "rocm": rocm.FLEX_FWD_DEFAULTS}
    assert {name: checksum(table.values()) for name, table in tables.items()} == DEFAULT_CHECKSUMS


def test_a_slip_in_one_row_changes_the_checksum():
    slipped = (dataclasses.replace(base.MM[0], num_warps=4), *base.MM[1:])
    assert checksum(slipped) != checksum(base.MM) == CHECKSUMS["base"]["mm"]


@pytest.mark.parametrize("device", [lookup.CUDA, XPU, CPU], ids=lambda device: device.name)
def test_classes_without_rows_of_their_own_have_those_of_the_base(device):
    assert device.tables == base.TABLES
    assert device.spaces == base.SPACES


@pytest.mark.parametrize("device", CLASSES, ids=lambda device: device.name)
def test_group_m_is_never_zero(device):
    """Given by position where another field had been put in, GROUP_M of AMD's exhaustive rows became 0 or 16."""
    groups = {config.group_m for config in everything(device) if isinstance(config, Config)}
    assert groups == ({4, 8, 16} if device is rocm.ROCM else {8})


def test_what_is_no_tile_stage_or_warp_count_is_keyword_only():
    with pytest.raises(TypeError, match="positional"):
        Config(64, 64, 32, 2, 4, 8)


def test_amd_options_are_what_their_names_say():
    values: dict[str, set[int]] = {}
    for config in rocm.all_mm():
        for name, value in config.vendor:
            values.setdefault(name, set()).add(value)
    assert values == {"matrix_instr_nonkdim": {0, 16}, "waves_per_eu": {0, 2}, "kpack": {2}}


@pytest.mark.parametrize("device", CLASSES, ids=lambda device: device.name)
def test_every_row_has_a_tile_of_powers_of_two_and_an_id_of_its_own(device):
    for name, table in [*device.tables.items(), *((name, device.exhaustive(name)) for name in device.spaces)]:
        assert all(edge >= 16 and edge & (edge - 1) == 0 for config in table for edge in config.tile), name
        assert all(config.num_stages >= 1 and config.num_warps >= 1 for config in table), name
        assert len({config.id for config in table}) == len(table), name


def test_nobody_can_change_a_table():
    """Rows, tables and classes: each attempt is refused, and a caller's own dictionary is copied."""
    config = base.MM[0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.num_stages = 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        lookup.CUDA.name = "other"
    for mapping in (base.TABLES, base.PRODUCTS, base.SPACES, lookup.CUDA.tables, lookup.CUDA.spaces, CPU.excluded):
        with pytest.raises(TypeError, match="does not support item assignment"):
            mapping["mm"] = ()
    own = {"mm": [config]}
    device = DeviceClass("own", own)
    own["mm"].append(config)
    own["conv"] = []
    assert dict(device.tables) == {"mm": (config,)}
    assert isinstance(lookup.CUDA.exhaustive("flex_fwd"), tuple)


def test_unknown_tables_are_refused_with_those_that_exist():
    with pytest.raises(KeyError, match=r"'cuda' has no table 'gemm': use one of mm, bmm, extra_mm"):
        lookup.CUDA.table("gemm")
    with pytest.raises(KeyError, match=r"'cuda' has no exhaustive space 'conv': use one of mm, bmm, persistent_mm"):
        lookup.CUDA.exhaustive("conv")


def test_no_persistent_row_has_two_warps():
    for device in CLASSES:
        rows = [config for name in PERSISTENT for config in device.table(name)] + list(
            device.exhaustive("persistent_mm")
        )
        assert all(config.num_warps != 2 for config in rows)


def test_a_convolution_has_a_tile_of_1024_rows():
    """Larger than any problem dimension of a product here: kept on purpose, as listed."""
    assert [config.id for config in base.CONV if config.block_m > 256] == ["1024x16x16-s1-w8"]


def test_a_sum_of_two_products_has_a_row_with_sixteen_warps():
    assert [config.id for config in base.MM_PLUS_MM if config.num_warps > 8] == ["64x64x32-s4-w16"]


def test_wide_fp8_tiles_follow_the_listed_rows():
    assert base.PERSISTENT_FP8[:-2] == base.SCALED_PERSISTENT_MM
    assert [config.id for config in base.PERSISTENT_FP8[-2:]] == ["128x256x128-s3-w8", "128x256x128-s4-w8"]


def test_stages_of_amd_rows_are_the_backends_default():
    compiler = pytest.importorskip("triton.backends.amd.compiler")
    assert compiler.HIPOptions.num_stages == rocm.BACKEND_STAGES
    assert {config.num_stages for config in rocm.ROCM.table("mm")} == {rocm.BACKEND_STAGES}


def test_stages_of_amd_rows_follow_another_default():
    """A sum of two products asks for no pipelining, whatever the default; both are taken from the base by copy."""
    device = rocm.rocm(1)
    assert {config.num_stages for name in base.PRODUCTS for config in device.table(name)} == {1}
    assert len(device.exhaustive("mm")) == 3000  # with and without pipelining are one
    assert {config.num_stages for config in rocm.ROCM.table("mm_plus_mm")} == {1}
    assert {config.num_stages for config in base.MM_PLUS_MM} == {1, 2, 3, 4}
