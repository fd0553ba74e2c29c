"""Faults planted in generated code: each must be caught by the checks of the suite about operations."""

from __future__ import annotations

import importlib
from typing import Any

from conformance.targets import Target
from tests.inductor.planting import Fault, PlantedFaults


def run(test: str, inductor: Any, target: Target, *parameters: Any) -> None:
    """Runs one test of the suite, which is imported where its mark need not be known."""
    getattr(importlib.import_module("conformance.suites.test_inductor_operations"), test)(inductor, target, *parameters)


def epilogue(inductor: Any, target: Target) -> None:
    run("test_epilogue_fusion", inductor, target, "all", False, "fp32")


def epilogue_exact(inductor: Any, target: Target) -> None:
    run("test_epilogue_fusion", inductor, target, "bias-relu", True, "fp16")


def dynamic(inductor: Any, target: Target) -> None:
    run("test_dynamic_sizes", inductor, target, "mm")


def uneven(inductor: Any, target: Target) -> None:
    run("test_non_contiguous_input", inductor, target, "mm")


def sum_of_products(inductor: Any, target: Target) -> None:
    run("test_mm_plus_mm", inductor, target, "DEFAULT")


def integers(inductor: Any, target: Target) -> None:
    run("test_int_mm", inductor, target)


def joined(inductor: Any, target: Target) -> None:
    run("test_cat_max_autotune", inductor, target, "cat_mm_and_sum", "triton")


def mutation(inductor: Any, target: Target) -> None:
    run("test_mutation_rename", inductor, target, 3)


def convolution_joined(inductor: Any, target: Target) -> None:
    run("test_conv_cat", inductor, target, "DEFAULT")


def convolution_as_product(inductor: Any, target: Target) -> None:
    run("test_conv1x1", inductor, target, "DEFAULT")


def dropout(inductor: Any, target: Target) -> None:
    run("test_matmul_dropout", inductor, target, 0.1, False)


def dropout_of_aten(inductor: Any, target: Target) -> None:
    run("test_matmul_dropout", inductor, target, 0.5, True)


def with_a_number(inductor: Any, target: Target) -> None:
    run("test_jit_fusion_matches_aot_fusion", inductor, target, "jit")


STORE = r"^( *)(tl\.store\(.*)$"
LAUNCH = r"^( *)(triton_tem_\w+\.run\(.*)$"
TWICE = r"\1\2\n\1\2"

FAULTS = (
    Fault("no store", "epilogue", STORE, r"\1pass", ("one store", "numerics")),
    Fault("two stores", "epilogue", STORE, TWICE, ("one store",)),
    Fault("two launches", "epilogue", LAUNCH, TWICE, ("one launch",)),
    Fault("bias by rows", "epilogue", r"broadcast_to\(idx_n, ", "broadcast_to(idx_m, ", ("numerics",)),
    Fault("bias loaded twice", "epilogue_exact", r"^( *)(tmp\d+ = tl\.load\(in_ptr2 .*)$", TWICE, ("epilogue loads",)),
    Fault("bias by rows, exact", "epilogue_exact", r"broadcast_to\(idx_n, ", "broadcast_to(idx_m, ", ("numerics",)),
    Fault("factor of dropout", "epilogue", r"\[1\], 2\.0, tl\.float32", "[1], 1.5, tl.float32", ("numerics",)),
    Fault("no relu", "epilogue", r"triton_helpers\.maximum\(\w+, (\w+)\)", r"\1", ("epilogue relu", "numerics")),
    Fault(
        "no relu, exact",
        "epilogue_exact",
        r"triton_helpers\.maximum\(\w+, (\w+)\)",
        r"\1",
        ("numerics", "epilogue relu"),
    ),
    Fault("rows fixed", "dynamic", r"^( +)M = ks\d$", r"\1M = 40", ("source/M is an argument", "numerics")),
    Fault("packed columns", "uneven", r"192\*", "145*", ("numerics",)),
    Fault("strides not asserted", "uneven", r"^( *)assert_size_stride\(.*$", r"\1pass", ("source/strides",)),
    Fault("second product left out", "sum_of_products", r"^( *)acc \+= tl\.dot\(c, d.*$", r"\1pass", ("numerics",)),
    Fault(
        "fp32 sums",
        "integers",
        r"ACC_TYPE : tl\.constexpr = tl\.int32",
        "ACC_TYPE : tl.constexpr = tl.float32",
        ("source/accumulator",),
    ),
    Fault("other part in place of the product", "joined", r"\(40, 1\), 1600\)", "(40, 1), 0)", ("numerics",)),
    Fault("joined twice", "joined", r"^( *)(triton_poi_\w+\.run\(.*)$", TWICE, ("launches",)),
    Fault("product twice", "joined", LAUNCH, TWICE, ("one product",)),
    Fault("diagonal not written", "mutation", r"^( *)triton_poi_fused_copy_\w+\.run\(.*$", r"\1pass", ("numerics",)),
    Fault("1 added to all", "mutation", r"\(4\*x0\), tmp2", "(x0), tmp2", ("numerics",)),
    Fault("product twice by ATen", "mutation", r"^( *)(extern_kernels\.mm\(.*)$", TWICE, ("one extern product",)),
    Fault("wrong addend", "convolution_joined", r"\[1\], 1\.0, tl\.float32", "[1], 2.0, tl.float32", ("numerics",)),
    Fault(
        "joined by two kernels",
        "convolution_joined",
        r"^( *)(triton_poi_fused_add_cat_\w+\.run\(.*)$",
        TWICE,
        ("pointwise kernels join",),
    ),
    Fault(
        "extern convolution",
        "convolution_as_product",
        r"^( *)args\.clear\(\)$",
        r"\1args.clear()\n\1if args:\n\1    extern_kernels.convolution(*args)",
        ("no extern kernel",),
    ),
    Fault("next random number", "dropout", r"tl\.rand\((\w+), \((\w+)\)", r"tl.rand(\1, (\2 + 1)", ("numerics",)),
    Fault("factor left out", "dropout", r"1\.1111111\d*", "1.0", ("numerics",)),
    Fault(
        "one seed for all",
        "dropout",
        r"tl\.load\(in_ptr\d \+ load_seed_offset\)",
        "tl.full([], 5, tl.int64)",
        ("numerics", "seeded"),
    ),
    Fault(
        "probability",
        "dropout_of_aten",
        r"native_dropout\.default\(buf0, 0\.5",
        "native_dropout.default(buf0, 0.25",
        ("numerics",),
    ),
    Fault("another number", "with_a_number", r"= arg\d_1\.item\(\)", "= 2", ("numerics",)),
)


class TestFaults(PlantedFaults):
    pass
