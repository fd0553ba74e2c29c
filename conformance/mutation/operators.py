"""The faults that a node of a syntax tree can have: each operator takes a place and yields what could stand there.

A fault is a pair of its class, one of :data:`CLASSES`, and the node that replaces the original; None deletes a
statement.

What class of fault a wrong name is, and which others could have been meant, is here too.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from conformance.mutation.tree_walk import RANGES, Place, assigned, called, names_in

#: Words of names that stand for each other: a fault writes one for another.
EXCHANGED = (
    ("a", "b", "c", "d", "o"),
    ("m", "n", "k"),
    ("M", "N", "K"),
    ("q", "k", "v"),
    ("x", "w", "out"),
    ("h", "w", "d"),
    ("H", "W", "D"),
    ("OH", "OW", "OD"),
    ("oh", "ow", "od"),
    ("row", "column"),
    ("rows", "columns"),
    ("ROWS", "COLUMNS"),
    ("first", "last", "end"),
    ("begin", "end"),
    ("queries", "keys"),
    ("query", "key"),
    ("batch", "head"),
    ("alpha", "beta"),
    ("bias", "residual", "mask"),
    ("partial", "full"),
    ("partial", "full", "masked"),
    ("left", "right"),
    ("rm", "rn", "rk", "ro"),
    ("z", "m", "n"),
    ("g", "s"),
    ("acc", "total", "largest"),
    ("p", "grad"),
    ("lse", "delta"),
    ("larger", "largest", "reference"),
    ("grad_k", "grad_v"),
    ("part", "split"),
    ("scale", "cap", "window"),
    ("positions", "columns"),
    ("CHANNELS", "OUT"),
    ("HEAD", "VALUE"),
)
#: The class of a fault in a name, by what the name looks like; the first that fits.
_CLASSES = (
    (r"stride_|ld[a-d]$", "stride"),
    (r"(^|_)(scale|scales|alpha|beta|slope|slopes|cap)(_|$)|^bias$|^addend$", "scale"),
    (r"_(ptr|desc|base)$|^(a|b|q|k|v|residual)$", "operand"),
    (r"^(M|N|K|keys|queries|window|groups|batch|tiles|tiles_[mn]|rows|columns|limit|splits)$", "bound"),
    (r"^r[mnko]$|^(row|column|first|last|end|begin|tile|z|n|h|w|d)(_|$)", "index"),
)


def name_class(name: str) -> str | None:
    """The class of a fault in which another name stands for ``name``; None if the name says none."""
    return next((kind for pattern, kind in _CLASSES if re.search(pattern, name)), None)


def is_address(name: str) -> bool:
    """True if ``name`` says that it holds a pointer.

    >>> is_address("a_ptr"), is_address("offset")
    (True, False)
    """
    return re.search(r"_(ptr|base|tile)$", name) is not None


def siblings(name: str, all_names: Collection[str]) -> Iterator[str]:
    """Names among ``all_names`` that differ from ``name`` in one word, which stands for the other's.

    >>> list(siblings("stride_am", ["stride_ak", "stride_bk", "pid"]))
    ['stride_ak']
    """
    words = re.split(r"(_|\d+)", name)
    seen = {name}
    for number, word in enumerate(words):
        for one, other in _exchanges(word):
            changed = "".join(
                [*words[:number], word.replace(one, other) if one != word else other, *words[number + 1 :]]
            )
            if changed in all_names and changed not in seen:
                seen.add(changed)
                yield changed


def _exchanges(word: str) -> Iterator[tuple[str, str]]:
    """Returns the words that could stand for ``word``, or for a last letter of it, as in ``am``."""
    for group in EXCHANGED:
        if word in group:
            yield from ((word, other) for other in group if other != word)
    if 2 <= len(word) <= 3 and word.islower():  # stride_am, stride_bk, stride_qm
        for letters in ("mnk", "abcd", "qkv", "mdhbn", "nochwd"):
            for place in (0, -1):
                if word[place] in letters:
                    for other in letters:
                        if other != word[place]:
                            yield word, (other + word[1:]) if place == 0 else (word[:-1] + other)


#: The classes of faults, each with what its faults do.
CLASSES = {
    "index": "another element: an offset, a row or column, a broadcast the other way, a narrow index",
    "mask": "a mask dropped, weakened, or one element off",
    "bound": "an extent one off or exchanged",
    "operand": "another operand, or one transposed",
    "stride": "a stride exchanged, dropped or replaced",
    "scale": "a scale, alpha, beta or bias exchanged, dropped or changed",
    "constant": "a number one off, 0, or negated",
    "rounding": "a conversion dropped or to another dtype, another precision of a product",
    "accumulator": "a sum of another dtype or start, overwritten, or rounded between steps",
    "loop": "one step fewer or more, another first step or step length",
    "predicate": "a condition negated, or fixed",
    "arithmetic": "another operation",
    "function": "another function",
    "call": "an argument dropped, or two exchanged",
    "statement": "a statement deleted",
    "other": "another value for lanes that a mask leaves out",
    "program": "another program number, or order of programs",
}


@dataclass(frozen=True)
class Exchange:
    """Stands for a call whose argument ``number`` and the next one have changed places."""

    number: int


Fault = tuple[str, ast.AST | Exchange | None]

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
}
_OPERATIONS: dict[type[ast.operator], tuple[type[ast.operator], ...]] = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Add,),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mod, ast.Mult),
    ast.Mod: (ast.FloorDiv,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
}
_FUNCTIONS = {
    "min": "max",
    "max": "min",
    "tl.minimum": "maximum",
    "tl.maximum": "minimum",
    "tl.sum": "max",
    "tl.max": "min",
    "tl.exp2": "exp",
    "tl.exp": "exp2",
    "tl.log": "log2",
    "tl.erf": "sin",
}
#: Words of a call that say in which precision it computes.
_PRECISIONS = ("input_precision", "max_num_imprecise_acc", "out_dtype", "dtype")
_FLOAT_TYPES = ("float16", "bfloat16")
#: The class of a fault inside an expression, by what the expression is for; None: by the names in it.
_BY_SURROUNDINGS = {
    "mask": "mask",
    "other": "other",
    "loop": "loop",
    "test": "predicate",
    "bound": "bound",
    "address": "index",
}


def faults(place: Place) -> Iterator[Fault]:
    """Yields every fault that the operators know at ``place``. Several may give the same source."""
    for kind, operator in OPERATORS:
        if isinstance(place.node, kind):
            yield from operator(place)


def _class(place: Place, otherwise: str) -> str:
    """Returns the class of a fault that changes the expression at ``place``."""
    named = {name_class(name.id) for name in names_in(place.node)}
    for kind in ("stride", "scale"):
        if kind in named:
            return kind
    return _BY_SURROUNDINGS.get(place.surroundings, otherwise)


def _comparison(place: Place) -> Iterator[Fault]:
    node = place.node
    assert isinstance(node, ast.Compare)
    kind = "predicate" if place.surroundings == "test" else "mask"
    for other in _COMPARISONS.get(type(node.ops[0]), ()):
        yield kind, ast.Compare(node.left, [other()], node.comparators)
    ordered = isinstance(node.ops[0], (ast.Lt, ast.LtE, ast.Gt, ast.GtE))
    for operator in (ast.Add(), ast.Sub()) if ordered else ():
        shifted = ast.BinOp(node.comparators[0], operator, ast.Constant(1))
        yield "bound", ast.Compare(node.left, node.ops, [shifted])


def _operation(place: Place) -> Iterator[Fault]:
    node = place.node
    assert isinstance(node, ast.BinOp)
    kind = _class(place, "arithmetic")
    for other in _OPERATIONS.get(type(node.op), ()):
        yield kind, ast.BinOp(node.left, other(), node.right)
    for kept, dropped in ((node.left, node.right), (node.right, node.left)):
        address = any(is_address(name.id) for name in names_in(dropped))  # what is left would be no address
        if not address and not (isinstance(node.op, (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod)) and kept is node.right):
            lost = {name_class(name.id) for name in names_in(dropped)}
            kinds = [kind for kind in ("stride", "scale") if kind in lost]
            yield (*kinds, _BY_SURROUNDINGS.get(place.surroundings, "arithmetic"))[0], kept
    if isinstance(node.op, (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod)):
        yield kind, ast.BinOp(node.right, node.op, node.left)


def _name(place: Place) -> Iterator[Fault]:
    node = place.node
    assert isinstance(node, ast.Name)
    if not isinstance(node.ctx, ast.Load) or node.id not in place.names.first_line:
        return  # a module, a function or a constant of the module
    kind = name_class(node.id) or _BY_SURROUNDINGS.get(place.surroundings, "operand")
    for other in siblings(node.id, place.names.before(place.statement)):
        yield kind, ast.Name(other, ast.Load())
    if node.id.startswith("GROUP"):
        yield "program", ast.Constant(1)
    elif kind == "bound" and place.surroundings in ("bound", "value"):
        for operator in (ast.Add(), ast.Sub()):
            yield "bound", ast.BinOp(node, operator, ast.Constant(1))
    elif kind == "stride":
        yield "stride", ast.Constant(1)
        yield "stride", ast.Constant(0)
    if node.id.isupper() and place.surroundings == "test" and not isinstance(place.parent, ast.Compare):
        for value in (True, False):
            yield "predicate", ast.Constant(value)
        if not (isinstance(place.parent, ast.UnaryOp) and isinstance(place.parent.op, ast.Not)):
            yield "predicate", ast.UnaryOp(ast.Not(), node)


def _constant(place: Place) -> Iterator[Fault]:
    node, parent = place.node, place.parent
    assert isinstance(node, ast.Constant)
    value = node.value
    if isinstance(parent, (ast.Subscript, ast.Slice)) or not isinstance(value, (bool, int, float)):
        return
    if isinstance(parent, ast.Call) and called(parent) in ("tl.program_id", "tl.num_programs", "float"):
        return
    kind = _BY_SURROUNDINGS.get(place.surroundings, "constant")
    if isinstance(value, bool):
        yield "call" if isinstance(parent, ast.Call) else kind, ast.Constant(not value)
        return
    changed = (value + 1, value - 1, 0, -value) if isinstance(value, int) else (0.0, 1.0, -value, value * 1.5)
    for other in dict.fromkeys(changed):
        if other != value:
            yield kind, ast.Constant(other)


def _subscript(place: Place) -> Iterator[Fault]:
    node = place.node
    assert isinstance(node, ast.Subscript)
    if isinstance(node.slice, ast.Tuple) and len(node.slice.elts) == 2:
        turned = ast.Tuple(node.slice.elts[::-1], ast.Load())
        yield _class(place, "index"), ast.Subscript(node.value, turned, ast.Load())


def _attribute(place: Place) -> Iterator[Fault]:
    node = place.node
    assert isinstance(node, ast.Attribute)
    if node.attr == "T":
        yield "operand", node.value


def _call(place: Place) -> Iterator[Fault]:
    node = place.node
    assert isinstance(node, ast.Call)
    name = called(node)
    if name in ("tl.program_id", "tl.num_programs") and isinstance(node.args[0], ast.Constant):
        for axis in {0, 1, 2} - {node.args[0].value}:
            yield "program", ast.Call(node.func, [ast.Constant(axis)], [])
        yield "program", ast.Constant(0 if name == "tl.program_id" else 1)
    elif name in RANGES:
        yield from _range(node)
    elif name == ".to":
        yield from _conversion(place, node)
    elif name in ("tl.zeros", "tl.full"):
        yield from _start(node)
    elif name == "tl.trans" and isinstance(node.args[0], ast.Name):
        yield "operand", node.args[0]
    if name in _FUNCTIONS:
        yield "function", _renamed(node, _FUNCTIONS[name])
    for word in node.keywords if name not in ("tl.zeros", "tl.full") else ():
        yield _class_of_word(word), ast.Call(node.func, node.args, _without(node.keywords, word))
        if word.arg == "other":
            other = ast.keyword("other", ast.Constant(1))
            yield "other", ast.Call(node.func, node.args, [other if each is word else each for each in node.keywords])
    yield from _arguments(place, node, name)


def _without(words: list[ast.keyword], word: ast.keyword) -> list[ast.keyword]:
    """``words`` without ``word``. A load without a mask takes no value for lanes that it leaves out."""
    return [each for each in words if each is not word and not (word.arg == "mask" and each.arg == "other")]


def _class_of_word(word: ast.keyword) -> str:
    if word.arg in ("mask", "other"):
        return word.arg
    return "rounding" if word.arg in _PRECISIONS else "call"


def _renamed(node: ast.Call, name: str) -> ast.Call:
    function = node.func
    other = ast.Attribute(function.value, name, ast.Load()) if isinstance(function, ast.Attribute) else ast.Name(name)
    return ast.Call(other, node.args, node.keywords)


def _range(node: ast.Call) -> Iterator[Fault]:
    one, arguments = ast.Constant(1), node.args
    start, stop = ([ast.Constant(0), *arguments])[-2:] if len(arguments) < 3 else arguments[:2]
    step = arguments[2:]
    changes = [
        [ast.BinOp(start, ast.Add(), one), stop, *step],
        [start, ast.BinOp(stop, ast.Sub(), one), *step],
        [start, ast.BinOp(stop, ast.Add(), one), *step],
    ]
    changes += [[start, stop, ast.BinOp(length, ast.Mult(), ast.Constant(2))] for length in step]
    changes += [[start, stop]] if step else []
    for change in changes:
        yield "loop", ast.Call(node.func, change, node.keywords)


def _conversion(place: Place, node: ast.Call) -> Iterator[Fault]:
    assert isinstance(node.func, ast.Attribute)
    dtype = ast.unparse(node.args[0])
    kind = "index" if "int" in dtype else "rounding"
    yield kind, node.func.value
    if kind == "rounding":
        for other in _FLOAT_TYPES:
            if other not in dtype:
                yield kind, ast.Call(node.func, [_type(other)], [])
                through = ast.Call(ast.Attribute(node.func.value, "to", ast.Load()), [_type(other)], [])
                yield kind, ast.Call(ast.Attribute(through, "to", ast.Load()), node.args, node.keywords)


def _type(name: str) -> ast.expr:
    return ast.Attribute(ast.Name("tl", ast.Load()), name, ast.Load())


def _start(node: ast.Call) -> Iterator[Fault]:
    """Another start, and another dtype, of an accumulator."""
    yield "accumulator", ast.BinOp(node, ast.Add(), ast.Constant(1))
    for number, word in enumerate(node.keywords):
        if word.arg == "dtype" and "float32" in ast.unparse(word.value):
            for other in _FLOAT_TYPES:
                words = list(node.keywords)
                words[number] = ast.keyword("dtype", _type(other))
                yield "accumulator", ast.Call(node.func, node.args, words)


def _arguments(place: Place, node: ast.Call, name: str) -> Iterator[Fault]:
    """Two neighbouring arguments exchanged, and the accumulator of a product left out."""
    if name == "tl.dot" and len(node.args) > 2:
        yield "accumulator", ast.Call(node.func, node.args[:2], node.keywords)
    if (name.startswith("tl.") and name not in ("tl.dot", "tl.cdiv", "tl.where")) or name in RANGES or name == ".to":
        return
    if name in _FUNCTIONS:
        return
    for number in range(len(node.args) - 1):
        yield "call", Exchange(number)


def _unary(place: Place) -> Iterator[Fault]:
    node = place.node
    assert isinstance(node, ast.UnaryOp)
    yield "predicate" if isinstance(node.op, ast.Not) else "constant", node.operand


def _condition(place: Place) -> Iterator[Fault]:
    """Yields a condition of an ``if`` or of a conditional expression, fixed; and the operators between conditions."""
    node = place.node
    assert isinstance(node, (ast.If, ast.IfExp))
    if isinstance(node, ast.IfExp):
        yield "predicate", node.body
        yield "predicate", node.orelse
        return
    for value in (True, False):
        changed = copy.copy(node)
        changed.test = ast.Constant(value)
        yield "predicate", changed


def _junction(place: Place) -> Iterator[Fault]:
    node = place.node
    assert isinstance(node, ast.BoolOp)
    yield "predicate", ast.BoolOp(ast.And() if isinstance(node.op, ast.Or) else ast.Or(), node.values)
    for value in node.values:
        yield "predicate", value


def _statement(place: Place) -> Iterator[Fault]:
    """Yields a statement deleted, if what it assigns has another value before it."""
    node = place.node
    assert isinstance(node, ast.stmt)
    targets = {name.id for target in assigned(node) for name in names_in(target)}
    if targets <= place.names.before(node) and "static_assert" not in ast.unparse(node):
        yield "statement", None
    if isinstance(node, ast.AugAssign):
        yield "accumulator", ast.Assign([node.target], node.value, lineno=1)
        turned = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
        yield "accumulator", ast.AugAssign(node.target, turned, node.value)


def _rounded(place: Place) -> Iterator[Fault]:
    """A sum rounded before it is stored: after each step of a loop, or once."""
    node = place.node
    assert isinstance(node, (ast.Assign, ast.AugAssign))
    value = node.value
    names = {name.id for target in assigned(node) for name in names_in(target)}
    products = any(isinstance(inner, ast.Call) and called(inner) == "tl.dot" for inner in ast.walk(value))
    sums = names & names_before(place) & {name.id for name in names_in(value)} and "acc" in " ".join(names)
    if isinstance(node, ast.Assign) and len(names) == 1 and (products or sums):
        for dtype in _FLOAT_TYPES:
            narrow = ast.Call(ast.Attribute(value, "to", ast.Load()), [_type(dtype)], [])
            wide = ast.Call(ast.Attribute(narrow, "to", ast.Load()), [_type("float32")], [])
            yield "accumulator", ast.Assign(node.targets, wide, lineno=1)


def names_before(place: Place) -> frozenset[str]:
    """The names that have a value before the statement of ``place``."""
    return place.names.before(place.statement)


OPERATORS: tuple[tuple[type | tuple[type, ...], Callable[[Place], Iterator[Fault]]], ...] = (
    (ast.Compare, _comparison),
    (ast.BinOp, _operation),
    (ast.Name, _name),
    (ast.Constant, _constant),
    (ast.Subscript, _subscript),
    (ast.Attribute, _attribute),
    (ast.Call, _call),
    (ast.UnaryOp, _unary),
    ((ast.If, ast.IfExp), _condition),
    (ast.BoolOp, _junction),
    ((ast.Assign, ast.AugAssign, ast.Expr), _statement),
    ((ast.Assign, ast.AugAssign), _rounded),
)
