"""Device classes of the targets, and the differences of these classes."""

import dataclasses

import pytest

from conformance.heuristics import base
from conformance.heuristics.base import BASE
from conformance.heuristics.configs import Config
from conformance.heuristics.device_class import DeviceClass, finalised
from conformance.heuristics.lookup import CPU, CUDA, XPU, flex_default, for_target
from conformance.heuristics.rocm import ROCM, options
from conformance.targets import Target


@pytest.mark.parametrize(
    ("target", "device"),
    [
        (Target("cuda", 90, 32), CUDA),
        (Target("hip", "gfx942", 64), ROCM),
        (Target("xpu", "pvc", 16), XPU),
        (Target("cpu", "x86", 1), CPU),
        (Target("vendor", "v1", 16), BASE),
    ],
    ids=lambda value: value.id if isinstance(value, Target) else value.name,
)
def test_class_of_a_family(target, device):
    assert for_target(target) is device


@dataclasses.dataclass(frozen=True)
class _Board(Target):
    own: object = None

    @property
    def device_class(self):
        return self.own


def test_class_of_a_vendors_target():
    own = DeviceClass("vendor", {"mm": (Config(64, 64, 32, 2, 4),)})
    assert for_target(_Board("cuda", 90, 32, own=own)) is own
    assert for_target(_Board("cuda", 90, 32)) is CUDA


def test_the_default_of_attention_follows_the_architecture():
    assert [flex_default(Target("cuda", arch, 32), "flex_fwd", 256, "fp32").id for arch in (75, 86, 90, 100)] == [
        "64x64-s3-w4",
        "64x16-s3-w4",
        "32x32-s3-w4",
        "32x32-s3-w4",
    ]
    assert flex_default(Target("hip", "gfx942", 64), "flex_bwd", 128, "bf16") == ROCM.flex_bwd_default(
        128, "bf16", (0, 0)
    )


def test_what_is_no_device_class_is_refused():
    with pytest.raises(TypeError, match=r"sm_90: device_class is 'mm' and must be None or a conformance\.heuristics"):
        for_target(_Board("cuda", 90, 32, own="mm"))


def test_cpu_takes_tiles_of_half_the_edge():
    assert {config.tile for config in CPU.candidates("mm", 1024, 1024, 1024)} == {
        tuple(max(edge // 2, 16) for edge in config.tile) for config in base.MM
    }


@pytest.mark.parametrize(
    ("name", "largest", "excluded"),
    [
        ("mm", (128, 64, 256), (128, 128, 16)),
        ("bmm", (64, 64, 128), (64, 64, 256)),
        ("bmm", (128, 32, 16), (128, 64, 16)),
        ("conv", (256, 32, 16), (512, 16, 16)),
        ("conv", (64, 64, 32), (64, 64, 64)),
    ],
)
def test_cpu_takes_no_large_tiles(name, largest, excluded):
    """Edges after scaling, so the listed ones are twice as long."""
    rows = tuple(Config(*(2 * edge for edge in tile), 1, 8) for tile in (largest, excluded))
    device = DeviceClass("cpu", {name: rows}, scale=CPU.scale, excluded=CPU.excluded)
    assert [config.tile for config in device.candidates(name, 4096, 4096, 4096)] == [largest]


def test_persistent_kernels_of_a_vendor_get_no_two_warps():
    rows = (Config(128, 128, 64, 3, 2), Config(128, 128, 64, 3, 4))
    device = DeviceClass("vendor", {"persistent_mm": rows}, {"persistent_mm": lambda: rows})
    assert device.candidates("persistent_mm", 512, 512, 512) == rows[1:]
    budget = {"exhaustive": True, "dtype_size": 2, "shared_memory": 232448}
    assert device.candidates("persistent_mm", 512, 512, 512, **budget) == rows[1:]


def test_mixed_operands_are_offered_the_rows_of_mm_too():
    """PyTorch 2.6 tries both in the default search, its successor in the exhaustive one."""
    assert CUDA.rows("mixed_mm") == base.MM + base.MIXED_MM
    assert CUDA.rows("mm") == base.MM
    assert CUDA.candidates("mixed_mm", 4096, 4096, 4096) == finalised(base.MM + base.MIXED_MM)


def test_amd_rows_carry_their_options():
    assert {config.vendor for config in ROCM.table("conv")} == {options(16, 0, 2)}
    assert {config.vendor for config in ROCM.table("flex_fwd")} == {options(0, 0, 2)}
    assert ROCM.table("mm")[0].options == {
        "num_stages": 2,
        "num_warps": 4,
        "matrix_instr_nonkdim": 16,
        "waves_per_eu": 2,
        "kpack": 2,
    }


def test_attention_rows_are_not_scaled_to_a_product():
    with pytest.raises(ValueError, match="has no BLOCK_M, BLOCK_N and BLOCK_K to scale: attention has flex_default"):
        CUDA.candidates("flex_fwd", 64, 64, 64)
