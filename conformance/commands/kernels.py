"""``conformance kernels``: prints the catalogue, or writes it as the page ``docs/kernels.md``."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from conformance.commands.shared.suites import import_with_stack
from conformance.reporting.text import markdown_table

if TYPE_CHECKING:
    from conformance.kernels.kernel import Kernel

HELP = "List the kernels of the catalogue: family, dtypes, how they load their operands, targets."

COLUMNS = ("kernel", "family", "dtypes", "loads by", "targets")
#: How many targets "all but ..." names at most.
MOST_LACKING = 3
PAGE = """# Kernels

`conformance kernels --markdown` writes this page. It lists the {count} kernels of this package with Triton {triton}.
Its targets are {targets}.

A kernel has a target if it takes one of its examples there. `conformance check-kernel NAME` says why it refuses others.
The `legacy` kernels need Triton 3.2 or 3.3. The dtype `uint8` of block-scaled products holds two mxfp4 or nvfp4 codes
in a byte. [Bring a kernel](kernel.md) adds a kernel.

{table}
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--markdown", action="store_true", help="the kernels of this package as a page of the guides")


def run(arguments: argparse.Namespace) -> int:
    """Prints the kernels and returns 0. Raises an error of the command line without torch or triton."""
    catalogue = import_with_stack("kernels.catalogue", "kernels")
    targets = import_with_stack("targets", "kernels")
    if arguments.markdown:
        print(page(catalogue.own_kernels().values(), targets), end="")
    else:
        print(columns([COLUMNS, *rows(catalogue.catalogue().values(), targets.compile_targets())]))
    return 0


def page(kernels: Iterable[Kernel], targets: Any) -> str:
    """Returns the page of ``kernels``: the known targets that the installed Triton compiles for, and a table."""
    import triton

    compiled_for = [target for target in targets.known_targets() if targets.why_not(target) is None]
    body = rows(kernels, compiled_for)
    table = markdown_table([COLUMNS, *([f"`{row[0]}`", *row[1:]] for row in body)])
    names = ", ".join(target.id for target in compiled_for)
    return PAGE.format(count=len(body), triton=triton.__version__, targets=names, table=table)


def rows(kernels: Iterable[Kernel], targets: Sequence[Any]) -> list[tuple[str, ...]]:
    """Returns the cells of :data:`COLUMNS` for each kernel."""
    return [
        (
            kernel.name,
            kernel.family,
            ", ".join([*kernel.dtype_names(), *kernel.rare_dtypes]),
            loads(kernel),
            usable(kernel, targets),
        )
        for kernel in kernels
    ]


def loads(kernel: Kernel) -> str:
    """Returns "pointers", "descriptors", or "pointers or descriptors" if the config decides. A descriptor that only the
    output has does not count."""
    if kernel.descriptors or set(getattr(kernel, "described", ())) - {"out"}:
        return "descriptors"
    kinds = {"descriptors" if getattr(config, "described", "") else "pointers" for config in kernel.configs}
    return " or ".join(sorted(kinds, reverse=True))


def usable(kernel: Kernel, targets: Sequence[Any]) -> str:
    """Returns the targets on which the kernel takes an example, such as "all but gfx1250"."""
    names = [target.id for target in targets if kernel.usable_on(target)]
    lacking = [target.id for target in targets if target.id not in names]
    if not names:
        return "none"
    if len(lacking) > MOST_LACKING:
        return ", ".join(names)
    return f"all but {', '.join(lacking)}" if lacking else "all"


def columns(table: Sequence[Sequence[str]]) -> str:
    """Returns the rows as lines whose columns are aligned to the left.

    >>> print(columns([("a", "long"), ("bc", "d")]))
    a   long
    bc  d
    """
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in table]
    return "\n".join(line.rstrip() for line in lines)
