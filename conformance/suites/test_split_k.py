"""K cut into parts that are summed afterwards or shared among programs, and the splits that the heuristics offer."""

import pytest

from conformance.cases.scenarios import every_kernel, scenario, where
from conformance.heuristics.configs import decompose_k_splits
from conformance.kernels import carveout
from conformance.problems import Layout

ORDERS = [("row", "row"), ("row", "col"), ("col", "row"), ("col", "col")]


@scenario(where(family="split-k", persistent=False), splits=[2, 3, 8], rotate={"order": ORDERS}, configs=4)
def test_splits(conform, kernel, target, dtype, config, splits, order):
    """Each part is ragged in k-blocks; partial sums are fp32, so that the exact fills stay exact. Rows of an output
    that a descriptor adds to end on 16 bytes."""
    a, b = (Layout(name, pad=3) for name in order)
    more = 4 if getattr(kernel, "adds_tiles", False) else 3
    sizes = (config.block_m + 5, config.block_n + more, splits * (config.block_k + 7))
    problem = kernel.problem(dtype, *sizes, layout_a=a, layout_b=b)
    conform(kernel, problem, config=config, target=target, splits=splits)


#: Programs -> how many tiles there are for them.
PROGRAMS = {
    # one has all, or a tile and part of the next
    "one": lambda tiles, depth: 1,
    "fewer-than-tiles": lambda tiles, depth: tiles - 1,
    "one-for-each-tile": lambda tiles, depth: tiles,
    # some tiles have three
    "twice-the-tiles": lambda tiles, depth: 2 * tiles + 1,
    "one-for-each-block": lambda tiles, depth: tiles * depth,
    "more-than-blocks": lambda tiles, depth: tiles * depth + 7,
}


@scenario(
    where(family="split-k", persistent=True),
    programs=list(PROGRAMS),
    rotate={"order": ORDERS, "reserve": [0, 3]},
    configs=2,
    every_row=every_kernel,  # which programs share a tile depends on their number
)
def test_shares(conform, recorder, kernel, target, dtype, config, programs, order, reserve):
    """Equal shares of all blocks of K, on the SMs that torch's carveout leaves. Each tile is ragged in K, and parts of
    it come from as many programs as its blocks do."""
    a, b = (Layout(name, pad=3) for name in order)
    sizes = (config.block_m + 5, config.block_n + 3, 4 * config.block_k + 7)
    problem = kernel.problem(dtype, *sizes, layout_a=a, layout_b=b)
    count = PROGRAMS[programs](4, 5)
    with carveout.reserved(reserve):
        run = conform(kernel, problem, config=config, target=target, sms=count + reserve)
    expected = (min(count, 20),)
    recorder.verdict("grid ran", run.trial.grid == expected, f"{run.trial.grid} ran, {expected} is required")


@scenario(where(family="split-k", persistent=True), dtypes=("fp16",), empty=["M", "N", "K"], configs=1)
def test_shares_of_nothing(conform, kernel, target, dtype, config, empty):
    """Without K every result is zero, and without rows or columns nothing is launched."""
    sizes = [0 if name == empty else size for name, size in (("M", 40), ("N", 72), ("K", 64))]
    conform(kernel, kernel.problem(dtype, *sizes), config=config, target=target, sms=5)


@pytest.mark.parametrize("sizes", [(32, 32, 32768), (64, 128, 200_000), (64, 64, 177_147)], ids=str)
@pytest.mark.proves_at_most("nothing", "which splits are offered is judged, and no kernel is run")
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
