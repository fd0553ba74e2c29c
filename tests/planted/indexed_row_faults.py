"""Faults of rows by their numbers, of sorted rows and of dropout."""

from __future__ import annotations

from conformance.families.rows.dropout import DROPOUT
from conformance.families.rows.indexing import GATHER, SCATTER_ADD
from conformance.families.rows.ordering import SORT, TOP_K
from tests.planted.cases import grouped
from tests.planted.row_faults import faults_of

_ADD = 'tl.atomic_add(place, x, mask=inside, sem="relaxed")'
_NUMBER = "rm[:, None] * columns + (start + tl.arange(0, BLOCK_N))[None, :]"
_BY_COLUMNS = "rm[:, None] + (start + tl.arange(0, BLOCK_N))[None, :] * rows"

INDEXED_ROWS = grouped(
    "indexed-rows",
    *faults_of(
        GATHER,
        "device/indexing.py",
        {"gather_rows": (("in_order", "table_ptr, entry", "table_ptr, rm", "rows are copied in order"),)},
    ),
    *faults_of(
        SCATTER_ADD,
        "device/indexing.py",
        {
            "scatter_add_rows": (("last_alone", _ADD, "tl.store(place, x, mask=inside)", "the last is stored"),),
            "zero_rows": (("last_entry", "row_block(entries,", "row_block(entries - 1,"),),
        },
    ),
    *faults_of(
        SORT,
        "device/ordering.py",
        {
            "order_rows": (("last_of_equals", "None, :] < rn", "None, :] > rn", "of equal elements the last column"),),
            "is_before": (("nan", "((b != b) & (a == a))", "((a != a) & (b == b))"),),
        },
    ),
    *faults_of(TOP_K, "device/ordering.py", {"order_rows": (("one_less", "place < PLACES", "place < PLACES - 1"),)}),
    *faults_of(
        DROPOUT,
        "device/dropout.py",
        {
            "dropout_rows": (
                ("inverted", ">= p", "< p", "what is kept is dropped"),
                ("by_columns", _NUMBER, _BY_COLUMNS, "elements are counted column by column"),
                ("multiplied", "tl.where(keep, x / (1.0 - p), 0.0)", "keep.to(tl.float32) * x / (1.0 - p)"),
            )
        },
    ),
)
