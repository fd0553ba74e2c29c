"""The arithmetic of 16-bit products, and the refusals, that the three kernels share."""

from conformance.numerics.contract import FMA, Accumulator, Contract
from conformance.records import Reason, ReasonCode

DTYPES = ("fp16", "bf16")


def contract(plan, executor, out_dtype, intermediate=None):
    unit = plan.target.matrix_unit
    sums = Accumulator(alignment_bits=unit.alignment_bits, chunk=unit.products[2], assumed=True)
    accumulator = FMA if executor == "interpreter" else sums
    return Contract(out_dtype, accumulator, intermediate=intermediate, flushes_subnormals=plan.target.vendor == "amd")


def foreign(kernel, problem):
    """Returns the reason why a problem is none of the kernel's: another operation, or another dtype."""
    if problem.op not in kernel.operations:
        return Reason(ReasonCode.OPERATION, problem.op, f"{kernel.name} does not compute {problem.op}")
    if problem.dtype not in DTYPES:
        detail = f"operands are {problem.dtype}, {kernel.name} takes {' and '.join(DTYPES)}"
        return Reason(ReasonCode.DTYPE, "a", detail)
    return None
