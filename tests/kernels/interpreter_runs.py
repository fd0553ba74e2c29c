"""Runs kernels in the interpreter, in a child process, against torch's fp64; :func:`run` returns what is wrong.

Independent of the oracle: inputs are small integers, so that every sum is exact, and the meaning is written out below.
"""

from __future__ import annotations

import atexit
import functools
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: Imports once what every call needs, knowing from its start that kernels are interpreted. Each call has a copy of the
#: process, so that none sees what another has changed.
SERVER = """
import os, pickle, sys, traceback
import conformance.execution.interpreter.executor, conformance.kernels.catalogue, numpy, torch, triton, pytest
for line in sys.stdin:
    folder = line.rstrip()
    child = os.fork()
    if not child:
        code = 1
        try:
            os.dup2(os.open(f"{folder}/errors", os.O_WRONLY | os.O_CREAT), 2)
            os.dup2(2, 1)
            with open(f"{folder}/call", "rb") as file:
                sys.path[:], environment = pickle.load(file)
                os.environ.update(environment)
                function, arguments = pickle.load(file)
            answer = pickle.dumps(function(*arguments))
            with open(f"{folder}/answer", "wb") as file:
                file.write(answer)
            code = 0
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def _environment():
    return {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}


@functools.cache
def _server():
    environment = {**_environment(), "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    server = subprocess.Popen([sys.executable, "-c", SERVER], env=environment, **pipes)
    atexit.register(server.communicate)
    return server


def in_interpreter(function, *arguments):
    """``function(*arguments)`` from a process that knows from its start that kernels are interpreted."""
    server = _server()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        state = [str(ROOT), *sys.path], _environment()
        (folder / "call").write_bytes(pickle.dumps(state) + pickle.dumps((function, arguments)))
        server.stdin.write(f"{folder}\n")
        server.stdin.flush()
        code = server.stdout.readline().strip()
        errors = (folder / "errors").read_text() if code != "0" else ""
        if "InterpreterUnsupported: no-interpreter (numpy)" in errors:
            pytest.skip(errors.strip().rsplit("InterpreterUnsupported: ", 1)[1])
        assert code == "0", f"exit status {code}: {errors}"
        return pickle.loads((folder / "answer").read_bytes())


@functools.cache
def executor():
    """The executor of such a process: to make it is to prove it."""
    from conformance.execution.interpreter.executor import InterpreterExecutor

    return InterpreterExecutor()


def run(cases, *, spoil=False):
    """Complaints about each of ``cases``, which are (kernel name, problem, config) or (..., variant).

    ``spoil`` changes one element of each result.
    """
    return in_interpreter(run_here, list(cases), spoil)


def run_here(cases, spoil):
    from conformance import targets

    target = targets.find("sm_90")
    return [complaints(*case, executor=executor(), target=target, spoil=spoil) for case in cases]


def complaints(name, problem, config, variant=None, *, executor, target, spoil):
    """Returns the faults of one case: numbers, memory, grid."""
    import functools

    import torch

    from conformance.execution.trial.trial import run_guarded
    from conformance.kernels import catalogue
    from conformance.kernels.kernel import Variant

    kernel = catalogue.get(name)
    plan = kernel.plan(problem, config, target, variant or Variant())
    inputs = {operand.name: draw(problem, operand) for operand in problem.operands}
    expected = meaning(problem, inputs)
    launcher, once = functools.partial(kernel.launch, plan), kernel.contract(plan, executor.name).stores_once
    outputs, wrongs, ran = run_guarded(launcher, problem, inputs, executor, 0, stores_once=once)
    out = outputs["out"].double()
    if spoil:
        out.view(-1)[-1] += 1
    wrong = ~((out - expected).abs() <= tolerance(problem, expected, outputs["out"].dtype))
    if wrong.any():
        at = tuple(wrong.nonzero()[0].tolist())
        wrongs.append(f"{int(wrong.sum())} wrong, {at} is {out[at]}, {expected[at]} is right")
    sums = inputs["a"].double().sum(1).float() if "sums" in outputs else None
    if sums is not None and not torch.equal(outputs["sums"], sums):
        wrongs.append(f"row sums {outputs['sums'].tolist()}, {sums.tolist()} are right")
    if ran.grid != plan.grid:
        wrongs.append(f"grid {ran.grid}, planned {plan.grid}")
    return wrongs


def tolerance(problem, expected, dtype):
    """Returns 0 unless a gelu or silu makes numbers that are no integers. Then it is a unit of the output, and some of
    fp32 of the largest number, because gelu adds 1 to a nearby -1."""
    import torch

    if problem.op != "dual_mm" and (problem.fusion is None or "gelu" not in problem.fusion.epilogue):
        return 0
    return expected.abs() * torch.finfo(dtype).eps + expected.abs().max() * 2.0**-22


def draw(problem, operand):
    """Small integers, or powers of two for scales, that every dtype holds; dense."""
    import torch

    from conformance.problems import DTYPES

    generator = torch.Generator().manual_seed(sum(map(ord, operand.name)))
    low, high = -3, 4
    if operand.name == "rows":
        low, high = 0, problem.operand("a").shape[0]
    elif operand.name == "mask":
        low, high = 0, 3
    elif operand.dtype == "uint8":
        low, high = 0, 4
    if operand.name == "rows" and problem.fusion.prologue == "scatter":
        return torch.randperm(problem.M, generator=generator).to(DTYPES[operand.dtype])
    shape = tuple(1 if stride == 0 else extent for extent, stride in zip(operand.shape, operand.strides, strict=True))
    values = torch.randint(low, high, shape, generator=generator)
    if operand.name in ("scale_a", "scale_b", "row_scale", "k_scale"):
        values = 2.0 ** (values % 3)
    return values.to(DTYPES[operand.dtype]).expand(operand.shape)


def meaning(problem, inputs):
    """The result in fp64, rounded to the output's dtype."""
    import torch

    from conformance.problems import DTYPES

    x = {name: tensor.double() for name, tensor in inputs.items()}
    a, b = x["a"], x["b"]
    fusion = problem.fusion
    if fusion is not None and fusion.prologue == "gather":
        a = a[inputs["rows"].long()]
    if fusion is not None and fusion.prologue == "scatter":
        a = torch.empty_like(a).index_copy_(0, inputs["rows"].long(), a)
    if fusion is not None and fusion.prologue == "scale-k":
        a = a * x["k_scale"]
    if fusion is not None and fusion.prologue == "scale":
        a = a * x["row_scale"][:, None]
    if problem.scaling is not None:
        rows, columns = (1 if kind == "1x128" else 128 for kind in problem.scaling.split("/"))
        a = a * x["scale_a"].repeat_interleave(rows, 0)[: problem.M].repeat_interleave(128, 1)[:, : problem.K]
        b = b * x["scale_b"].repeat_interleave(columns, 1)[:, : problem.N].repeat_interleave(128, 0)[: problem.K]
    out = problem.alpha * (a @ b)
    if problem.op == "mm_plus_mm":
        out = out + x["c"] @ x["d"]
    if problem.op == "dual_mm":
        out = torch.nn.functional.silu(out) * (a @ x["d"])
    steps = fusion.epilogue if fusion is not None else ("bias",) if problem.reads_bias else ()
    for step in steps:
        if step == "bias":
            out = out + problem.beta * x["bias"]
        elif step == "residual":
            out = out + x["residual"]
        elif step == "relu":
            out = out.relu()
        elif step == "gelu":
            out = torch.nn.functional.gelu(out)
        else:
            out = torch.where(inputs["mask"] != 0, out * 2, 0.0)
    return out.to(DTYPES[problem.output_dtype]).double()
