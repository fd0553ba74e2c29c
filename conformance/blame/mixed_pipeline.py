"""Triton's compiler with the text of another one put in place of what its first stages make.

A stage is what Triton's backend calls one: "ttir", "ttgir", "llir", then "ptx" and "cubin", or "amdgcn" and "hsaco".
Before them "source" is what the front end makes of the Python function. A stage that runs passes on MLIR can be entered
after some of them, and the text after each of them can be kept. Nothing of Triton is built or changed on disk: the
functions that a backend calls are wrapped while one kernel is compiled.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

FRONT_END = "source"
#: Stages whose text is MLIR, which has a parser.
PARSED = (FRONT_END, "ttir", "ttgir")
#: In the folder of a compilation: what each stage noted, and the names of the passes that have begun.
METADATA_FILE = "metadata.json"
PASSES_FILE = "passes.txt"
#: There, too: a text whose types had to be spelled in another way.
RESPELLED_FILE = "respelled.mlir"

#: The type of a descriptor as both spell it; where a descriptor is made, the word of the type is left out.
_DESCRIPTOR_OF_TENSOR = re.compile(r"(!tt\.tensordesc|: <\w+>, )<tensor<([^<>]+)>>")
_DESCRIPTOR = re.compile(r"(!tt\.tensordesc|: <\w+>, )<(\d[^<>]*)>")


@dataclass(frozen=True)
class CompilationStart:
    """The place where a compilation begins: after ``stage``, with the texts ``files`` of it and of the stages before
    it. If ``module`` is given, that file is the text in the midst of the stage that follows, of which the first
    ``passes`` are left out. ``metadata`` is what the stages up to ``stage`` have noted for those that follow."""

    stage: str
    files: Mapping[str, Path]
    metadata: Mapping[str, Any]
    module: Path | None = None
    passes: int = 0


class CannotEnter(Exception):
    """The text of the other compiler cannot be taken; the message says why."""


@contextmanager
def mixed(entry: CompilationStart | None, folder: Path, trace: str = "") -> Iterator[None]:
    """Inside, Triton's compiler begins at ``entry`` (None: at the front end) and keeps in ``folder`` what each stage
    noted (:data:`METADATA_FILE`). ``trace`` is a stage whose passes are kept there, too: their names in their order
    (:data:`PASSES_FILE`) and their texts. The text after pass number n, counted from 1, is ``n.mlir``. The compiler
    raises :class:`CannotEnter` if it cannot parse the text."""
    from triton.backends import backends
    from triton.compiler import compiler

    context: list[Any] = []
    own_ir = compiler.ASTSource.make_ir

    def make_ir(source: Any, *arguments: Any) -> Any:
        context.append(arguments[-1])
        if entry is None:
            return own_ir(source, *arguments)
        if entry.stage == FRONT_END and entry.module is None:
            return _parsed(entry.files[FRONT_END], context[-1], folder)
        return entry.files[FRONT_END].read_text()

    with contextlib.ExitStack() as changes:
        changes.enter_context(_replaced(compiler.ASTSource, "make_ir", make_ir))
        for backend in {each.compiler for each in backends.values()}:
            own = backend.add_stages

            def add_stages(self: Any, stages: dict[str, Any], *rest: Any, own: Any = own) -> None:
                own(self, stages, *rest)
                _wrap(stages, sys.modules[type(self).__module__], entry, folder, trace, context)

            changes.enter_context(_replaced(backend, "add_stages", add_stages))
        yield


def _wrap(
    stages: dict[str, Callable[[Any, Any], Any]],
    backend: Any,
    entry: CompilationStart | None,
    folder: Path,
    trace: str,
    context: list[Any],
) -> None:
    """Replaces the functions of ``stages``, those of the module ``backend``."""
    names = [FRONT_END, *stages]
    last = names.index(entry.stage) if entry else -1
    noted: dict[str, Any] = {}
    if last > names.index("ttgir"):
        from triton._C.libtriton import llvm

        llvm.init_targets()  # what is left out would have done it
    for number, (name, own) in enumerate(list(stages.items()), 1):
        if entry is not None and number <= last:
            stages[name] = partial(_taken, entry, name, context, folder)
        else:
            inner = entry if entry is not None and entry.module is not None and number == last + 1 else None
            traced = folder if trace == name else None
            stages[name] = partial(_made, own, backend, name, inner, context, noted, folder, traced)


def _taken(
    entry: CompilationStart, name: str, context: list[Any], folder: Path, module: Any, metadata: dict[str, Any]
) -> Any:
    """Stands for a stage whose text is that of the other compiler."""
    if name != entry.stage:
        return entry.files[name].read_text()
    metadata.update(entry.metadata)
    parsed = entry.module is None and name in PARSED
    return _parsed(entry.files[name], context[-1], folder) if parsed else entry.files[name].read_text()


def _made(
    own: Callable[[Any, Any], Any],
    backend: Any,
    name: str,
    inner: CompilationStart | None,
    context: list[Any],
    noted: dict[str, Any],
    folder: Path,
    traced: Path | None,
    module: Any,
    metadata: dict[str, Any],
) -> Any:
    """Runs the ``own`` function of a stage and returns its text. ``inner`` enters it between its passes."""
    if inner is not None and inner.module is not None:
        module = _parsed(inner.module, context[-1], folder)
    before = dict(metadata)
    one_by_one = inner is not None or traced is not None
    skipped = inner.passes if inner is not None else 0
    with _passes_one_by_one(backend, skipped, traced) if one_by_one else contextlib.nullcontext():
        module_after = own(module, metadata)
    noted[name] = {key: value for key, value in metadata.items() if before.get(key, ...) != value}
    (folder / METADATA_FILE).write_text(json.dumps(noted, default=vars))
    return module_after


def _parsed(file: Path, context: Any, folder: Path) -> Any:
    """Returns the module in ``file``. If it is refused, the other spelling of descriptors is tried, and noted in
    ``folder``."""
    from triton._C.libtriton import ir

    try:
        module = ir.parse_mlir_module(str(file), context)
    except Exception as error:
        respelled = folder / RESPELLED_FILE
        respelled.write_text(_respelled(file.read_text()))
        try:
            module = ir.parse_mlir_module(str(respelled), context)
        except Exception:
            respelled.unlink()
            raise CannotEnter(f"{file.name} of the other compiler is not parsed: {error}") from None
    module.context = context
    return module


def _respelled(text: str) -> str:
    """Returns ``text`` with the types of tensor descriptors as the other releases spell them. Triton up to 3.7 spells
    them with a tensor's type, from 3.8 on with its content."""
    text, count = _DESCRIPTOR_OF_TENSOR.subn(r"\1<\2>", text)
    return text if count else _DESCRIPTOR.sub(r"\1<tensor<\2>>", text)


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    own = owner.__dict__[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, own)


@contextmanager
def _passes_one_by_one(backend: Any, skipped: int, folder: Path | None) -> Iterator[None]:
    """Inside, the passes of a stage run one at a time, without the first ``skipped`` ones. Their names and texts go to
    ``folder``, if it is given."""
    own_ir = backend.ir
    begun: list[str] = []

    class Manager:
        """Stands for Triton's manager of passes, which runs all that were added to it at once."""

        def __init__(self, context: Any) -> None:
            self.context = context
            self.passes: list[tuple[str, Any, tuple[Any, ...]]] = []

        def enable_debug(self) -> bool:
            return False

        def run(self, module: Any, *rest: Any) -> None:
            for name, add, arguments in self.passes:
                begun.append(name)
                if len(begun) <= skipped:
                    continue
                if folder is not None:  # a compiler that dies leaves the name of the pass
                    (folder / PASSES_FILE).write_text("\n".join(begun))
                manager = own_ir.pass_manager(self.context)
                add(manager, *arguments)
                manager.run(module, *rest)
                if folder is not None:
                    (folder / f"{len(begun)}.mlir").write_text(str(module))

    with contextlib.ExitStack() as changes:
        for name in ("ir", "passes", "nvidia", "amd"):
            if name in vars(backend):
                changes.enter_context(_replaced(backend, name, _Proxy(getattr(backend, name), Manager)))
        yield


class _Proxy:
    """A module of Triton whose functions, given a ``manager``, only note that they were called."""

    def __init__(self, own: Any, manager: Any) -> None:
        self._own, self._manager = own, manager

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._own, name)
        if name == "pass_manager":
            return self._manager
        if isinstance(value, ModuleType):
            return _Proxy(value, self._manager)
        if not callable(value) or isinstance(value, type):
            return value

        def called(*arguments: Any, **keywords: Any) -> Any:
            if arguments and isinstance(arguments[0], self._manager):
                arguments[0].passes.append(
                    (name, lambda manager, *rest: value(manager, *rest, **keywords), arguments[1:])
                )
                return None
            return value(*arguments, **keywords)

        return called
