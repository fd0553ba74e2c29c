"""Common parts of the examples of several families: shape classes, names of dtypes, and the sizes that each class
stands for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conformance.heuristics.configs import Config
from conformance.problems import EVERY_FP8, SPLIT_PRECISIONS

#: The dtypes of kernels that multiply plain floats.
FLOATS: tuple[str, ...] = ("bf16", "fp16", "fp32")

#: The shape classes, each with what it shows. M is ragged in all of them. N and K are multiples of 16 except in
#: "several-tiles": without that the compiler neither loads 16 bytes at a time nor pipelines. One compilation serves
#: "several-tiles", and another one all the rest.
SHAPES: Mapping[str, str] = {
    "smaller-than-a-tile": "one tile and one k-block, each of them larger than the problem",
    "ragged": "a second tile of rows and of columns with a few elements, and a third such k-block",
    "several-tiles": "more tiles than the two programs that a sweep gives a persistent kernel, 2 x 3 of them",
    "many-k-blocks": "more k-blocks than the pipeline has stages",
}

#: A shape class of kernels that take no other: two tiles and two k-blocks, and no dimension has a rest.
WHOLE_TILES = "whole-tiles"

#: The shape class of sizes as production has them. No dimension has a rest. K fills the pipeline, in an odd number of
#: blocks, so that it is no multiple of a larger block.
EVEN = "even"

#: Rows that make M ragged: 8 will do, M is no inner extent; 16 is a whole tile of some tables.
ROWS_REST = 8

#: Parts into which a kernel that splits K, or the keys of attention, does so in an example.
SPLITS = 2

#: Size of the matrices whose product is timed on a device, and of the image and the sequence.
TIMED_EDGE, TIMED_IMAGE, TIMED_SEQUENCE = 2048, 32, 2048


def stored_dtype(name: str) -> str:
    """dtype of the first operand for a scenario's name of a dtype: "fp32" for "tf32" and "tf32x3", "fp16" for
    "fp16xint8".

    >>> stored_dtype("tf32"), stored_dtype("bf16")
    ('fp32', 'bf16')
    """
    return "fp32" if name in ("tf32", *SPLIT_PRECISIONS) else name.split("x")[0]


def dtype_fields(name: str) -> dict[str, Any]:
    """The fields of a problem that a scenario's name of a dtype stands for.

    "tf32" is fp32 operands in tf32 precision, likewise those of :data:`~conformance.problems.SPLIT_PRECISIONS`;
    "fp16xint8" is an A of fp16 and a B of int8.

    >>> dtype_fields("tf32")
    {'dtype': 'fp32', 'precision': 'tf32'}
    """
    if name in ("tf32", *SPLIT_PRECISIONS):
        return {"dtype": "fp32", "precision": name}
    second = name.partition("x")[2]
    return {"dtype": stored_dtype(name), **({"b_dtype": second} if second else {})}


def rest(dtype: str, shape: str = "ragged") -> int:
    """Elements by which N and K of a shape class exceed whole blocks; 16 bytes in every dtype."""
    wide = stored_dtype(dtype) in (*EVERY_FP8, "int8")
    return 8 if shape == "several-tiles" and not wide else 16


def matrix_sizes(config: Config, dtype: str, shape: str) -> tuple[int, int, int]:
    """(M, N, K) of a product in a shape class, made from the blocks of ``config``. KeyError for an unknown class."""
    m, n, k, more = config.block_m, config.block_n, config.block_k, rest(dtype, shape)
    return {
        "smaller-than-a-tile": (
            max(m // 32 * 16 - 16, 0) + ROWS_REST,
            max(n // 32 * 16 - 16 + more, more),
            max(k - more, more),
        ),
        "ragged": (m + ROWS_REST, n + more, 2 * k + more),
        "several-tiles": (m + ROWS_REST, 2 * n + more, k + more),
        "many-k-blocks": (m + ROWS_REST, max(n - more, more), (config.num_stages + 1) * k + more),
        WHOLE_TILES: (2 * m, 2 * n, 2 * k),
        EVEN: (m, 2 * n, (config.num_stages + 1 | 1) * k),
    }[shape]
