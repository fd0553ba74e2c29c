"""Descriptors of matrices in either order, and blocks that they load.

``make_tensor_descriptor`` is called by its whole name. Triton 3.2 and 3.3 look for each name of ``tl`` in a function,
also in code that a constant leaves out. They have none of this name.
"""

import triton
import triton.language as tl


@triton.jit
def describe(ptr, rows, columns, pitch, ROWS: tl.constexpr, COLUMNS: tl.constexpr, ROW_MAJOR: tl.constexpr):
    """A descriptor of a matrix, or of its transpose if the matrix is column-major, with blocks of ROWS x COLUMNS of the
    matrix. One without elements is described as if it had some, and must not be loaded from."""
    rows = max(rows, 1)
    columns = max(columns, 1)
    if ROW_MAJOR:
        descriptor = triton.language.make_tensor_descriptor(ptr, [rows, columns], [pitch, 1], [ROWS, COLUMNS])
    else:
        descriptor = triton.language.make_tensor_descriptor(ptr, [columns, rows], [pitch, 1], [COLUMNS, ROWS])
    return descriptor


@triton.jit
def describe_batch(
    ptr, batch, rows, columns, apart, pitch, ROWS: tl.constexpr, COLUMNS: tl.constexpr, ROW_MAJOR: tl.constexpr
):
    """The same of a batch of matrices, ``apart`` elements from one to the next: a block has one matrix of it."""
    rows = max(rows, 1)
    columns = max(columns, 1)
    if ROW_MAJOR:
        descriptor = triton.language.make_tensor_descriptor(
            ptr, [batch, rows, columns], [apart, pitch, 1], [1, ROWS, COLUMNS]
        )
    else:
        descriptor = triton.language.make_tensor_descriptor(
            ptr, [batch, columns, rows], [apart, pitch, 1], [1, COLUMNS, ROWS]
        )
    return descriptor


@triton.jit
def load_block(
    desc, matrix, row, column,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, ROW_MAJOR: tl.constexpr, BATCH: tl.constexpr,
):  # fmt: skip
    """The (ROWS, COLUMNS) block at (row, column) of what ``desc`` describes, of number ``matrix`` of a BATCH."""
    if BATCH:
        if ROW_MAJOR:
            block = desc.load([matrix, row, column]).reshape(ROWS, COLUMNS)
        else:
            block = desc.load([matrix, column, row]).reshape(COLUMNS, ROWS).T
    else:
        if ROW_MAJOR:
            block = desc.load([row, column])
        else:
            block = desc.load([column, row]).T
    return block
