"""A part of a large result is judged, of the tiles that the kernel's programs make by its own words."""

from __future__ import annotations

import pytest

from conformance.kernels import catalogue
from tests.execution.window_kernels import ColumnsFirst, judged
from tests.kernels.interpreter_runs import in_interpreter


def test_a_kernel_that_says_which_program_makes_which_tile_is_judged() -> None:
    checks = in_interpreter(judged, False)
    assert all(checks.values())
    assert [name for name in checks if "tile" in name] == [f"numerics/tile-{number}" for number in (0, 31, 32, 63)]


def test_a_kernel_that_names_other_tiles_fails() -> None:
    checks = in_interpreter(judged, True)
    assert checks["numerics/tile-0"]
    assert not checks["numerics/tile-31"]


def test_only_some_kernels_say_it() -> None:
    assert ColumnsFirst().knows_tiles
    assert catalogue.get("mm").knows_tiles
    silent = catalogue.get("mm_stream_k")
    assert not silent.knows_tiles
    with pytest.raises(NotImplementedError, match="does not say which program makes which tile"):
        silent.tile_of(None, (0,))
