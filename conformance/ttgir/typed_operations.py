"""The words, attributes and types of each operation of TTGIR. Any other may change what it does, and is not known.

The words are those that Triton 3.3 to 3.9 print, and those of their sources that change no value here. Later sources
have more, such as ``fromCTA`` of a barrier, which this executor would pass over.

The text names the types of most operands where they are used. Those of results follow from the same words. A value
whose type the text does not show, such as a token, has none here.
"""

from __future__ import annotations

import fnmatch
import functools
import re
from collections import ChainMap
from collections.abc import Iterator
from dataclasses import dataclass, field

from conformance.ttgir.arithmetic import NAMES, UnknownOperation, operands
from conformance.ttgir.formats import Type, type_of
from conformance.ttgir.text import Operation, Region, TtgirModule, split_outside

#: Attributes that guide a pass of the compiler, and change no value. Any operation may have them.
HINTS = (
    "ttg.partition ttg.partition.* ttg.warp_specialize.tag loop.* async_task_id tt.latency tt.self_latency "
    "tt.contiguity tt.divisibility tt.constancy tt.num_stages tt.flatten tt.warp_specialize tt.loop_unroll_factor "
    "tt.disallow_acc_multi_buffer tt.scheduled_max_stage tt.disable_licm tt.merge_epilogue triton.pipeline "
    "amd.pipeliner_part amdg.* operandSegmentSizes resultSegmentSizes"
)
#: Words that stand in values of attributes, names of types included.
_VALUES = re.compile(r"true|false|unit|array|dense|tensor|none|index|[iuf]\d+|si\d+|bf16|f8E\w+")
#: A kernel's hints for the caches. Triton 3.9 writes them as one attribute.
_CACHE = (
    "cache cacheModifier ca cg wb cs wt cv evict evictionPolicy evict_normal evict_first evict_last isVolatile "
    "cachePolicy cache_modifier eviction_policy"
)
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


#: Types by the names of values; each region has its own names and sees those around it.
Types = ChainMap[str, Type]

_HELD = ("tensor", "memdesc", "tensordesc")


@dataclass
class TypedOperation:
    """One operation: the types that its operands were made with, those that it shows, and those of its results."""

    operation: Operation
    operands: list[Type | None]
    shown: list[Type]
    results: list[Type]
    #: Whether an arrow leads from the types of operands to those of results.
    arrow: bool = False
    #: How many warps run it; 0 if the text does not say it.
    warps: int = 0
    #: What one of its regions passes on, or its caller gives: pairs of the type given and the type taken.
    passed: list[tuple[Type, Type]] = field(default_factory=list)

    def held(self) -> list[Type]:
        """Returns the types of its operands that have a layout, as they were made."""
        return [kind for kind in self.operands if kind is not None and kind.kind in _HELD]

    def mismatches(self) -> list[tuple[Type, Type]]:
        """Pairs of the type that a value was made with and the type that it is used with, where they differ."""
        defined, used = self.held(), [kind for kind in self.shown if kind.kind in _HELD]
        if len(defined) == len(used):
            pairs = list(zip(sorted(defined, key=_spelled), sorted(used, key=_spelled), strict=True))
        else:  # not every operand's type is shown
            pairs = [(_nearest(kind, defined), kind) for kind in used] if self.arrow and defined else []
        return [(first, second) for first, second in (*pairs, *self.passed) if not same_type(first, second)]


def _nearest(kind: Type, others: list[Type]) -> Type:
    """Of ``others`` the type that is ``kind``, else one of its kind."""
    return min(others, key=lambda other: (not same_type(kind, other), other.kind != kind.kind))


def _spelled(kind: Type) -> tuple[str, ...]:
    return kind.kind, str(kind.shape), kind.element, kind.layout


def same_type(first: Type, second: Type) -> bool:
    return _spelled(first) == _spelled(second)


def typed_operations(module: TtgirModule) -> Iterator[TypedOperation]:
    """Yields every operation of ``module`` in the order of its text."""
    types = {name: type_of(kind) for name, kind in module.function.parameters}
    warps = int(module.attributes.get("ttg.num-warps", "0").split()[0])
    yield from _region(module.function.body, ChainMap(types), [], warps)


def _region(region: Region, types: Types, owner: list[Type], warps: int) -> Iterator[TypedOperation]:
    """Yields the operations of one region, whose owner has results of the types ``owner``. A partition has its own
    warps."""
    own = re.search(r"num_warps\((\d+)\)", region.label)
    warps = int(own[1]) if own else warps
    for operation in region.operations:
        typed = _typed(operation, types)
        typed.warps = warps
        if operation.name == "scf.yield" and len(owner) == len(typed.operands):
            typed.passed += [(own, into) for own, into in zip(typed.operands, owner, strict=True) if own is not None]
        types.update(zip(operation.results, typed.results, strict=False))
        scopes = [types.new_child(_arguments(operation, inner, typed, types)) for inner in operation.regions]
        yield typed
        for inner, scope in zip(operation.regions, scopes, strict=True):
            yield from _region(inner, scope, typed.results, warps)


def _arguments(operation: Operation, region: Region, typed: TypedOperation, types: Types) -> dict[str, Type]:
    """The types of what ``region`` is given; what it is given with another type is noted in ``typed``."""
    if operation.name in ("scf.for", "scf.while"):
        _, _, words = operation.words.partition("iter_args(" if operation.name == "scf.for" else "(")
        pairs = [part.split(" = ") for part in split_outside(_inside(words))]
        if len(pairs) != len(typed.results) or any(len(pair) != 2 for pair in pairs):
            return {}
        for (_, start), kind in zip(pairs, typed.results, strict=True):
            if start.strip() in types:
                typed.passed.append((types[start.strip()], kind))
        return {name.strip(): kind for (name, _), kind in zip(pairs, typed.results, strict=True)}
    arguments = {}
    if operation.name == "ttg.warp_specialize" and "(" in region.label:
        words = region.label[region.label.index("(") + 1 :]
        parts = [part.partition(":") for part in split_outside(_inside(words))]
        arguments = {name.strip(): type_of(kind.strip()) for name, _, kind in parts}
        for given, kind in zip(typed.operands, arguments.values(), strict=False):
            if given is not None:
                typed.passed.append((given, kind))
    return arguments


def _inside(text: str) -> str:
    """``text`` up to the bracket that closes one opened before it."""
    depth = 1
    for index, char in enumerate(text):
        depth += (char in "([{<") - (char in ")]}" or (char == ">" and text[index - 1] != "-"))
        if not depth:
            return text[:index]
    return text


def _typed(operation: Operation, types: Types) -> TypedOperation:
    left, right = _sides(operation)
    results = [_result(operation, kind) for kind in (right if right is not None else left)]
    if right and (".async_" in operation.name or operation.name.endswith(("_to_local", "_store"))):
        left, results = [*left, *right], []  # an arrow leads to what is written; a result is a token
    elif ".async_" in operation.name:
        results = []
    elif right and "dot" in operation.name:
        left = [*left, *right]  # the result's type stands for the sum's that it is added to
    elif operation.name == "tt.split":
        results *= 2
    elif right is None and operation.name in ("tt.addptr", "tt.load"):
        results = results[:1]
    elif right is None and operation.name != "ttng.warp_group_dot_wait":
        results = results[-1:]
    # operations on buffers show the types of their results alone, or in brackets
    hidden = (operation.regions and operation.name != "tt.reduce") or operation.name.startswith("amdg.buffer_")
    shown = [] if hidden else left
    types_of_operands = [types.get(name) for name in operands(operation)]
    return TypedOperation(operation, types_of_operands, shown, results, arrow=right is not None)


def _result(operation: Operation, kind: Type) -> Type:
    if operation.name in ("arith.cmpi", "arith.cmpf"):
        return replaced(kind, "i1")
    if operation.name == "tt.load" and kind.pointee is not None:
        return replaced(kind, kind.pointee) if kind.shape else type_of(kind.pointee)
    if operation.name == "tt.make_tensor_descriptor":  # shown without its name
        sizes = "x".join([*map(str, kind.shape), kind.element])
        return type_of(f"!tt.tensordesc<{sizes}{', ' * bool(kind.layout)}{kind.layout}>")
    return kind


def replaced(kind: Type, element: str) -> Type:
    """``kind`` with another element."""
    return Type(kind.kind, kind.shape, element, kind.layout)


def _sides(operation: Operation) -> tuple[list[Type], list[Type] | None]:
    """Returns the types before and after its arrow; None where it has no arrow."""
    if operation.name in ("scf.for", "scf.if"):
        _, arrow, after = operation.words.rpartition(" -> ")
        if operation.name == "scf.for":
            after = after.rpartition(" : ")[0]
        return [], _types(after) if arrow else []
    if operation.name == "scf.while":
        return _read(operation.words.partition(" : ")[2])
    return _read(operation.types)


@functools.lru_cache(maxsize=65536)
def _read(text: str) -> tuple[list[Type], list[Type] | None]:
    at = _arrow(text)
    if at is not None:
        return _types(text[: at[0]]), _types(text[at[1] :])
    return _types(text), None


def _arrow(text: str) -> tuple[int, int] | None:
    depth = 0
    for index, char in enumerate(text):
        if not depth and text.startswith("->", index):
            return index, index + 2
        if not depth and text.startswith(" to ", index):
            return index, index + 4
        depth += (char in "([{<") - (char in ")]}" or (char == ">" and text[index - 1] != "-"))
    return None


def _types(text: str) -> list[Type]:
    text = text.strip()
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1]
    return [type_of(part) for side in split_outside(text, "*") for part in split_outside(side)]
