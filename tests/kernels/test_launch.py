"""A launch says at once what it cannot start."""

import pytest
import triton
import triton.language as tl

from conformance.kernels.launch import Launch


@triton.jit
def doubled(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), 2.0)


TUNED = triton.autotune([triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32})], key=[])(doubled)
GUESSED = triton.heuristics({"BLOCK": lambda arguments: 16})(doubled)
BOTH = triton.autotune([triton.Config({})], key=[])(GUESSED)


def test_a_function_of_jit_is_taken():
    assert Launch(doubled, (1,), {}).function is doubled
    assert Launch(TUNED.fn, (1,), {}).function is doubled


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (TUNED, r"doubled is wrapped by triton\.autotune.*the triton\.jit function, doubled\.fn,.*Kernel\.configs"),
        (GUESSED, r"doubled is wrapped by triton\.heuristics.*the triton\.jit function, doubled\.fn,"),
        (BOTH, r"wrapped by triton\.autotune and triton\.heuristics.*doubled\.fn\.fn,"),
    ],
    ids=["autotune", "heuristics", "both"],
)
def test_a_wrapped_function_is_said_to_be_one(function, says):
    with pytest.raises(TypeError, match=says):
        Launch(function, (1,), {})
