"""The compiler: NVIDIA's up to its LLVM code, which is the binary here."""

import re

from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import compiler as nvidia

#: The architecture for which the borrowed stages compile.
BORROWED = 80


class ThirdBackend(nvidia.CUDABackend):
    @staticmethod
    def supports_target(target):
        return target.backend == "third"

    def __init__(self, target):
        super().__init__(GPUTarget("third", BORROWED, target.warp_size))
        self.binary_ext = "third"

    def hash(self):
        return "third"  # part of the key of Triton's cache: the borrowed one is NVIDIA's

    def add_stages(self, stages, options, language):
        super().add_stages(stages, options, language)
        for name in list(stages):
            if name not in ("ttir", "ttgir", "llir"):
                del stages[name]
        stages["third"] = _binary


def _binary(source, metadata):
    metadata["name"] = re.search(r"define .*@(\w+)\(", source)[1]
    return source.encode()
