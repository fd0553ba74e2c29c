"""fp8 in the forms of AMD's CDNA3, e4m3fnuz and e5m2fnuz. Their exponents are biased by one more than those of e4m3 and
e5m2. There is no infinity, and what would be -0 is NaN. Only the matrix unit of gfx942 multiplies them; other targets
refuse them."""

from conformance.cases.scenarios import ragged, scenario, where
from conformance.families.gemm.problem import Bias
from conformance.problems import FNUZ


def takes_fnuz(kernel):
    """True for a kernel of weight 1 that takes these formats."""
    return set(kernel.rare_dtypes) >= set(FNUZ) and kernel.weight == 1


@scenario(
    where(operation="scaled_mm", rare_dtypes=FNUZ, weight=3),
    second=["same", "other"],
    rotate={"scaling": ["row", "tensor"], "bias": [None, "n"], "out_dtype": ["bf16", "fp32", "fp16"]},
    dtypes=FNUZ,
    configs=1,
)
def test_scaled_products(conform, kernel, target, dtype, config, second, scaling, bias, out_dtype):
    """A and B of one format or of both, with each kind of scales and each wider dtype of the output."""
    fields = {"scaling": scaling, "out_dtype": out_dtype}
    if second == "other":
        fields["b_dtype"] = next(name for name in FNUZ if name != dtype)
    if bias is not None:
        fields["bias"] = Bias(bias, dtype="bf16")
    problem = kernel.problem(dtype, *ragged(kernel, config, dtype, aligned=True), **fields)
    conform(kernel, problem, config=config, target=target)


@scenario(takes_fnuz, shape=["ragged", "several-tiles", "many-k-blocks"], dtypes=FNUZ, configs=1)
def test_other_products(conform, kernel, target, dtype, config, shape):
    """Scales of blocks, groups, batches and attention, of which each kernel has its own example."""
    conform(
        kernel, kernel.example(dtype, config, shape), config=config, target=target, variant=kernel.example_variant()
    )
