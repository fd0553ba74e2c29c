"""The ranges of blocks that the attention kernels walk through, and the known survivors among their faults.

The functions that compute them work on integers alone, so they run in Python. A fault changes no result if every
visible pair is still in one block of the walk. In a block without a mask every pair must be visible. Then more blocks
are walked through or masked than must be.
"""

from __future__ import annotations

import ast
import functools
import itertools
from types import SimpleNamespace

import pytest

from conformance.kernels.device import attention_tiles
from conformance.mutation.functions import device_function
from conformance.mutation.known_survivors import known_survivors
from conformance.mutation.mutants import mutants_of

NAMES = ("_as_blocks", "key_blocks", "query_blocks", "_share")
FUNCTIONS = {name: device_function(getattr(attention_tiles, name)) for name in NAMES}
MUTANTS = {mutant.id: mutant for function in FUNCTIONS.values() for mutant in mutants_of(function)}
#: Extents of the blocks that are walked through, and of the block that one program has.
BLOCK, OWN = 16, (16, 32)
LENGTHS = (1, 16, 17, 33, 66, 97)
WINDOWS = (1, 2, 15, 17, 18, 33, 47, 63)
MASKS = (("full", 0), ("causal", 0), ("document", 0), *(("sliding-window", size) for size in WINDOWS))


class Number(int):
    """An integer whose quotients are rounded towards zero, as in Triton."""

    def __add__(self, other):
        return Number(int(self) + int(other))

    def __sub__(self, other):
        return Number(int(self) - int(other))

    def __mul__(self, other):
        return Number(int(self) * int(other))

    def __floordiv__(self, other):
        quotient = abs(int(self)) // abs(int(other))
        return Number(quotient if (self < 0) == (other < 0) else -quotient)


def made(mutant=None):
    """The functions in Python, one of them as ``mutant`` is."""
    language = SimpleNamespace(
        minimum=lambda a, b: Number(min(a, b)),
        maximum=lambda a, b: Number(max(a, b)),
        cdiv=lambda a, b: Number(a + b - 1) // b,
        constexpr=int,
    )
    names = {"tl": language}
    for function in FUNCTIONS.values():
        (node,) = ast.parse(mutant.source if mutant and mutant.function is function else function.source).body
        node.decorator_list = []
        exec(compile(ast.Module([node], []), function.name, "exec"), names)
    return SimpleNamespace(**{name: names[name] for name in NAMES})


def visible(kind, window, position, key):
    """Returns True if a query at ``position`` may see a key."""
    behind = key <= position and (kind == "causal" or key > position - window)
    return kind in ("full", "document") or behind


def blocks(rows, columns):
    """Blocks of ``columns`` that hold a pair which may be visible, by bools of ``rows``, and those with no other."""
    some, full = set(), set()
    for block in range(-(-columns // BLOCK)):
        pairs = [row[block * BLOCK : (block + 1) * BLOCK] for row in rows]
        some |= {block} if any(map(any, pairs)) else set()
        full |= {block} if all(map(all, pairs)) and len(pairs[0]) == BLOCK else set()
    return some, full


@functools.cache
def programs():
    """Returns by "queries" and "keys" the programs that have a block of them. Each has the block's begin and extent,
    the problem, and the blocks of the others as :func:`blocks` gives them."""
    every = {"queries": [], "keys": []}
    for queries, keys, (kind, window), own in itertools.product(LENGTHS, LENGTHS, MASKS, OWN):
        seen = [[visible(kind, window, query + keys - queries, key) for key in range(keys)] for query in range(queries)]
        for name, pairs in (("queries", seen), ("keys", [list(column) for column in zip(*seen, strict=True)])):
            for begin in range(0, len(pairs), own):
                sets = blocks(pairs[begin : begin + own], len(pairs[0]))
                every[name].append((begin, own, (queries, keys, kind, window), sets))
    return every


def right(walks, kind, some, full):
    """Returns True if ``walks``, each with its range and True if it masks, visit the blocks ``some``, none twice.
    Without a mask they must visit only those that are ``full``. Documents have no walk without a mask."""
    walks = [(masks, walk) for masks, walk in walks if masks or kind != "document"]
    visited = [block for _, walk in walks for block in range(*walk)]
    unmasked = [block for masks, walk in walks if not masks for block in range(*walk)]
    return (
        len(visited) == len(set(visited))
        and some <= set(visited)
        and min(visited, default=0) >= 0
        and full >= {*unmasked}
    )


def wrong(functions):
    """The first program whose walk is wrong."""
    for begin, own, (queries, keys, kind, window), sets in programs()["queries"]:
        position = Number(begin + keys - queries)
        first, first_full, end_full, end = functions.key_blocks(
            position, position + (own - 1), Number(keys), Number(window), BLOCK, kind
        )
        slides = kind == "sliding-window"
        walks = [(True, (first, first_full))] * slides + [(False, (first_full, end_full)), (True, (end_full, end))]
        shares = {0: walks}  # by the number of parts; 0 stands for the backward pass
        for parts in (1, 2, 5):
            shares[parts] = []
            for part in range(parts):
                low, high = functions._share(first, end, Number(part), parts)
                at = min(max(first_full, low), high)
                masked = min(max(end_full, at), high)
                shares[parts] += [(True, (low, at))] * slides + [(False, (at, masked)), (True, (masked, high))]
        for parts, walks in shares.items():
            if not right(walks, kind, *sets):
                return begin, own, queries, keys, kind, window, parts
    for begin, own, (queries, keys, kind, window), sets in programs()["keys"]:
        first, first_full, end_full, end = functions.query_blocks(
            Number(begin), Number(begin + own - 1), Number(queries), Number(keys - queries), Number(window), BLOCK, kind
        )
        before = [(True, (first, first_full))] if kind in ("causal", "sliding-window") else []
        if not right([*before, (False, (first_full, end_full)), (True, (end_full, end))], kind, *sets):
            return begin, own, queries, keys, kind, window
    return None


def test_every_visible_pair_is_in_one_block_of_the_walk():
    assert wrong(made()) is None


def test_known_survivors_leave_every_visible_pair_in_the_walk():
    survivors = [MUTANTS[name] for name in known_survivors() if name in MUTANTS]
    assert survivors
    assert {survivor.id: wrong(made(survivor)) for survivor in survivors} == {each.id: None for each in survivors}


@pytest.mark.parametrize(
    "fault",
    [
        "attention_tiles._as_blocks:body2.value.args0.args0:bound:2",  # a block too few
        "attention_tiles.key_blocks:body6.body1.value:arithmetic:2",  # a block without a mask that needs one
        "attention_tiles._share:body2.value.args0.right:arithmetic:2",  # a block twice
        "attention_tiles.key_blocks:body7:predicate:1",  # blocks before the first one, for queries far before all keys
        "attention_tiles.query_blocks:body7:predicate:1",  # the same for keys that lie far before all queries
    ],
)
def test_a_wrong_walk_is_seen(fault):
    assert wrong(made(MUTANTS[fault])) is not None
