"""The text of reproducers: what stands around a kernel's source and its data."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from conformance.kernels.kernel import Plan
from conformance.records import CaseRecord
from conformance.reproducers.definitions import Sources

#: What stands for the stack on which a script was seen to be fine, until that is known; the gate replaces it.
NOT_TRIED = "not tried"
#: Characters of one failure in a script, and failures.
LINE, LINES = 300, 8
#: Packages whose absence means that the script cannot run.
HEAVY = ("torch", "triton", "numpy")


@dataclass(frozen=True)
class SeenFailure:
    """A failure that a script is to show.

    ``case`` is the id of the case, ``failures`` has a line for each failed check, ``stack`` names the versions, such as
    "torch 2.13.0".
    """

    case: str
    failures: tuple[str, ...]
    stack: str


def failure_in(record: CaseRecord, failures: Sequence[str] = ()) -> SeenFailure:
    """Returns the failure as ``record`` has it: ``failures``, or else the checks that failed, or else its diagnosis."""
    failed = [f"{verdict.check}: {verdict.text}" for verdict in record.verdicts if not verdict.passed]
    failures = failures or failed or [f"{record.status.value}: {record.diagnosis}"]
    names = ("torch", "triton", "ptxas", "ptxas-blackwell", "driver")
    stack = ", ".join(f"{name} {record.stack[name]}" for name in names if record.stack.get(name))
    lines = [_shortened(line) for line in failures[:LINES]]
    if len(failures) > LINES:
        lines.append(f"and {len(failures) - LINES} more")
    return SeenFailure(record.case, tuple(lines), stack)


def _shortened(text: str) -> str:
    """Returns the first line of ``text``, without the places of files on this machine."""
    line = next((line for line in text.splitlines() if line.strip()), "")
    line = re.sub(r"(?<![\w.])/[^\s:'\"]+/", "", line)
    return line if len(line) <= LINE else line[: LINE - 3] + "..."


_SCRIPT = """\
{docstring}

{own}

{environment}

try:
{heavy}
except ImportError as error:
    print(f"CANNOT RUN: {{error}}")
    sys.exit(2)


# --- the kernel -----------------------------------------------------------------------------------


{kernel}


# --- how it is tried ------------------------------------------------------------------------------


{runtime}


{body}


if __name__ == "__main__":
    sys.exit(main())
"""


def script(
    way: tuple[str, str],
    title: str,
    facts: Mapping[str, object],
    seen: SeenFailure,
    kernel: Sources,
    runtime: Sources,
    body: str,
) -> str:
    """Returns the text of a whole script that runs in one ``way``, such as :data:`COMPILED`.

    Its docstring says by ``title`` what fails, and the ``facts`` about it. ``kernel`` and ``runtime`` are the
    definitions of the kernel and of what tries it, ``body`` the script's ``main``.
    """
    how, environment = way
    lines = dict.fromkeys((*kernel.imports.splitlines(), *runtime.imports.splitlines()))
    own = [line for line in lines if _root(line) not in HEAVY]
    own = sorted({*own, "import os", "import sys", "import traceback"}, key=lambda line: (line[:4] == "from", line))
    heavy = sorted((line for line in lines if _root(line) in HEAVY), key=_root)
    return _SCRIPT.format(
        docstring=_docstring(title, facts, seen, how),
        own="\n".join(own),
        environment=environment,
        heavy="\n".join(f"    {line}" for line in heavy),
        kernel=kernel.text,
        runtime=runtime.text,
        body=body.strip("\n"),
    )


def _root(line: str) -> str:
    return line.split()[1].partition(".")[0]


#: What a docstring begins with.
KERNEL = "A Triton kernel that fails"


def facts_of(plan: Plan) -> dict[str, object]:
    """Returns the facts about a kernel's plan for the docstring of a script."""
    return {
        "kernel": plan.kernel,
        "problem": plan.problem.id,
        "config": plan.config.id,
        "variant": plan.variant.id,
        "target": plan.target.id,
    }


def _docstring(title: str, facts: Mapping[str, object], seen: SeenFailure, how: str) -> str:
    """The docstring of a script: what fails, the ``facts`` about it, and ``how`` to run the script."""
    facts = {**facts, "case": seen.case, "fails with": seen.stack, "fine with": NOT_TRIED}
    failures = "\n".join(f"  * {line}" for line in seen.failures)
    listed = "\n".join(f"{name + ':':12}{value}" for name, value in facts.items() if value not in (None, ""))
    text = f"{title}:\n\n{failures}\n\n{listed}\n\n{how.strip()}\n{_STATUS}"
    plain = "".join(sign if sign == "\n" or sign.isprintable() else "?" for sign in text)
    return '"""' + plain.replace("\\", "\\\\").replace('"""', "'''") + '"""'


_STATUS = """\
Its last lines say FAULT, FINE or CANNOT RUN; the exit status is 1 if the fault shows, 0 if all is fine, 2 if the script
cannot run here.
"""

#: For each way of running: what the docstring says of it, and how the environment is prepared for it.
COMPILED = (
    """
Run it with python alone; it needs torch and triton, and no GPU: the kernel is compiled for the target and not launched.
""",
    'os.environ.pop("TRITON_INTERPRET", None)  # it is to be compiled, not interpreted',
)

INTERPRETED = (
    """
Run it with python alone; it needs torch, triton and numpy, and no GPU: Triton's interpreter runs the kernel. Inputs and
right results are at the end of this file. The kernel runs twice, with different poison around its tensors.
""",
    'os.environ["TRITON_INTERPRET"] = "1"  # the fault was seen in the interpreter, which needs no GPU',
)

LAUNCHED = (
    """
Run it with python alone; it needs torch, triton and a GPU of the target's architecture. Inputs and right results are
at the end of this file. The kernel runs twice, with different poison around its tensors.
""",
    'os.environ.pop("TRITON_INTERPRET", None)  # the fault was seen on a device',
)

GENERATED = (
    """
Run it with python alone; it needs torch, triton and a GPU of the target's architecture. The function is compiled and
called twice for each set of operands, small integers with different poison around them, and must return what it returns
uncompiled.
""",
    """\
os.environ.pop("TRITON_INTERPRET", None)  # it is to be compiled, not interpreted
FOLDER = tempfile.TemporaryDirectory()  # what is compiled goes there, and in the end with it
os.environ["TRITON_CACHE_DIR"] = os.environ["TORCHINDUCTOR_CACHE_DIR"] = FOLDER.name""",
)

#: The beginning of a ``main`` whose fault may take the process with it.
CHILD = """\
    if "child" not in sys.argv:
        return in_child({what!r}, {seconds:g})
"""

COMPILING_MAIN = """
def compile_and_look() -> list[str]:
    \"\"\"Compiles the kernel; what is wrong with it, a sentence each.\"\"\"
    faults: list[str] = []
{compiling}
{looking}
    print(f"{{kernel.metadata.name}}: {{kernel.metadata.shared}} bytes of shared memory")
    return faults


def main() -> int:
{child}    print(f"torch {{torch.__version__}}, triton {{triton.__version__}}")
    driver.set_active(Driver({target}))
    try:
        faults = compile_and_look()
    except Exception as error:
        traceback.print_exc(file=sys.stdout)
        if "ROCm linker" in str(error):  # Triton brings one from 3.5 on
            print("CANNOT RUN: this Triton needs the linker of ROCm for AMD's targets")
            return 2
        faults = ["the kernel does not compile"]
    print("\\n".join(f"FAULT: {{fault}}" for fault in faults) or "FINE: the compiled code is as it should be")
    return 1 if faults else 0
"""

INTERPRETER_READY = """\
    numpy_release, release = (tuple(map(int, m.__version__.split(".")[:2])) for m in (numpy, triton))
    if numpy_release >= (2, 4) and release < (3, 7):
        print("CANNOT RUN: the interpreter of this Triton needs numpy below 2.4")
        return 2
    # Triton's interpreter multiplies the bit patterns of bf16 and fp8, ignores rounding modes and rules of NaN.
    for owner, methods in corrections(interpreter):
        for name, method in methods.items():
            setattr(owner, name, method)
"""

DEVICE_READY = """\
    if not torch.accelerator.is_available():
        print("CANNOT RUN: a GPU is needed")
        return 2
    arch = triton.runtime.driver.active.get_current_target().arch
    if arch != {arch}:
        print(f"CANNOT RUN: this GPU is {{arch}}, the fault was seen on {arch}")
        return 2
    # the memory in which a kernel keeps the descriptors that it builds
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device=DEVICE))
"""

NUMBERS_MAIN = """
DEVICE = {device}


def launch({names}):
    \"\"\"Everything that the case launches.\"\"\"
{made}{calls}
{synchronise}

def main() -> int:
{child}    print(f"torch {{torch.__version__}}, triton {{triton.__version__}}")
{ready}    try:
        faults = check(launch, LAYOUTS, DATA, WANTED, DEVICE{repeats})
    except Exception:
        traceback.print_exc(file=sys.stdout)
        faults = ["the launch raises an exception"]
    print("\\n".join(f"FAULT: {{fault}}" for fault in faults) or "FINE: every element is right in both runs")
    return 1 if faults else 0


#: dtype, shape, strides, and the place of the first element after a boundary of 256 bytes, in elements
LAYOUTS = {{
{layouts}}}

#: the bits of the inputs, compressed; what is not here is an output
DATA = {{
{data}}}

#: the dtype and the bits of the least right values, of the largest if they differ, and of where NaN is right
WANTED = {{
{right}}}
"""

PROGRAM_MAIN = """
DEVICE = "cuda"

#: for each call, the operands: dtype, shape, strides, and the place of the first element in its storage
CALLS = [
{calls}]
ARGUMENTS = {arguments}
#: (operand, dimension) pairs that are marked dynamic
MARKED = {marked}
#: options of torch._inductor.config
SETTINGS = {{
{settings}}}


def compile_and_compare() -> list[str]:
    \"\"\"Compiles the function and calls it; what is wrong, a sentence each.\"\"\"
    from torch._inductor import config

{carveout}{keeping}    choose({choosing})
    with config.patch(known(SETTINGS)):
        compiled = torch.compile({function}, dynamic={dynamic})
        faults = check({function}, compiled, CALLS, ARGUMENTS, MARKED, {seed}, DEVICE)
{looking}    return faults


def main() -> int:
{child}    print(f"torch {{torch.__version__}}, triton {{triton.__version__}}")
{ready}    try:
        faults = compile_and_compare()
    except Exception as error:
        traceback.print_exc(file=sys.stdout)
        faults = [f"compiling or calling it raises {{type(error).__name__}}"]
    print("\\n".join(f"FAULT: {{fault}}" for fault in faults) or "FINE: what is compiled is as it should be")
    return 1 if faults else 0
"""
