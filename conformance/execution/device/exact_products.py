"""Multiplies small integers on a GPU with torch alone, and counts wrong elements: ``python -m`` this module.

The products are exact in every dtype, so each wrong element is a fault of the device or of torch's library. No kernel
of Triton takes part.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

#: Rows and columns of a result, and the length of its sums. With factors of at most 1 each sum is exact in bfloat16.
SIZE, DEPTH = 2048, 256


def wrong_elements(seconds: float) -> dict[str, int]:
    """Returns the number of wrong elements by dtype, after products for about ``seconds``. Empty if torch finds no
    GPU."""
    import torch

    if not torch.cuda.is_available():
        return {}
    torch.manual_seed(0)
    left, right = (torch.randint(-1, 2, shape, dtype=torch.int8) for shape in ((SIZE, DEPTH), (DEPTH, SIZE)))
    exact = (left.double() @ right.double()).cuda()
    wrong: dict[str, int] = {}
    until = time.monotonic() + seconds
    products = dict(_products(torch, left.cuda(), right.cuda()))
    while products:
        for name, product in products.items():
            wrong[name] = wrong.get(name, 0) + int((product().double() != exact).sum())
        if time.monotonic() > until:
            break
    return wrong


def _products(torch: Any, left: Any, right: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yields the dtypes that the device multiplies, each with the call."""
    columns = right.t().contiguous().t()
    one = torch.ones((), device=left.device)

    def product(dtype: Any) -> Any:
        return left.to(dtype) @ right.to(dtype)

    def scaled(dtype: Any) -> Any:
        return torch._scaled_mm(left.to(dtype), columns.to(dtype), one, one, out_dtype=torch.bfloat16)

    calls: dict[str, Callable[[], Any]] = {
        "float16": partial(product, torch.float16),
        "bfloat16": partial(product, torch.bfloat16),
        "float32": partial(product, torch.float32),
        "int8": lambda: torch._int_mm(left, columns),
        "float8_e4m3fn": partial(scaled, torch.float8_e4m3fn),
    }
    for name, call in calls.items():
        try:
            call()
        except (RuntimeError, AttributeError):  # a device or a build without this dtype
            continue
        yield name, call


if __name__ == "__main__":
    print(json.dumps(wrong_elements(float(sys.argv[1]))))
