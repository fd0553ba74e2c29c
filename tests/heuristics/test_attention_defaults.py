"""Attention without a search: the config per device class, head dimension, dtype and capability."""

import pytest

from conformance.heuristics.base import BASE
from conformance.heuristics.lookup import CPU, CUDA, XPU
from conformance.heuristics.rocm import FREE, ROCM

T4, A100, A10, H100, B200 = (7, 5), (8, 0), (8, 6), (9, 0), (10, 0)


def _row(config):
    return (*config.tile, config.num_stages, config.num_warps)


@pytest.mark.parametrize("device", [BASE, XPU, CPU], ids=lambda device: device.name)
@pytest.mark.parametrize("capability", [T4, H100])
def test_base(device, capability):
    forward = {
        (head, dtype): _row(device.flex_fwd_default(head, dtype, capability))
        for head in (64, 256, 257)
        for dtype in ("fp32", "bf16")
    }
    assert forward == {
        (64, "fp32"): (64, 64, 3, 4),
        (64, "bf16"): (128, 64, 3, 4),
        (256, "fp32"): (64, 64, 3, 4),
        (256, "bf16"): (128, 64, 3, 4),
        (257, "fp32"): (32, 16, 3, 4),
        (257, "bf16"): (64, 32, 3, 4),
    }
    assert _row(device.flex_bwd_default(64, "bf16", capability)) == (16, 16, 1, 4)
    assert _row(device.flex_decode_default(64, "bf16", capability)) == (64, 1, 2)


@pytest.mark.parametrize(
    ("table", "head", "dtype", "capability", "row"),
    [
        ("flex_fwd", 64, "bf16", H100, (128, 128, 3, 4)),
        ("flex_fwd", 128, "bf16", H100, (128, 64, 3, 8)),
        ("flex_fwd", 128, "fp16", B200, (128, 128, 3, 8)),
        ("flex_fwd", 128, "fp32", H100, (32, 64, 3, 4)),
        ("flex_fwd", 128, "fp32", A100, (128, 32, 3, 4)),
        ("flex_fwd", 256, "fp16", A10, (32, 64, 3, 4)),
        ("flex_fwd", 64, "bf16", T4, (128, 64, 3, 4)),
        ("flex_fwd", 96, "bf16", H100, (128, 64, 3, 4)),
        ("flex_fwd", 512, "fp32", H100, (32, 16, 3, 4)),
        ("flex_bwd", 64, "fp32", H100, (16, 16, 1, 4)),
        ("flex_bwd", 64, "bf16", T4, (16, 16, 1, 4)),
        ("flex_bwd", 64, "bf16", H100, (64, 64, 3, 4)),
        ("flex_bwd", 128, "bf16", H100, (64, 128, 3, 8)),
        ("flex_bwd", 256, "bf16", H100, (64, 64, 2, 4)),
        ("flex_bwd", 64, "bf16", A100, (32, 128, 3, 4)),
        ("flex_bwd", 128, "bf16", A100, (64, 64, 3, 4)),
        ("flex_bwd", 128, "bf16", A10, (64, 64, 2, 4)),
        ("flex_bwd", 256, "bf16", A100, (64, 64, 2, 4)),
        ("flex_decode", 64, "fp32", H100, (64, 3, 2)),
        ("flex_decode", 128, "fp32", H100, (64, 3, 2)),
        ("flex_decode", 256, "fp32", H100, (64, 1, 2)),
        ("flex_decode", 256, "bf16", H100, (64, 3, 2)),
        ("flex_decode", 64, "bf16", A100, (64, 1, 2)),
    ],
)
def test_nvidia(table, head, dtype, capability, row):
    assert _row(CUDA.flex_default(table, head, dtype, capability)) == row


@pytest.mark.parametrize("capability", [A100, A10, H100, B200])
def test_backward_with_a_huge_head_on_nvidia_never_gets_the_small_default(capability):
    """As listed: (16, 16, 1, 4) was meant for heads above 256, but no GPU from 8.0 on is given it."""
    assert _row(CUDA.flex_bwd_default(512, "bf16", capability)) == (64, 64, 2, 4)


@pytest.mark.parametrize(
    ("table", "head", "dtype", "row"),
    [
        ("flex_fwd", 64, "bf16", (128, 64, 1, 8)),
        ("flex_fwd", 256, "bf16", (32, 64, 1, 8)),
        ("flex_fwd", 256, "fp16", (32, 64, 1, 4)),
        ("flex_fwd", 96, "bf16", (128, 64, 1, 8)),
        ("flex_fwd", 96, "fp32", (64, 64, 1, 4)),
        ("flex_fwd", 512, "bf16", (64, 32, 1, 4)),
        ("flex_fwd", 512, "fp32", (32, 16, 1, 4)),
        ("flex_bwd", 64, "fp32", (16, 16, 1, 4)),
        ("flex_bwd", 64, "bf16", (64, 64, 1, 4)),
        ("flex_bwd", 128, "bf16", (64, 128, 1, 8)),
        ("flex_bwd", 256, "bf16", (64, 64, 1, 4)),
        ("flex_bwd", 512, "bf16", (16, 16, 1, 4)),
        ("flex_decode", 64, "bf16", (64, 1, 4)),
    ],
)
def test_amd(table, head, dtype, row):
    config = ROCM.flex_default(table, head, dtype, A100)
    assert (_row(config), config.vendor) == (row, FREE)


def test_tables_of_products_have_no_default():
    with pytest.raises(KeyError, match="'mm' is not of attention: use one of flex_fwd, flex_bwd, flex_decode"):
        CUDA.flex_default("mm", 64, "bf16", H100)
