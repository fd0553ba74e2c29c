"""fp16 and bf16 products use the matrix units of every target: WGMMA, tcgen05, MFMA, WMMA and what came before them.
A target multiplies fp8 as it likes; each is shown to be right."""

from conformance.cases.scenarios import ragged, scenario, where
from conformance.codegen_checks import MFMA, MMA, TCGEN05, WGMMA, WMMA
from conformance.records import Check, CheckKind

#: Any of them does: which one a target has is what the kernel declares.
UNITS = {unit.name for unit in (MMA, WGMMA, TCGEN05, MFMA, WMMA)}


@scenario(
    where(operation="mm", weight=3, shows_matrix_unit=True), dtypes=("fp16", "bf16"), configs=1, every_target=True
)
def test_matrix_units(conform, recorder, kernel, target, dtype, config):
    """The plainest product on every target: each other suite takes a sample of the targets."""
    conform(kernel, kernel.problem(dtype, *ragged(kernel, config, dtype, aligned=True)), config=config, target=target)
    passed = [Check.parse(verdict.check) for verdict in recorder.verdicts if verdict.passed]
    used = {check.subject for check in passed if check.kind is CheckKind.REQUIRES} & UNITS
    recorder.verdict("matrix unit", bool(used), ", ".join(used) or f"none of {', '.join(sorted(UNITS))} is required")


@scenario(
    where(operation="scaled_mm", weight=3, shows_matrix_unit=True), dtypes=("e5m2",), configs=1, every_target=True
)
def test_fp8(conform, kernel, target, dtype, config):
    """The plainest product of the fp8 dtype that every target takes."""
    conform(kernel, kernel.problem(dtype, *ragged(kernel, config, dtype, aligned=True)), config=config, target=target)


@scenario(where(name="int_mm"), implied_dtype=[True], configs=1, every_target=True)
def test_int8(conform, kernel, target, dtype, config, implied_dtype):
    """The plainest int8 product, which does not say that it is summed in int32: its accumulator does. The other suites
    have products that say it."""
    problem = kernel.problem(dtype, *ragged(kernel, config, dtype, aligned=True))
    conform(kernel, problem, config=config, target=target, implied_dtype=implied_dtype)
