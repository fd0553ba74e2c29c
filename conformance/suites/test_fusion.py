"""Changes to A before a product and to the sum after it, inside one kernel."""

from conformance.cases.scenarios import ragged, scenario, where
from conformance.cases.tier_rows import CROSSED
from conformance.families.gemm.problem import Bias, Fusion
from conformance.problems import Layout

#: The quick tier has the first one, which has every step but gelu.
EPILOGUES = [
    ("bias", "relu", "dropout", "residual"),
    (),
    ("relu",),
    ("bias", "relu"),
    ("relu", "bias"),
    ("bias", "gelu"),
    ("residual",),
    ("bias", "residual", "relu"),
    ("dropout",),
]


def _problem(kernel, dtype, sizes, fusion, **fields):
    """A bias is a matrix of which neither stride is 1; suites about others have vectors."""
    bias = Bias("mn", layout=Layout("col", step=2, pad=3)) if "bias" in fusion.epilogue else None
    return kernel.problem(dtype, *sizes, fusion=fusion, bias=bias, **fields)


@scenario(
    where(operation="fused_mm"),
    epilogue={"quick": EPILOGUES[:1], **dict.fromkeys(("default", *CROSSED), EPILOGUES)},
    rotate={"out_dtype": [None, "fp32"]},
    configs=3,
)
def test_epilogue(conform, kernel, target, dtype, config, epilogue, out_dtype):
    """Each step in the order in which it is named: a bias before or after a relu is not the same."""
    fusion = Fusion(epilogue=epilogue)
    problem = _problem(kernel, dtype, ragged(kernel, config, dtype, aligned=False), fusion, out_dtype=out_dtype)
    conform(kernel, problem, config=config, target=target)


PROLOGUES = [("cast", "fp32"), ("gather", None), ("cast", "fp16"), ("cast", "bf16"), ("cast", "e4m3"), ("scale", None)]
PROLOGUES += [("scatter", None), ("scale-k", None)]


@scenario(
    where(operation="fused_mm"),
    prologue=PROLOGUES,
    rotate={"epilogue": [(), ("bias", "relu"), ("residual",)]},
    dtypes=("bf16", "fp16"),
    configs=3,
    every_row=where(name="fused_mm"),
)
def test_prologue(conform, recorder, kernel, target, dtype, config, prologue, epilogue):
    """Casts up and down, rows or columns scaled, rows gathered or scattered; A is padded: a read outside it shows."""
    name, stored = prologue
    if stored == dtype:  # no cast at all: the other 16-bit format instead
        stored = {"bf16": "fp16", "fp16": "bf16"}[dtype]
    fusion = Fusion(name, stored, epilogue)
    layout = Layout(pad=3)
    problem = _problem(kernel, dtype, ragged(kernel, config, dtype, aligned=False), fusion, layout_a=layout)
    conform(kernel, problem, config=config, target=target)


@scenario(where(operation="fused_mm"), dtypes=("bf16", "fp32"), configs=1, every_row=where())
def test_scaled_rows_and_gelu(conform, kernel, target, dtype, config):
    """Rows scaled before the product and gelu after it: the quick tier's other cases have every other step. In fp32 the
    rows have bits that no narrower type holds, and from 16 bits they are converted twice."""
    problem = _problem(kernel, dtype, ragged(kernel, config, dtype, aligned=False), Fusion("scale", None, ("gelu",)))
    conform(kernel, problem, config=config, target=target)
