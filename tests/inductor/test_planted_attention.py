"""Faults planted in flex attention as Inductor generates it: each must be caught by the checks of its suite."""

from __future__ import annotations

import functools

import pytest

from tests.inductor.planted_code import Fault, PlantedFaults, suite_test

case = functools.partial(suite_test, "test_inductor_attention")

CASES = {
    "forward": case("test_attention", mask="sliding-window", score="alibi"),
    "shared": case("test_shapes", shape="two-heads-of-four"),
    "no key": case("test_shapes", shape="more-queries-than-keys"),
    "few": case("test_few_queries", splits=3, shared="two-heads-of-four", mask="causal"),
    "backward": case("test_gradients", mask="sliding-window", score="soft-cap"),
    "shared backward": case("test_gradients_of_shapes", shape="two-heads-of-four"),
}

MASKED = r"tl\.where\(mask_mod_output, post_mod_scores, float\(\"-inf\"\)\)"
#: What divides a row's sums, where the row has seen no key.
SAFE = r"tl\.where\(l_i == 0\.0, 1, l_i\)"

FAULTS = (
    Fault("mask dropped", "forward", MASKED, "post_mod_scores", ("numerics/randn",)),
    Fault("window one key longer", "forward", r"full\(\[1\], 37, ", "full([1], 38, ", ("numerics/randn",)),
    Fault("position of the keys", "forward", r"full\(\[1\], 167, ", "full([1], 166, ", ("numerics",)),
    Fault("logarithm of the sum left out", "forward", r"m_i \+ tl\.math\.log2\(l_i\)", "m_i", ("numerics/randn/lse",)),
    Fault("scale dropped", "forward", r"qk \*= SM_SCALE", "qk *= 1.0", ("numerics/randn",)),
    Fault("logarithm in base 2", "forward", r"\[1\], 0\.6931471805599453", "[1], 1.0", ("numerics/randn/lse",)),
    Fault("list of the first block", "forward", r"\(q_start // SPARSE_Q_MULTIPLE\)", "0", ("numerics",)),
    Fault("head of k and v", "shared", r"off_hkv = off_hq // GQA_SHARED_HEADS", "off_hkv = 0", ("numerics/selector",)),
    Fault("row without a key", "no key", SAFE, "l_i", ("numerics/selector",)),
    Fault("part left out", "few", r"block_n_start = off_t \*", "block_n_start = (off_t + 1) *", ("numerics",)),
    Fault("part of another row", "few", r"off_t \* stride_mt", "0 * stride_mt", ("numerics",)),
    Fault("mask dropped backward", "backward", MASKED, "post_mod_scores", ("numerics/uniform",)),
    Fault("derivative of the cap", "backward", r"= tmp19 - tmp25", "= tmp19", ("numerics/randn",)),
    Fault("delta left out", "backward", r"dp - Di\[:, None\]", "dp", ("numerics/uniform",)),
    Fault("scale of k's gradient", "backward", r"dk \*= SM_SCALE", "dk *= 1.0", ("numerics/uniform/grad_k",)),
    Fault("head of k's gradient", "shared backward", r"\+ 19200\*off_hkv", "+ 0*off_hkv", ("numerics/uniform/grad_k",)),
    Fault(
        "one head of those that share",
        "shared backward",
        r"off_hq1 = off_hkv \* GQA_SHARED_HEADS \+ off_g",
        "off_hq1 = off_hkv * GQA_SHARED_HEADS",
        ("numerics/uniform/grad_v",),
    ),
)


@pytest.mark.long(20)
class TestFaults(PlantedFaults):
    pass
