"""The compiler: NVIDIA's up to its LLVM code, which is the binary here.

``THIRD_BACKEND=deletes`` makes it wrong: it drops every product and every store. ``THIRD_BACKEND=deletes,hides`` drops
them too, and shows no code below TTIR.
"""

import os
import re
import tempfile
from pathlib import Path

from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import compiler as nvidia

#: The architecture for which the borrowed stages compile.
BORROWED = 80
#: How the compiler is wrong, if it is.
FAULTS = frozenset(filter(None, os.environ.get("THIRD_BACKEND", "").split(",")))


class ThirdBackend(nvidia.CUDABackend):
    @staticmethod
    def supports_target(target):
        return target.backend == "third"

    def __init__(self, target):
        super().__init__(GPUTarget("third", BORROWED, target.warp_size))
        self.binary_ext = "third"

    def hash(self):
        return "-".join(["third", *sorted(FAULTS)])  # part of the key of Triton's cache: the borrowed one is NVIDIA's

    def add_stages(self, stages, options, language):
        borrowed = {}
        super().add_stages(borrowed, options, language)

        def ttgir(source, metadata):
            module = borrowed["ttgir"](source, metadata)
            return without_products_and_stores(module) if "deletes" in FAULTS else module

        def binary(source, metadata):
            return _binary(borrowed["llir"](ttgir(source, metadata), metadata), metadata)

        stages["ttir"] = borrowed["ttir"]
        if "hides" in FAULTS:
            stages["third"] = binary
        else:
            stages |= {"ttgir": ttgir, "llir": borrowed["llir"], "third": _binary}


def without_products_and_stores(module):
    """``module`` with each product replaced by its accumulator, and without its stores."""
    text = str(module)
    for result, accumulator in re.findall(r"^\s*(%\w+) = tt\.dot %\w+, %\w+, (%\w+)\b.*$", text, re.MULTILINE):
        text = re.sub(rf"^\s*{result} = tt\.dot .*\n", "", text, flags=re.MULTILINE)
        text = re.sub(rf"{result}\b", accumulator, text)
    text = re.sub(r"^\s*tt\.store .*\n", "", text, flags=re.MULTILINE)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.ttgir"
        file.write_text(text)
        changed = ir.parse_mlir_module(str(file), module.context)
    changed.context = module.context
    return changed


def _binary(source, metadata):
    metadata["name"] = re.search(r"define .*@(\w+)\(", source)[1]
    return source.encode()
