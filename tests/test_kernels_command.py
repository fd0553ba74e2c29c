"""``conformance kernels``, and the page of the guides that it writes."""

from __future__ import annotations

from pathlib import Path

import pytest
import triton

from conformance import cli, targets
from conformance.codegen_checks import TMA_LOAD
from conformance.commands import kernels as command
from conformance.kernels.catalogue import get, own_kernels

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "kernels.md"
PINNED = next(line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("triton=="))


def without_targets(page: str) -> list[str]:
    """The table of a page without its last column, which depends on the release of Triton."""
    return [line.rsplit(" | ", 1)[0] for line in page.splitlines() if line.startswith("|")]


def test_the_page_is_that_of_the_catalogue(capsys):
    assert cli.main(["kernels", "--markdown"]) == 0
    page, committed = capsys.readouterr().out, PAGE.read_text()
    assert without_targets(committed) == without_targets(page), "write docs/kernels.md again"
    if f"triton=={triton.__version__}" == PINNED:
        assert committed == page, "write docs/kernels.md again: conformance kernels --markdown > docs/kernels.md"


def test_a_page_that_lacks_a_kernel_is_another():
    page = command.page(list(own_kernels().values())[1:], targets)
    assert without_targets(page) != without_targets(PAGE.read_text())


def test_the_list_has_each_kernel_once(capsys):
    assert cli.main(["kernels"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split("  ")[0] == "kernel"
    assert [line.split()[0] for line in lines][: len(own_kernels())] == list(own_kernels())


@pytest.mark.parametrize("name", ["sm_90", "sm_100"])
def test_kernels_load_as_the_list_says(name):
    """Requires a TMA load of the compiled code exactly if the list says "descriptors"."""
    target, wrong = targets.find(name), []
    for kernel in own_kernels().values():
        ways = [(kernel.fitted(dtype, c, target), dtype, c) for dtype in kernel.dtype_names() for c in kernel.configs]
        required = {
            TMA_LOAD in way.features(way.plan(way.example(dtype, c, way.usual_shape), c, target, variant)).required
            for way, dtype, c in ways
            if way is not None and (variant := c.in_variant(way.example_variant()))
        }
        kinds = {{True: "descriptors", False: "pointers"}[value] for value in required}
        if required and kinds != set(command.loads(kernel).split(" or ")):
            wrong.append((kernel.name, required, command.loads(kernel)))
    assert not wrong


@pytest.mark.parametrize(
    ("kernel", "loads", "usable"),
    [
        ("mm", "pointers", "all"),
        ("mm_reduce_split_k", "pointers", "all but gfx942"),
        ("mm_specialised", "pointers or descriptors", "sm_90"),
        ("mm_persistent_tma", "descriptors", "sm_90"),
        ("mm_legacy_tma", "descriptors", "none"),
    ],
)
def test_cells(kernel, loads, usable, monkeypatch):
    monkeypatch.setattr(command, "MOST_LACKING", 1)
    kernel = get(kernel)
    chosen = [target for target in targets.known_targets() if target.id in ("sm_90", "sm_80", "gfx942")]
    monkeypatch.setattr(type(kernel), "usable_on", lambda self, target: target.id in TAKEN[usable])
    assert command.loads(kernel) == loads
    assert command.usable(kernel, chosen) == usable


#: What a text about targets means among three of them.
TAKEN = {
    "all": ("sm_90", "sm_80", "gfx942"),
    "all but gfx942": ("sm_90", "sm_80"),
    "sm_90": ("sm_90",),
    "none": (),
}
