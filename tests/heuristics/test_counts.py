"""The numbers of candidates left for a problem, as a separate program counted them once (CUDA, no hints)."""

import pytest

from conformance.heuristics import base
from conformance.heuristics.device_class import finalised, scaled
from conformance.heuristics.lookup import CUDA
from conformance.heuristics.rocm import ROCM

TABLES = ("mm", "extra_mm", "persistent_mm", "scaled_mm", "scaled_persistent_mm", "conv", "int8_mm")
LISTED = {
    (16, 16, 16): (5, 4, 3, 5, 4, 2, 4),
    (10, 30, 22): (6, 5, 3, 5, 4, 3, 4),
    (32, 32, 32768): (11, 9, 4, 32, 6, 3, 6),
    (64, 64, 64): (15, 9, 5, 68, 7, 4, 7),
    (100, 100, 10): (16, 10, 5, 36, 7, 7, 10),
    (168, 248, 88): (19, 10, 8, 97, 9, 7, 11),
    (256, 128, 384): (19, 10, 7, 76, 9, 7, 11),
    (1024, 1024, 1024): (19, 10, 8, 97, 9, 7, 11),
    (2560, 2560, 2560): (19, 10, 8, 97, 9, 7, 11),
    (50257, 768, 2048): (19, 10, 8, 97, 9, 7, 11),
}

#: Bytes of shared memory per block: sm_90 and sm_100, sm_80, sm_86 and sm_89; of an element: 1, 2, 4 for each.
BUDGETS = [(memory, size) for memory in (232448, 166912, 101376) for size in (1, 2, 4)]
#: Not pruned, then for each of ``BUDGETS``.
EXHAUSTIVE = {
    (16, 16, 16): (5, 5, 5, 5, 5, 5, 5, 5, 5, 5),
    (10, 30, 22): (20, 20, 20, 20, 20, 20, 20, 20, 20, 20),
    (32, 32, 32768): (125, 125, 125, 119, 125, 125, 115, 125, 119, 103),
    (64, 64, 64): (270, 270, 270, 270, 270, 270, 270, 270, 270, 254),
    (100, 100, 10): (195, 190, 190, 190, 190, 190, 190, 190, 190, 190),
    (168, 248, 88): (1320, 1118, 1066, 926, 1100, 1014, 847, 1044, 894, 674),
    (256, 128, 384): (1275, 1143, 1039, 864, 1107, 977, 786, 1015, 840, 624),
    (1024, 1024, 1024): (1650, 1346, 1206, 986, 1294, 1127, 891, 1174, 954, 693),
    (2560, 2560, 2560): (1650, 1346, 1206, 986, 1294, 1127, 891, 1174, 954, 693),
    (50257, 768, 2048): (1650, 1346, 1206, 986, 1294, 1127, 891, 1174, 954, 693),
}
#: At 1024 in all dimensions.
PERSISTENT_EXHAUSTIVE = (956, 852, 694, 918, 796, 627, 830, 672, 486)


@pytest.mark.parametrize("shape", LISTED, ids=lambda shape: "x".join(map(str, shape)))
def test_listed_rows(shape):
    assert tuple(len(CUDA.candidates(name, *shape)) for name in TABLES) == LISTED[shape]


def _pruned(device, name, shape, memory, size):
    return device.candidates(name, *shape, exhaustive=True, dtype_size=size, shared_memory=memory)


@pytest.mark.parametrize("shape", EXHAUSTIVE, ids=lambda shape: "x".join(map(str, shape)))
def test_exhaustive_space(shape):
    everything = finalised(scaled(base.all_mm(), *shape))
    pruned = [len(_pruned(CUDA, "mm", shape, memory, size)) for memory, size in BUDGETS]
    assert (len(everything), *pruned) == EXHAUSTIVE[shape]


def test_exhaustive_space_of_persistent_kernels():
    pruned = [len(_pruned(CUDA, "persistent_mm", (1024,) * 3, memory, size)) for memory, size in BUDGETS]
    assert tuple(pruned) == PERSISTENT_EXHAUSTIVE


def test_sum_of_two_products():
    """Rows below K, the last but two with half its warps; none at K = 16."""
    assert [len(CUDA.candidates("mm_plus_mm", 4096, 4096, k)) for k in (16, 32, 64, 128, 4096)] == [0, 2, 8, 9, 10]


def test_exhaustive_persistent_kernels_on_amd():
    """They were once given the listed rows whatever was asked, two warps included."""
    exhaustive = _pruned(ROCM, "persistent_mm", (1024,) * 3, 65536, 2)
    assert len(exhaustive) > len(ROCM.candidates("persistent_mm", 1024, 1024, 1024))
    assert set(exhaustive) == set(_pruned(ROCM, "mm", (1024,) * 3, 65536, 2))  # no row of AMD's has two warps
