"""Faults of memory and layouts in generated modules: each must be caught by the checks of the suite about them."""

from __future__ import annotations

import functools

from tests.inductor.planted_code import Fault, PlantedFaults, suite_test

case = functools.partial(suite_test, "test_inductor_memory")

CASES = {
    "row of products": case("test_workspace_of_descriptors", graph="in_a_row", carveout=None),
    "operand by rows": case("test_layout_of_computed_operand", order="row", library=True, epilogue=True),
    "operand by columns": case("test_layout_of_computed_operand", order="col", library=True, epilogue=True),
}

REUSE = r"(workspace_\d+) = workspace_\d+; del workspace_\d+  # reuse"
OWN = r"\1 = empty_strided_cuda((33792, ), (1, ), torch.uint8)"

FAULTS = (
    Fault("a workspace for each product", "row of products", REUSE, OWN, ("reused", "freed")),
    Fault("room for one descriptor", "row of products", r"\(33792, \)", "(16896, )", ("size",)),
    Fault("the output as workspace", "row of products", r"(buf2), workspace_\d+", r"\1, \1", ("one each",)),
    Fault("rows read as columns", "operand by rows", r"idx_n \+ 64\*idx_m", "40*idx_n + idx_m", ("read", "numerics")),
    Fault(
        "rows allocated as columns",
        "operand by rows",
        r"(buf0 = empty_strided_cuda\(\(40, 64\)), \(64, 1\)",
        r"\1, (1, 40)",
        ("allocated",),  # the kernels are given addresses alone
    ),
    Fault(
        "columns allocated as rows",
        "operand by columns",
        r"(buf0 = empty_strided_cuda\(\(40, 64\)), \(1, 40\)",
        r"\1, (64, 1)",
        ("allocated", "numerics"),
    ),
)


class TestFaults(PlantedFaults):
    """Six faults."""
