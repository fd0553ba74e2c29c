"""Prints Triton's own linear map of each layout that it is given: the child of test_layouts.py.

It reads a JSON list of pairs of a layout's text and a shape. For each it prints a line of JSON: the bases of each
holder, or under "none" why there are none.
"""

from __future__ import annotations

import json
import sys

from conformance.ttgir.layouts import layout_of


class Oracle:
    """Triton's own maps, by the builder of Gluon's layouts."""

    def __init__(self):
        from triton._C.libtriton import amd, gluon_ir, ir, nvidia

        self.context = ir.context()
        ir.load_dialects(self.context)
        nvidia.load_dialects(self.context)
        amd.load_dialects(self.context)
        self.builder = gluon_ir.GluonOpBuilder(self.context)

    def __call__(self, layout, shape):
        linear = self.builder.to_linear_layout(self.of(layout, len(shape))._to_ir(self.builder), list(shape))
        if hasattr(linear, "reg_bases"):
            names = {"register": "reg_bases", "lane": "lane_bases", "warp": "warp_bases", "block": "block_bases"}
        else:
            memory = {"row": "rows", "column": "cols"}
            names = memory if hasattr(linear, "rows") else {"offset": "offset_bases", "block": "block_bases"}
        return {holder: getattr(linear, name) for holder, name in names.items()}

    def of(self, layout, rank):
        from triton.experimental.gluon.language import _layouts as gluon
        from triton.experimental.gluon.language.amd import _layouts as amd
        from triton.experimental.gluon.language.nvidia import blackwell

        words = layout.words
        match layout.kind:
            case "blocked":
                spread = [words[word] for word in ("sizePerThread", "threadsPerWarp", "warpsPerCTA", "order")]
                return gluon.BlockedLayout(*spread, words.get("CGALayout", []))
            case "linear":
                bases = [words[holder] for holder in ("register", "lane", "warp", "block")]
                sizes = [max(2 * basis[axis] for held in bases for basis in held) for axis in range(rank)]
                return gluon.DistributedLinearLayout(*bases, sizes)
            case "slice":
                return gluon.SliceLayout(words["dim"], self.of(words["parent"], rank + 1))
            case "dot_op":
                return gluon.DotOperandLayout(words["opIdx"], self.of(words["parent"], rank), words["kWidth"])
            case "nvidia_mma":
                version = [words["versionMajor"], words["versionMinor"]]
                return gluon.NVMMADistributedLayout(version, words["warpsPerCTA"], words["instrShape"], [])
            case "amd_mfma":
                more = words.get("elementBitWidth"), words.get("tilesPerWarp")
                return amd.AMDMFMALayout(
                    words["version"], words["instrShape"], words["isTransposed"], words["warpsPerCTA"], *more
                )
            case "amd_wmma":
                return amd.AMDWMMALayout(
                    words["version"], words["isTranspose"], words["ctaLayout"]["warp"], [], words["instrShape"]
                )
            case "swizzled_shared":
                return gluon.SwizzledSharedLayout(*(words[w] for w in ("vec", "perPhase", "maxPhase", "order")), [])
            case "nvmma_shared":
                swizzle = words["swizzlingByteWidth"], words["elementBitWidth"], rank, words["transposed"]
                return gluon.NVMMASharedLayout(*swizzle, words.get("fp4Padded", False), [])
            case "tensor_memory_encoding":
                return blackwell.TensorMemoryLayout((words["blockM"], words["blockN"]), words["colStride"])
            case "tensor_memory_scales_encoding":
                return blackwell.TensorMemoryScalesLayout()
        raise AssertionError(layout.kind)


def main() -> None:
    try:
        oracle = Oracle()
        assert hasattr(oracle.builder, "to_linear_layout"), "it has no to_linear_layout"
    except (ImportError, AttributeError, AssertionError) as error:
        oracle, missing = None, f"the installed Triton does not show its linear layouts: {error}"
    for text, shape in json.load(sys.stdin):
        try:
            answer = {"none": missing} if oracle is None else oracle(layout_of(text, {}), shape)
        except (TypeError, AssertionError, RuntimeError, AttributeError) as error:
            answer = {"none": f"the installed Triton does not show this map: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
