"""Checks that registers do not hold the operands of ``mma.sync`` so that some k are multiplied twice and others never.

In the layout ``dot_op`` with ``kWidth`` w, thread t of four holds w consecutive k from w t on, and w more from
4 w + w t on: 8 w in all. If a tile has fewer k, they repeat. Triton multiplies a thread's first registers. These hold
each k once if the layout repeats it twice. If it repeats it more often, they hold some k twice and others never.
"""

from __future__ import annotations

import re

#: Times that each k may stand in the registers of four threads.
REPEATED_AT_MOST = 2

_DOT = re.compile(
    r"= tt\.dot [^:\n]*?: tensor<\d+x(?P<depth>\d+)x\w+, #ttg\.dot_op<\{opIdx = 0, parent = (?P<layout>#\w+), "
    r"kWidth = (?P<width>\d+)\}>>"
)


def repeated_depths(ttgir: str) -> set[tuple[int, int]]:
    """``(k of a tile, kWidth)`` of the products in ``ttgir`` whose registers repeat each k too often. Only those of
    ``mma.sync``, version 2 of NVIDIA's layouts."""
    versions = dict(re.findall(r"^(#\w+) = #ttg\.nvidia_mma<\{versionMajor = (\d+)", ttgir, re.M))
    dots = {
        (int(dot["depth"]), int(dot["width"])) for dot in _DOT.finditer(ttgir) if versions.get(dot["layout"]) == "2"
    }
    return {(depth, width) for depth, width in dots if 8 * width > REPEATED_AT_MOST * depth}
