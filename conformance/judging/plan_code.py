"""Checks what a plan asks of the code of its launches, whatever the kernel says of itself.

In Triton's own representation of the code, the operands of every product have exactly the dtype of the problem. They
are summed there in the dtype of the contract. In the matrix instruction they may have a wider type that holds the same
values. A product with scales has the formats of the problem in Triton's representation; what multiplies it is a codegen
feature. An IEEE product of fp32 uses no matrix unit of NVIDIA's, which has none for it. Where the compiler promotes fp8
sums, it does so after as many k as the kernel promises, or sooner. The tiles that are multiplied are those of the
config. Descriptors are made where the variant says. An MFMA that makes the transposed tile names the formats of its
operands in the order in which they are exchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from conformance import codegen_checks
from conformance.codegen_checks import CompiledCode
from conformance.families.family import CodeTile, family_of
from conformance.families.gemm.refusals import MAKERS
from conformance.families.microscaled.problem import BlockScaled
from conformance.kernels.kernel import Features, Kernel, Plan
from conformance.problems import EVERY_FP8, FNUZ
from conformance.records import Check, CheckKind, ExecutorName, Verdict

#: dtype -> what TTIR calls it.
MLIR_TYPES = {
    "fp16": "f16",
    "bf16": "bf16",
    "fp32": "f32",
    "fp64": "f64",
    "e4m3": "f8E4M3FN",
    "e5m2": "f8E5M2",
    "e4m3fnuz": "f8E4M3FNUZ",
    "e5m2fnuz": "f8E5M2FNUZ",
    "int8": "i8",
}
#: dtype or precision -> operand types of matrix instructions that hold its values.
HOLDING = {
    "fp16": {"f16", "f32", "kind::f16"},
    "bf16": {"bf16", "f32", "kind::f16"},
    "e4m3": {"e4m3", "fp8", "f8f6f4", "f16", "bf16", "kind::f8f6f4", "kind::f16"},
    "e5m2": {"e5m2", "bf8", "f8f6f4", "f16", "bf16", "kind::f8f6f4", "kind::f16"},
    "e4m3fnuz": {"fp8"},
    "e5m2fnuz": {"bf8"},
    "fp64": {"f64"},
    "int8": {"s8", "i8", "iu8", "kind::i8"},
    "tf32": {"tf32", "xf32", "f32", "kind::tf32"},
    "tf32x3": {"tf32", "kind::tf32"},
    "bf16x3": {"bf16", "kind::f16"},
    "bf16x6": {"bf16", "kind::f16"},
    "ieee": {"f32"},
}

_SCALED_DOT = re.compile(r"\btt\.dot_scaled\b.*\blhs = (\w+) rhs = (\w+)")
_DOT = re.compile(r"\btt\.dot\b(?P<rest>.*)")
_TENSOR = re.compile(r"tensor<(?:\d+x)+(\w+)")
_MATRICES = re.compile(r"tensor<(\d+)x(\d+)x\w+>.*?\* tensor<\d+x(\d+)x\w+>")
_SUM = re.compile(r"-> tensor<(?:\d+x)+(\w+)")
_PRECISION = re.compile(r"inputPrecision = (\w+)")
_PROMOTED_AFTER = re.compile(r"maxNumImpreciseAcc = (\d+)")
_MMA = re.compile(r"^mma\.sync\.\S*\.(\w+)\.(\w+)\.\w+\s", re.M)
_WGMMA = re.compile(r"^wgmma\.mma_async\.\S*\.(\w+)\.(\w+)\s", re.M)
_TCGEN05 = re.compile(r"^tcgen05\.mma\S*\.(kind::\w+)", re.M)
#: An MFMA whose operands are exchanged, so that it makes the transposed tile, and what the operands of one are called.
_TRANSPOSED, _MFMA_PAIR = "isTransposed = true", re.compile(r"^v_mfma_f32_\d+x\d+x\d+_(fp8|bf8)_(fp8|bf8)\b", re.M)
_MFMA_FP8 = {"e4m3": "fp8", "e5m2": "bf8", "e4m3fnuz": "fp8", "e5m2fnuz": "bf8"}
_AMD = re.compile(r"^v_s?(?:mfma|wmma|swmmac|mfmac)(?:_scale)?_[a-z]+\d+_\d+x\d+x\d+_?(\w+)", re.M)


def operand_types(vendor: str, text: str) -> set[str]:
    """The operand types of the matrix instructions in ``text``, which is PTX or AMD's assembly without comments.
    tcgen05 has a kind, which leaves open which of several types is meant."""
    if vendor == "nvidia":
        pairs = [*_MMA.findall(text), *_WGMMA.findall(text)]
        return {name for pair in pairs for name in pair} | set(_TCGEN05.findall(text))
    parts = [part for rest in _AMD.findall(text) for part in rest.split("_")]
    return {part for part in parts if part not in ("1k", "e32", "e64") and not re.fullmatch(r"\d+b", part)}


def dots(text: str) -> set[tuple[str, ...]]:
    """Returns the products in ``text``, TTIR: the types of both operands, and the precision of fp32 ones."""
    products = set()
    for match in _DOT.finditer(text):
        types = _TENSOR.findall(match["rest"])[:2]
        precision = _PRECISION.search(match["rest"])
        products.add((*types, precision[1] if precision else "ieee") if "f32" in types else tuple(types))
    return products


def sums(text: str) -> set[str]:
    """The types in which products are summed in ``text``, TTIR."""
    kinds = [_SUM.search(match["rest"]) for match in _DOT.finditer(text)]
    return {kind[1] for kind in kinds if kind}


def tiles(text: str) -> set[CodeTile]:
    """The tiles of the products in ``text``, TTIR: rows, columns and the extent that is summed over."""
    shapes = [_MATRICES.search(match["rest"]) for match in _DOT.finditer(text)]
    return {(int(shape[1]), int(shape[3]), int(shape[2])) for shape in shapes if shape}


def plan_verdicts(kernel: Kernel, plan: Plan, artefact: CompiledCode, launch: str = "") -> Iterator[Verdict]:
    """Returns a failing verdict for each thing in ``artefact`` that ``plan`` does not allow, none if all is as it must
    be. ``launch`` is the name of the function, if it is not the main launch. Code without the stages that show it says
    nothing, and a launch without products neither."""
    problem, code = plan.problem, f"{kernel.name}, {launch}," if launch else kernel.name
    texts = {stage: codegen_checks.code_of(path, stage) for stage, path in artefact.stages.items()
             if stage in ("ttir", "ptx", "amdgcn")}  # fmt: skip
    if isinstance(problem, BlockScaled):
        asked_for = (problem.formats[0].codes, problem.formats[1].codes)
        formats = set(_SCALED_DOT.findall(texts.get("ttir", ""))) - {asked_for}
        if formats:
            yield _verdict("products", f"{code} multiplies {_shown(formats)}, its plan asks for {_shown({asked_for})}")
        return
    names = _multiplied(problem)
    if names is None:
        return
    precision = problem.precision
    if "ttir" in texts:
        pair = tuple(MLIR_TYPES[name] for name in names)
        planned = (*pair, precision) if "f32" in pair else pair
        wrong = {dot for dot in dots(texts["ttir"]) if dot not in (planned, (*planned[1::-1], *planned[2:]))}
        if wrong:
            yield _verdict("products", f"{code} multiplies {_shown(wrong)}, its plan asks for {_shown({planned})}")
        accumulator = kernel.contract(plan, ExecutorName.DEVICE).accumulator
        summed, kept = sums(texts["ttir"]), "i32" if accumulator.kind == "int" else MLIR_TYPES[accumulator.dtype]
        if summed - {kept}:
            others = ", ".join(sorted(summed - {kept}))
            yield _verdict("sums", f"{code} sums in {others}; its contract promises {kept}")
        code_tiles = family_of(plan.problem).code_tiles
        multiplied, expected = tiles(texts["ttir"]), code_tiles(kernel, plan, launch)
        if multiplied and expected not in (None, multiplied):
            text = f"{code} multiplies tiles of {_sizes(multiplied)}; its plan asks for {_sizes(expected or ())}"
            yield _verdict("tiles", text)
        promise = _promotion(kernel, plan)
        later = {int(k) for k in _PROMOTED_AFTER.findall(texts["ttir"]) if promise is not None and int(k) > promise}
        if later:
            text = f"{code} promises promotion after {promise} k, its code has one after {max(later)}"
            yield _verdict("promotion", text)
    assembly = texts.get("ptx") or texts.get("amdgcn")
    if assembly is None or (plan.target.vendor == "amd" and (names[0], precision) == ("fp32", "tf32")):
        return
    types = operand_types(plan.target.vendor, assembly)
    allowed = {kind for name in names for kind in HOLDING[precision if name == "fp32" else name]}
    if names[0] not in FNUZ and plan.target.capability(FNUZ[0]).available:
        allowed -= {"fp8", "bf8"}  # which are those of FNUZ there: the compiler converts other fp8 to fp16
    if plan.target.vendor == "nvidia" and (names[0], precision) == ("fp32", "ieee"):
        allowed = set()
    if types - allowed:
        what = (
            f"one of {', '.join(sorted(allowed))}" if allowed else "no matrix unit, for fp32 operands in IEEE precision"
        )
        text = f"{code} multiplies operands of {', '.join(sorted(types - allowed))}; its plan asks for {what}"
        yield _verdict("operands", text)
    if plan.target.vendor == "amd" and names[0] != names[1] and "ttgir" in artefact.stages:
        transposed = _TRANSPOSED in codegen_checks.code_of(artefact.stages["ttgir"], "ttgir")
        wanted_order = [_MFMA_FP8[name] for name in (names[::-1] if transposed else names) if name in _MFMA_FP8]
        wrong_order = {pair for pair in _MFMA_PAIR.findall(assembly) if list(pair) == wanted_order[::-1]}
        if wrong_order:
            text = f"{code} multiplies {' by '.join(wanted_order)} as if they were {' by '.join(wanted_order[::-1])}"
            yield _verdict("operand-order", text)


def _multiplied(problem: Any) -> tuple[str, str] | None:
    """Returns the dtypes of the operands of the problem's products; None where it has none, or operands of no such
    type."""
    if not getattr(problem, "has_product", True):
        return None
    names = (problem.dtype, problem.dtype)
    if problem.dtype in EVERY_FP8 and hasattr(problem, "second_dtype"):
        names = (problem.a_dtype, problem.second_dtype)
    return names if set(names) <= MLIR_TYPES.keys() else None


def _promotion(kernel: Kernel, plan: Plan) -> int | None:
    """After how many k the compiler must promote a sum at the latest; None where it need not. A kernel with block
    scales does so itself."""
    if getattr(kernel, "block_scaled", False) or not hasattr(kernel, "promotion"):
        return None
    promise: int | None = kernel.promotion(plan)
    return promise


def _shown(pairs: set[tuple[str, ...]]) -> str:
    return ", ".join(" x ".join(pair[:2]) + (f" in {pair[2]}" if len(pair) > 2 else "") for pair in sorted(pairs))


def _sizes(tiles: Iterable[CodeTile]) -> str:
    return ", ".join("x".join(map(str, tile)) for tile in sorted(tiles))


def _verdict(subject: str, text: str) -> Verdict:
    return Verdict(str(Check(CheckKind.CODEGEN, subject)), False, text)


def descriptor_features(kernel: Kernel, plan: Plan) -> Features:
    """Returns the place where a kernel with Triton's descriptors must make them, by the plan's variant, as features."""
    keeps = any(plan.target.capability(unit).available for unit in ("tma", "tdm"))
    maker = kernel.limits.makers.get(plan.variant.descriptors) if kernel.limits is not None else None
    if not keeps or maker not in MAKERS.values() or not plan.problem.has_product:
        return Features()
    host, device = codegen_checks.HOST_DESCRIPTOR, codegen_checks.DEVICE_DESCRIPTOR
    required, other = (host, device) if plan.variant.descriptors == "host" else (device, host)
    return Features(frozenset({required}), frozenset({other}))
