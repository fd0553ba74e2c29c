"""Reproducers: a failing case as one script that needs torch and triton only.

One kind of script compiles the kernel without a GPU and looks at the code (:func:`compiling_script`). The other
launches it over the inputs that failed and compares the result (:func:`numbers_script`). The kernel's source and the
data are in it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from conformance.codegen_checks import FEATURES, Feature, evidence_of
from conformance.execution.compile.specialisation import bound_arguments
from conformance.execution.interpreter.corrections import corrections
from conformance.execution.trial.trial import place
from conformance.inputs.fills import Fill
from conformance.kernels.catalogue import meta_tensor
from conformance.kernels.kernel import Kernel, Plan
from conformance.kernels.launch import Launch
from conformance.numerics.contract import Contract
from conformance.numerics.rounding import FORMATS, round_to
from conformance.numerics.verdict import interval
from conformance.records import ExecutorName
from conformance.reproducers import script_text as templates
from conformance.reproducers.copied import compiled_code, numbers
from conformance.reproducers.copied.child import in_child
from conformance.reproducers.definitions import NotReproducible, Sources
from conformance.reproducers.launch_arguments import TensorWriter, packed, without_memory, written
from conformance.reproducers.script_text import SeenFailure
from conformance.targets import Target

#: Characters of a script at most; what would be larger is refused.
LARGEST = 2_000_000
#: Seconds that the child process of a script may take whose fault is that it crashes or hangs.
SECONDS = 240.0


@dataclass(frozen=True)
class Checks:
    """The checks that a compiling script makes of the compiled kernel.

    ``features`` maps names to whether they are required. ``limits`` maps names of resources, as ``used_on_nvidia`` and
    ``used_on_amd`` in ``copied/compiled_code.py`` call them, to the most that is allowed. ``dies``: the compiler
    crashes or hangs, so a child process runs it, for :data:`SECONDS` at most. ``faults`` are names of counts of
    :mod:`conformance.execution.compile.code_structure` that must be 0.
    """

    features: Mapping[str, bool] = dataclasses.field(default_factory=dict)
    limits: Mapping[str, int] = dataclasses.field(default_factory=dict)
    dies: bool = False
    faults: tuple[str, ...] = ()


def limits_of(target: Target) -> dict[str, int]:
    """Returns the limits of one block on ``target``, by the names that a script uses."""
    declared = target.limits
    limits = {"shared memory": declared.shared_memory, "registers": declared.registers}
    if target.vendor == "nvidia":
        limits |= {"block registers": declared.block_registers, "tensor memory": declared.tensor_memory}
    return {name: limit for name, limit in limits.items() if limit is not None}


# --- compiling --------------------------------------------------------------------------------------------------------


def compiling_script(kernel: Kernel, plan: Plan, checks: Checks, seen: SeenFailure, only: str | None = None) -> str:
    """A script that compiles what ``plan`` launches for its target and looks for what ``checks`` says, in the main
    launch or the one called ``only``. Raises NotReproducible."""
    launch = kernel.launch(plan, {operand.name: meta_tensor(operand) for operand in plan.problem.tensors})
    steps = [step for step in launch.steps if not step.empty]
    if only is not None:
        steps = [step for step in steps if step.function.fn.__name__ == only]
    elif checks.features or checks.limits or checks.faults:
        steps = [launch]
    sources = _sources()
    for line in ("from triton.backends.compiler import GPUTarget", "from triton.runtime import driver"):
        sources.import_line(line)
    compiled = [_call(step, sources, without_memory, ".warmup", grid=repr(step.grid)) for step in steps]
    runtime = _runtime(compiled_code, ["Driver", "pointer"])
    lines = [f"    kernel = {text}" for text in compiled]
    looks: list[str] = []
    if checks.features:
        runtime.add("check_code", compiled_code.check_code)
        declared = kernel.features(plan)
        own = declared.required | declared.forbidden
        lines_of_patterns = "".join(f"        {pattern},\n" for pattern in patterns(checks.features, plan.target, own))
        looks.append(f"    patterns = [\n{lines_of_patterns}    ]\n    faults += check_code(kernel, patterns)")
    if checks.limits:
        read = f"used_on_{plan.target.vendor}"
        if not hasattr(compiled_code, read):
            raise NotReproducible(f"no script knows what code of {plan.target.vendor} uses")
        for name in (read, "check_limits"):
            runtime.add(name, getattr(compiled_code, name))
        looks.append(f"    faults += check_limits({read}(kernel), {dict(checks.limits)!r})")
    if checks.faults:
        stage = {"nvidia": "ptx", "amd": "amdgcn"}.get(plan.target.vendor)
        if stage is None:
            raise NotReproducible(f"no script knows the order of instructions in code of {plan.target.vendor}")
        runtime.add("check_structure", compiled_code.check_structure)
        looks.append(f"    faults += check_structure({stage!r}, kernel.asm[{stage!r}], {checks.faults!r})")
    target = plan.target
    body = templates.COMPILING_MAIN.format(
        target=f"GPUTarget({target.backend!r}, {target.arch!r}, {target.warp_size})",
        compiling="\n".join(lines),
        looking="\n".join(looks),
        child=child("the compiler", runtime) if checks.dies else "",
    )
    facts = templates.facts_of(plan)
    return templates.script(templates.COMPILED, templates.KERNEL, facts, seen, sources, runtime, body)


def patterns(features: Mapping[str, bool], target: Target, own: Iterable[Feature] = ()) -> list[str]:
    """Returns the expressions that a script looks for in the code of ``target``, one for each piece of evidence.
    ``own`` are features that the kernel brings besides :data:`~conformance.codegen_checks.FEATURES`. Raises
    NotReproducible."""
    meanings = {feature.name: feature for feature in (*FEATURES, *own)}
    lines = []
    for name, required in features.items():
        if name not in meanings:
            raise NotReproducible(f"{name} is no feature that is known here: {', '.join(meanings)}")
        for piece in evidence_of(meanings[name], target.vendor):
            expression = re.fullmatch(r"CHECK: \{\{(.*)\}\}", piece.directive)
            if expression is None:
                raise NotReproducible(f"{piece.directive} is no regular expression alone")
            if required or piece.proves_absence:
                lines.append(f"({name!r}, {piece.stage!r}, {raw(expression[1])}, {required})")
    if not lines:
        raise NotReproducible(f"nothing in the code of {target.vendor} shows {', '.join(features)}")
    return lines


def raw(expression: str) -> str:
    """Returns a regular expression as a literal of Python."""
    return repr(expression) if '"' in expression or expression.endswith("\\") else f'r"{expression}"'


# --- numbers ----------------------------------------------------------------------------------------------------------


def numbers_script(
    kernel: Kernel, plan: Plan, fill: Fill, executor: ExecutorName, seen: SeenFailure, *, dies: bool = False
) -> str:
    """A script that launches ``plan`` over the inputs of ``fill`` on the device or in the interpreter, as ``executor``
    says, and compares what it leaves. ``dies``: the launch crashes or hangs, so that a child process has to do it.
    Raises NotReproducible, also if the data is too large."""
    interpreted = executor == ExecutorName.INTERPRETER
    problem, sources = plan.problem, _sources()
    placed = {name: tensor.view for name, tensor in place(problem, fill.inputs, 0, torch.device("cpu")).items()}
    launch, tensors = kernel.launch(plan, placed), TensorWriter(placed)
    steps = (_as_interpreted(launch) if interpreted else launch).steps
    calls = [f"    {_call(step, sources, tensors, f'[{step.grid}]')}" for step in steps if not step.empty]
    views = {**placed, **tensors.embedded}
    read = [*(operand.name for operand in problem.operands), *tensors.embedded]
    contract = kernel.contract(plan, executor)
    right = {output.name: _right_values(contract, fill, problem, output.name) for output in problem.outputs}
    runtime = _runtime(numbers, ["check"])
    body = templates.NUMBERS_MAIN.format(
        device=repr("cpu" if interpreted else _device()),
        names=", ".join(views),
        made="".join(f"    {name} = {expression}\n" for name, expression in tensors.constants.items()),
        calls="\n".join(calls),
        child=child("the launch", runtime) if dies else "",
        synchronise="" if interpreted else "    torch.accelerator.synchronize()\n",
        ready=_interpreter_ready(runtime)
        if interpreted
        else templates.DEVICE_READY.format(arch=repr(plan.target.arch)),
        layouts=_entries({name: _layout(view) for name, view in views.items()}),
        data=_entries({name: f'"""\n{packed(_narrow(views[name]))}\n"""' for name in read}),
        right=_entries(right),
        repeats="" if contract.deterministic or fill.method == "exact" else ", repeats=False",
    )
    way = templates.INTERPRETED if interpreted else templates.LAUNCHED
    facts = {**templates.facts_of(plan), "inputs": f"those called {fill.name}, seed {fill.seed}"}
    script = templates.script(way, templates.KERNEL, facts, seen, sources, runtime, body)
    if len(script) > LARGEST:
        raise NotReproducible(
            f"the script would have {len(script)} characters, {LARGEST} are allowed: the data of fill {fill.name} is "
            "too large; a case of a smaller problem may fail alike"
        )
    return script


def _device() -> str:
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None:
        raise NotReproducible("this case needs a GPU and none was found: run it on a machine with a GPU")
    return str(accelerator.type)


def _interpreter_ready(runtime: Sources) -> str:
    """Returns the code that a script runs before it interprets; what that needs is added to ``runtime``."""
    runtime.import_line("import numpy")
    runtime.add("corrections", corrections)
    runtime.import_line("from triton.runtime import interpreter")
    return templates.INTERPRETER_READY


def _entries(values: Mapping[str, str]) -> str:
    """Entries of a dictionary, a line or more each."""
    return "".join(f"    {name!r}: {expression},\n" for name, expression in values.items())


def _as_interpreted(launch: Launch) -> Launch:
    """The interpreter takes no compile options, and the values of constexpr arguments."""
    return dataclasses.replace(
        launch,
        arguments={name: getattr(value, "value", value) for name, value in launch.arguments.items()},
        options={},
        before=tuple(map(_as_interpreted, launch.before)),
        after=tuple(map(_as_interpreted, launch.after)),
    )


def _narrow(view: Tensor) -> Tensor:
    """Without repetitions: a dimension of stride 0 has one element in memory."""
    return view[tuple(slice(0, 1 if stride == 0 else None) for stride in view.stride())]


def _layout(view: Tensor) -> str:
    narrow = _narrow(view)
    # what counts of the place is the alignment of the first element, to 256 bytes as the harness has it
    offset = narrow.data_ptr() % 256 // narrow.element_size()
    return f"({narrow.dtype}, {tuple(narrow.shape)}, {tuple(narrow.stride())}, {offset})"


def _right_values(contract: Contract, fill: Fill, problem: Any, output: str) -> str:
    """The least and the largest right value of each element and where NaN is right, as a tuple for the script."""
    if output != problem.output.name:
        contract = dataclasses.replace(contract, out_dtype=problem.operand(output).dtype)
        fill = fill.of(output)
    if fill.method == "exact":
        low = round_to(fill.expected, contract.out_dtype, overflow=contract.overflow)
        high, nan = low, None
        if contract.flushes_subnormals:
            values = low.double()  # torch computes nothing in fp8
            small = values.abs() < FORMATS[contract.out_dtype].smallest_normal
            low, high = (torch.where(small & side, 0, values).to(low.dtype) for side in (values > 0, values < 0))
    else:
        limits = interval(contract, fill, torch.device("cpu"))
        low, high, nan = limits.low, limits.high, limits.nan
    least, most = packed(low), packed(high)
    bits = [least, "" if least == most else most, "" if nan is None else packed(nan)]
    return f"({low.dtype}, " + ", ".join(f'"""\n{text}\n"""' if text else '""' for text in bits) + ")"


def child(what: str, runtime: Sources) -> str:
    """The beginning of ``main`` that runs ``what`` in a child process; what that needs is added to ``runtime``."""
    runtime.add("in_child", in_child)
    return templates.CHILD.format(what=what, seconds=SECONDS)


def _sources() -> Sources:
    """Sources with what every script uses."""
    import triton
    import triton.language as tl

    sources = Sources()
    for name, module in (("torch", torch), ("triton", triton), ("tl", tl)):
        sources.add(name, module)
    return sources


def _runtime(module: Any, names: Sequence[str]) -> Sources:
    sources = Sources()
    for name in names:
        sources.add(name, getattr(module, name), module)
    return sources


def _call(step: Launch, sources: Sources, tensor: Callable[[Tensor], str], how: str, **extra: str) -> str:
    """Returns the launch ``step`` as an expression over several lines."""
    name = sources.add(step.function.fn.__name__, step.function)
    bound = bound_arguments(step.function, step.arguments)
    arguments = {key: written(value, sources, tensor) for key, value in bound.items()} | extra
    arguments |= {key: repr(value) for key, value in step.options.items()}
    lines = _filled([f"{key}={value}" for key, value in arguments.items()], " " * 8)
    return f"{name}{how}(\n{lines}\n    )"


def _filled(parts: Sequence[str], indent: str) -> str:
    """``parts`` with commas between them, as many on a line as fit."""
    lines, line = [], indent
    for part in parts:
        if len(line) + len(part) > 118 and line.strip():
            lines.append(line.rstrip())
            line = indent
        line += f"{part}, "
    return "\n".join([*lines, line.rstrip()])
