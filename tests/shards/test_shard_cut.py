"""The cut of a selection: balanced, the same on every machine, and no kernel in two shards without need."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter, defaultdict

import pytest

from conformance.shards.cut import cut, split, units


def shards_of(numbers, kernels):
    """The numbers of the shards that compile each kernel."""
    shards = defaultdict(set)
    for case, number in numbers.items():
        for kernel in kernels.get(case, ()):
            shards[kernel].add(number)
    return shards


def loads_of(numbers, weights):
    loads = Counter()
    for case, number in numbers.items():
        loads[number] += weights[case]
    return loads


@pytest.fixture
def drawn():
    """Weights and kernels of 2,000 cases, of which some hundred share kernels."""
    draw = random.Random(7)
    cases = [f"test_{number % 9}.py::test[{number}]" for number in range(2000)]
    weights = {case: int(draw.lognormvariate(6, 1)) + 1 for case in cases}
    kernels = {case: [f"k{draw.randrange(3000)}" for _ in range(draw.randrange(3))] for case in cases[:1500]}
    return weights, kernels


def test_the_longest_shard_is_near_the_mean(drawn):
    weights, kernels = drawn
    loads = loads_of(cut(weights, kernels, 8), weights)
    assert sorted(loads) == [*range(1, 9)]
    assert max(loads.values()) <= 1.15 * sum(weights.values()) / 8


def test_each_case_has_one_shard(drawn):
    weights, kernels = drawn
    assert list(cut(weights, kernels, 8)) == sorted(weights)


def test_the_order_of_the_cases_and_of_their_kernels_does_not_count(drawn):
    weights, kernels = drawn
    shuffled = list(weights)
    random.Random(1).shuffle(shuffled)
    other = {case: kernels.get(case, [])[::-1] for case in reversed(shuffled)}
    assert cut({case: weights[case] for case in shuffled}, other, 8) == cut(weights, kernels, 8)


def test_the_seed_of_hashes_does_not_count():
    code = (
        "import hashlib\nfrom conformance.shards.cut import cut\n"
        "kernels = {f'c{n}': {f'k{n % 40}', f'k{n % 7}', f'k{n % 11}'} for n in range(400)}\n"
        "numbers = cut({case: 1 + len(case) for case in kernels}, kernels, 5)\n"
        "print(hashlib.sha256(repr(sorted(numbers.items())).encode()).hexdigest())\n"
    )
    digests = set()
    for seed in ("1", "2"):
        environ = {**os.environ, "PYTHONHASHSEED": seed}
        digests.add(subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, check=True).stdout)
    assert len(digests) == 1


def test_cases_that_share_a_kernel_stay_together():
    weights = dict.fromkeys("abcdefgh", 100)
    kernels = {"a": ["k", "l"], "e": ["l", "m"], "h": ["m"]}  # a and h through e
    numbers = cut(weights, kernels, 2)
    assert numbers["a"] == numbers["e"] == numbers["h"]
    assert units(sorted(weights), kernels)[0] == ["a", "e", "h"]


def test_one_kernel_whose_cases_exceed_a_shard_is_split_into_few_parts():
    weights = {f"c{number:02}": 100 for number in range(40)}
    kernels = {case: ["k"] for case in list(weights)[:30]}
    numbers = cut(weights, kernels, 4)
    assert len(shards_of(numbers, kernels)["k"]) == 3  # 30 cases of 100 in shards of 1,000
    assert set(loads_of(numbers, weights).values()) == {1000}


def test_a_unit_that_exceeds_a_shard_is_split_where_it_shares_least():
    chain = {f"c{number:03}": [f"k{number}", f"k{number + 1}"] for number in range(400)}
    weights = dict.fromkeys(chain, 10)
    twice = [kernel for kernel, shards in shards_of(cut(weights, chain, 8), chain).items() if len(shards) > 1]
    assert len(twice) <= 8  # seven at least


def test_a_part_is_no_heavier_than_a_share_unless_it_is_one_case():
    kernels = {"a": ["k"], "b": ["k"], "c": ["k", "l"]}
    parts = list(split("abc", {"a": 50, "b": 900, "c": 60}, kernels, 100))
    assert sorted(map(tuple, parts)) == [("a",), ("b",), ("c",)]


def test_there_may_be_more_shards_than_cases():
    numbers = cut({"a": 1, "b": 1}, {}, 5)
    assert len(set(numbers.values())) == 2
    assert cut({}, {}, 5) == {}
