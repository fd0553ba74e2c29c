"""Reproducers of what ``torch.compile`` makes of a function, as a record describes it: one script that needs torch and
triton only, and a GPU."""

from __future__ import annotations

import dataclasses
import importlib
import re
from collections.abc import Iterable, Sequence

import msgspec
import torch

from conformance import targets
from conformance.inductor.compile.program import Program
from conformance.problems import DTYPES, Operand
from conformance.records import CaseRecord, Check, CheckKind, Status, Verdict
from conformance.reproducers import script_text as templates
from conformance.reproducers.copied import compiled_code, programs
from conformance.reproducers.definitions import NotReproducible, Sources
from conformance.reproducers.kernel_scripts import child, patterns, raw
from conformance.reproducers.script_text import failure_in
from conformance.user_files.expected_failures import status_without_entry

#: Checks that a script can show, by the first part of their names.
SHOWN = (CheckKind.NUMERICS, CheckKind.REPEAT, CheckKind.MEMORY, CheckKind.COMPILE)
#: Code that makes torch compile again in this process, whatever it compiled before.
ALWAYS = {"force_disable_caches": True, "compile_threads": 1, "autotune_in_subproc": False}
#: A config in the name of a check, and what its numbers are called in the descriptions of Inductor's choices.
CONFIG = re.compile(r"(\d+)x(\d+)x(\d+)-s(\d+)-w(\d+)")
CONFIG_NAMES = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_stages", "num_warps")
DIED = (Status.CRASH, Status.TIMEOUT)
#: How older records name the modules of functions, and those that have another name now.
FORMER_MODULES = re.compile(r"^conformance\.inductor\.graphs(?:[_.]([a-z]+))?:")
RENAMED = {"": "gemm", "products": "gemm", "several": "memory"}
#: The functions that the suites compile. A record comes from a file: it does not say what is imported.
FUNCTIONS = re.compile(r"conformance\.inductor\.topics\.[a-z]+:[a-z]\w*")


def program_script(record: CaseRecord) -> str:
    """Returns a script that compiles the function of ``record``, with its settings and the choice that failed. It
    compares the result for operands of small integers with the function itself. Raises NotReproducible."""
    program, target = _read(record)
    failed = [verdict for verdict in record.verdicts if not verdict.passed]
    features, (generated, unseen) = _features(failed), _generated(failed)
    if not features and not generated and not _shows(record, failed):
        if unseen:
            raise NotReproducible(unseen[0])
        checks = ", ".join(dict.fromkeys(Check.parse(verdict.check).name for verdict in failed))
        raise NotReproducible(
            f"{f'what failed is {checks}' if checks else 'it did not fail'}: a script of what Inductor generates "
            "cannot show that. It can show wrong numbers, what does not compile, features that the code should have or "
            "not, and patterns in what was generated"
        )
    module, _, name = program.graph.partition(":")
    sources, runtime = Sources(), Sources()
    sources.add("torch", torch)
    sources.add(name, getattr(importlib.import_module(module), name))
    runtime.import_line("import tempfile")
    runtime.import_line("import triton")
    for used in ("choose", "known", "check"):
        runtime.add(used, getattr(programs, used), programs)
    keeping = looking = ""
    if features:
        runtime.add("template_code", programs.template_code, programs)
        runtime.add("check_code", compiled_code.check_code, compiled_code)
        lines = "".join(f"        {pattern},\n" for pattern in patterns(features, target))
        looking = f"    patterns = [\n{lines}    ]\n    faults += check_code(template_code(), patterns)\n"
    if generated:
        runtime.add("keep_modules", programs.keep_modules, programs)
        runtime.add("check_generated", programs.check_generated, programs)
        lines = "".join(f"        {entry},\n" for entry in generated)
        keeping = "    keep_modules()\n"
        looking += f"    checks = [\n{lines}    ]\n    faults += check_generated(checks)\n"
    body = templates.PROGRAM_MAIN.format(
        **_described(program, failed, record),
        function=name,
        seed=record.seed or 0,
        child=child("the compiler, or what it compiled,", runtime) if status_without_entry(record) in DIED else "",
        ready=templates.DEVICE_READY.format(arch=repr(target.arch)),
        keeping=keeping,
        looking=looking,
    )
    facts = {"function": program.graph, "template": record.kernel, "target": target.id, "seed": record.seed}
    title = "What torch.compile makes of a function fails"
    return templates.script(templates.GENERATED, title, facts, failure_in(record), sources, runtime, body)


def _read(record: CaseRecord) -> tuple[Program, targets.Target]:
    try:
        program = msgspec.convert(record.options.get("program"), Program)
        target = targets.find(str(record.target))
    except (ValueError, LookupError) as error:
        raise NotReproducible(f"what its record says was compiled cannot be compiled here: {error}") from None
    program = dataclasses.replace(program, graph=FORMER_MODULES.sub(_topic, program.graph))
    if not FUNCTIONS.fullmatch(program.graph):
        raise NotReproducible(f"{program.graph} is no function of the suites about Inductor")
    if program.decision is not None:
        raise NotReproducible(f"a script cannot replace the decision {program.decision.value!r} of Inductor's")
    return program, target


def _topic(former: re.Match[str]) -> str:
    module = former[1] or ""
    return f"conformance.inductor.topics.{RENAMED.get(module, module)}:"


def _shows(record: CaseRecord, failed: Sequence[Verdict]) -> bool:
    if not failed:  # an exception ended it
        return record.status not in (Status.PASS, Status.NOT_APPLICABLE, Status.NOT_RUN)
    return any(Check.parse(verdict.check).kind in SHOWN for verdict in failed)


def _features(failed: Iterable[Verdict]) -> dict[str, bool]:
    """Features that failed checks require (True) or forbid."""
    checks = [Check.parse(verdict.check) for verdict in failed]
    about_features = [check for check in checks if check.kind in (CheckKind.REQUIRES, CheckKind.FORBIDS)]
    return {check.subject: check.kind is CheckKind.REQUIRES for check in about_features}


def _generated(failed: Iterable[Verdict]) -> tuple[list[str], list[str]]:
    """Returns the patterns that failed checks counted in what was generated, as lines of the script; and for each check
    that no script can show, why."""
    counted, unseen = [], []
    for verdict in failed:
        directives, where = verdict.details.get("directives"), verdict.details.get("where")
        if directives is not None and where is not None:
            try:
                pattern, least, most = occurrences(str(directives))
            except NotReproducible as error:
                unseen.append(str(error))
                continue
            check = Check.parse(verdict.check).name
            counted.append(f"({check!r}, {where!r}, {raw(pattern)}, {least}, {most})")
    return list(dict.fromkeys(counted)), unseen


def occurrences(directives: str) -> tuple[str, int, int | None]:
    """Returns the one regular expression of FileCheck ``directives``, and how often they ask for it: at least, and at
    most (None: any number). Raises NotReproducible for directives that ask for more than that."""
    expressions, least, most = set(), 0, None
    for line in filter(str.strip, directives.splitlines()):
        kind, _, text = line.partition(": ")
        counted = re.fullmatch(r"CHECK(-NOT|-COUNT-(\d+))?", kind)
        if counted is None:
            raise NotReproducible(f"a script does not look for {line!r}")
        parts = re.split(r"\{\{(.*?)\}\}(?!\})", text)  # every second one is an expression
        expressions.add("".join(part if index % 2 else _literal(part) for index, part in enumerate(parts)))
        if counted[1] == "-NOT":
            most = least
        else:
            least += int(counted[2] or 1)
    if len(expressions) != 1:
        raise NotReproducible(f"a script looks for one pattern, and there are {len(expressions)} in {directives!r}")
    if most is not None and most < least:
        raise NotReproducible(f"nothing can be as {directives!r} asks for")
    return expressions.pop(), least, most


def _literal(text: str) -> str:
    """An expression for ``text``, in which any horizontal space stands for any other, as in FileCheck."""
    return r"[ \t]+".join(map(re.escape, re.split(r"[ \t]+", text)))


def _described(program: Program, failed: Iterable[Verdict], record: CaseRecord) -> dict[str, str]:
    """Returns the parts of ``program`` that stand in the script, as source."""
    descriptions, pick = _choice(record, program, failed)
    settings = {**ALWAYS, **dict(program.settings)}
    return {
        "calls": "".join(map(_call, (program.operands, *program.calls))),
        "arguments": repr(dict(program.arguments)),
        "marked": repr(list(program.marked)),
        "settings": "".join(f"    {name!r}: {value!r},\n" for name, value in settings.items()),
        "carveout": f"    torch._C._set_sm_carveout_experimental({program.carveout})\n" if program.carveout else "",
        "choosing": f"{program.templates!r}, {descriptions!r}, {pick!r}",
        "dynamic": repr(program.dynamic),
    }


def _call(operands: Iterable[Operand]) -> str:
    """The operands of one call, by name."""
    lines = []
    for operand in operands:
        if operand.dtype not in DTYPES:
            raise NotReproducible(
                f"operand {operand.name!r} has the dtype {operand.dtype!r}, known are {', '.join(DTYPES)}"
            )
        layout = f"{DTYPES[operand.dtype]}, {operand.shape}, {operand.strides}, {operand.offset}"
        lines.append(f"        {operand.name!r}: ({layout}),\n")
    return "".join(["    {\n", *lines, "    },\n"])


def _choice(record: CaseRecord, program: Program, failed: Iterable[Verdict]) -> tuple[str | None, int | None]:
    """Returns the expression for the descriptions of choices and which of these to take. The one that failed is named
    by its config: other stacks offer it at another place."""
    names = [Check.parse(verdict.check).config for verdict in failed]
    names.append(str((record.config or {}).get("id")))
    config = next((match for match in map(CONFIG.match, names) if match), None)
    if config is None:
        return program.descriptions, program.pick
    wishes = "".join(rf"(?=.*\b{key}={value}\b)" for key, value in zip(CONFIG_NAMES, config.groups(), strict=True))
    return f"^{wishes}" + (f"(?=.*{program.descriptions})" if program.descriptions else ""), 0
