"""The base of the kernels of attention."""

from __future__ import annotations

import itertools
import math
from typing import Any, ClassVar

from conformance.families.attention.problem import Attention
from conformance.families.examples import FLOATS
from conformance.families.family import LEAST
from conformance.heuristics.configs import AnyConfig
from conformance.heuristics.device_class import HEAD_DIMS
from conformance.heuristics.lookup import flex_default
from conformance.kernels.kernel import Kernel


class AttentionFamily(Kernel):
    """A kernel whose problems are :class:`~conformance.families.attention.problem.Attention`. A third-party kernel
    needs only this base."""

    problems = Attention
    weight = 1
    family = "attention"
    dtypes = FLOATS
    operation: ClassVar[str]
    #: whether one program holds all queries and the keys are split among programs instead
    few_queries: bool = False
    #: products of tiles in the code of the main launch: scores and values, in blocks with a mask and without
    products: ClassVar[int] = 4

    def multiply_adds(self, problem: Any, config: Any) -> int:
        """See :class:`Kernel`. A program with few queries holds at least the smallest tile of them."""
        rows = LEAST if self.few_queries else 1
        return self.products * rows * math.prod(config.tile[:2]) * problem.head_dim  # type: ignore[no-any-return]

    def default_configs(self, target: Any) -> tuple[AnyConfig, ...]:
        """See :class:`Kernel`: one for each dtype and head dim, if there is a table."""
        if self.table is None:
            return ()
        sizes = itertools.product(self.dtypes, HEAD_DIMS)
        return tuple(flex_default(target, self.table, head_dim, dtype) for dtype, head_dim in sizes)
