"""K cut into parts that are summed afterwards, and the splits that the heuristics offer."""

import pytest

from conformance.cases.scenarios import scenario, where
from conformance.heuristics.split_k_choice import decompose_k_splits
from conformance.problems import Layout

ORDERS = [("row", "row"), ("row", "col"), ("col", "row"), ("col", "col")]


@scenario(where(family="split-k"), splits=[2, 3, 8], rotate={"order": ORDERS}, configs=4)
def test_splits(conform, kernel, target, dtype, config, splits, order):
    """Each part is ragged in k-blocks; partial sums are fp32, so that the exact fills stay exact."""
    a, b = (Layout(name, pad=3) for name in order)
    sizes = (config.block_m + 5, config.block_n + 3, splits * (config.block_k + 7))
    problem = kernel.problem(dtype, *sizes, layout_a=a, layout_b=b)
    conform(kernel, problem, config=config, target=target, splits=splits)


@pytest.mark.parametrize("sizes", [(32, 32, 32768), (64, 128, 200_000), (64, 64, 177_147)], ids=str)
def test_offered_splits(recorder, sizes):
    """Divisors of K that leave at least 128 k per part, powers of two first."""
    m, n, k = sizes
    offered = decompose_k_splits(m, n, k)
    recorder.set(observed={"splits": offered})
    recorder.verdict("some", 1 <= len(offered) <= 10, f"{len(offered)} splits: {offered}")
    fits = all(k % split == 0 and k // split >= 128 and 2 <= split <= min(k // m, k // n) for split in offered)
    recorder.verdict("divide", fits, f"each divides {k} into parts of at least 128")
    ranks = [0 if part & (part - 1) == 0 else 1 if part % 32 == 0 else 2 for part in (k // split for split in offered)]
    recorder.verdict("order", ranks == sorted(ranks), "powers of two, then multiples of 32, then the rest")
