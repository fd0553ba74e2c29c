"""The words and attributes that each operation of TTGIR may have. Any other may change what it does: it is not known.

The words are those that Triton 3.3 to 3.9 print, and those of their sources that change no value here. Later sources
have more, such as ``fromCTA`` of a barrier, which this executor would pass over.
"""

from __future__ import annotations

import fnmatch
import functools
import re

from conformance.ttgir.arithmetic import NAMES, UnknownOperation
from conformance.ttgir.text import Operation

#: Attributes that guide a pass of the compiler, and change no value. Any operation may have them.
HINTS = (
    "ttg.partition ttg.partition.* ttg.warp_specialize.tag loop.* async_task_id tt.latency tt.self_latency "
    "tt.contiguity tt.divisibility tt.constancy tt.num_stages tt.flatten tt.warp_specialize tt.loop_unroll_factor "
    "tt.disallow_acc_multi_buffer tt.scheduled_max_stage tt.disable_licm tt.merge_epilogue triton.pipeline "
    "amd.pipeliner_part amdg.* operandSegmentSizes resultSegmentSizes"
)
#: Words that stand in values of attributes, names of types included.
_VALUES = re.compile(r"true|false|unit|array|dense|tensor|none|index|[iuf]\d+|si\d+|bf16|f8E\w+")
_CACHE = "cache cacheModifier ca cg wb cs wt cv evict evictionPolicy evict_normal evict_first evict_last isVolatile"
_ORDER = "relaxed acquire release acq_rel gpu cta sys"
_KINDS = "fadd add max min umax umin and or xor exch"
_CODES = "lhs rhs scale e2m1 e4m3 e5m2 e2m3 e3m2 bf16 fp16"
_ARITHMETIC = "fastmath contract fast reassoc ninf nnan nsz arcp afn overflow nsw nuw exact nneg to_nearest_even"

#: Name of an operation, or a pattern of names -> its words. One that has no line has none.
WORDS = {
    "arith.*": _ARITHMETIC,
    "arith.cmpi": "eq ne slt sle sgt sge ult ule ugt uge",
    "arith.cmpf": f"{_ARITHMETIC} oeq olt ole ogt oge one une ueq uno ord ult ule ugt uge",
    "math.*": _ARITHMETIC,
    "scf.for": "unsigned to step iter_args",
    "scf.if": "else",
    "scf.while": "do",
    "tt.load": f"{_CACHE} amd.pipeliner_part",
    "tt.store": _CACHE,
    "tt.atomic_rmw": f"{_KINDS} {_ORDER}",
    "tt.atomic_cas": _ORDER,
    "tt.call": "noinline",
    "tt.clampf": "propagateNan all",
    "tt.dot": "inputPrecision tf32 tf32x3 ieee bf16x3 bf16x6 maxNumImpreciseAcc",
    "tt.dot_scaled": f"{_CODES} fastMath lhs_k_pack rhs_k_pack",
    "tt.elementwise_inline_asm": "constraints packed_element pure",
    "tt.expand_dims": "axis",
    "tt.extern_elementwise": "libname libpath pure symbol",
    "tt.fp_to_fp": "rounding rtne rtz",
    "tt.gather": "axis efficient_layout",
    "tt.get_*": "x y z",
    "tt.make_range": "start end",
    "tt.map_elementwise": "pack",
    "tt.reduce": "axis",
    "tt.reshape": "allow_reorder efficient_layout",
    "tt.scan": "axis reverse",
    "tt.trans": "order",
    "ttg.async_commit_group": "tokens",
    "ttg.async_copy_global_to_local": f"mask other contiguity {_CACHE}",
    "ttg.async_wait": "num",
    "ttg.fp4_to_fp": "axis",
    "ttg.global_scratch_alloc": "alignment nbytes",
    "ttg.local_load": "token",
    "ttg.memdesc_trans": "order",
    "ttg.warp_specialize": "attributes requestedRegisters actualRegisters warpGroupStartIds",
    "ttng.async_tma_copy_global_to_local": _CACHE,
    "ttng.async_tma_reduce": _KINDS,
    "ttng.async_tma_store_wait": "pendings read_only",
    "ttng.fence_async_shared": "bCluster",
    "ttng.tc_gen5_mma": "is_async inputPrecision tf32 ieee",
    "ttng.tc_gen5_mma_scaled": f"{_CODES} is_async",
    "ttng.tensormap_create": "elem_type fill_mode interleave_layout swizzle_mode",
    "ttng.tmem_load": "redOp min max",
    "ttng.tmem_subslice": "N offset",
    "ttng.wait_barrier": "deps",
    "ttng.warp_group_dot": "inputPrecision isAsync maxNumImpreciseAcc",
    "ttng.warp_group_dot_wait": "pendings warpGroupLocal",
    "amdg.async_tdm_*": "into from to",
    "amdg.async_tdm_wait": "num",
    "amdg.buffer_*": f"contiguity stride mask other into {_CACHE}",
    "amdg.buffer_atomic_rmw": f"{_KINDS} {_ORDER} contiguity stride",
    "amdg.scaled_upcast_*": "axis scale",
    "amdg.update_tensor_descriptor": "add_offsets pred clamp_bounds",
    "amdg.upcast_mxfp": "fp_type fastMath e2m1 e4m3 e5m2",
}
#: Operations whose words change no value: texts for people, and what orders the instructions of one warp.
FREE = "tt.print tt.assert tt.func ttg.barrier gpu.barrier rocdl.* amdg.cond_barrier llvm.intr.assume cf.* scf.yield"

_WORD = re.compile(r"(?<![\w%@#^!.$-])[A-Za-z_][\w.]*")


@functools.cache
def _allowed(name: str) -> frozenset[str] | None:
    """The words of an operation; None if it may have any."""
    if any(fnmatch.fnmatchcase(name, pattern) for pattern in FREE.split()):
        return None
    lines = [words for pattern, words in WORDS.items() if fnmatch.fnmatchcase(name, pattern)]
    return frozenset(" ".join(lines).split())


def refuse_other_words(operation: Operation) -> None:
    """Raises UnknownOperation for a word or an attribute that is not the operation's."""
    allowed = _allowed(operation.name)
    if allowed is None:
        return
    unknown = sorted(word for word in set(_words(operation)) - allowed if not _changes_nothing(word))
    if unknown:
        raise UnknownOperation(f"{operation.name} with {', '.join(unknown)}")


def _words(operation: Operation) -> list[str]:
    """Returns the words before the types, and those between regions and types."""
    if operation.regions:
        shown = [re.split(r" -> | : ", operation.words)[0], operation.tail.removesuffix(operation.types)]
    else:
        shown = [operation.words.removesuffix(operation.types)]
    return _WORD.findall(NAMES.sub("", re.sub(r'"[^"]*"', "", " ".join(shown))))


@functools.cache
def _changes_nothing(word: str) -> bool:
    return bool(_VALUES.fullmatch(word)) or any(fnmatch.fnmatchcase(word, hint) for hint in HINTS.split())
