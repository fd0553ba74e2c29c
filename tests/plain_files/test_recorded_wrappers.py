"""A wrapper may do with tensors what wrappers do; what it may not do has one sentence."""

from __future__ import annotations

import pytest

from conformance import targets
from conformance.plain_files import asked_problems
from conformance.plain_files.asked_problems import problems_of
from conformance.plain_files.description import Described, DescriptionError
from conformance.plain_files.file_kernel import Recorded, kernel_of
from conformance.plain_files.recording import Question, record
from conformance.plain_files.sandbox import SandboxError
from conformance.plain_files.tape import Answer, Tape, decode, encode
from conformance.problems import Operand
from tests.kernels.interpreter_runs import in_interpreter

TAKEN = [
    "a.contiguous()",
    "a.cuda()",
    "a.to('cuda')",
    "a.to(device=torch.device('cuda'), dtype=torch.float32)",
    "torch.zeros(4, 4, device='cuda')[:, :2].fill_(1)",
    "torch.empty(4, 4, device='cuda').__setitem__((0, slice(None)), 1.0)",
    "torch.empty_like(a).copy_(a)",
    "torch.promote_types(a.dtype, torch.float32)",
    "['CUDA'][torch.version.cuda is None]",
    "['two'][torch.cuda.get_device_properties(0).multi_processor_count - 2]",
    "['two'][triton.runtime.driver.active.utils.get_device_properties(0)['multiprocessor_count'] - 2]",
    "registered(a)",
    "torch.ops.recorded.registered(a)",
    "triton.runtime.driver.active.get_device_interface().current_device()",
]
FAULTS = {
    "a @ a.t()": "the wrapper calls torch's mm: the result must come from the kernels of the file alone",
    "torch.tensor([1, 2], device='cuda')": "the wrapper calls torch's tensor: the result must come",
    "a[0, 0].item()": "the wrapper reads values of a tensor, by torch's aten._local_scalar_dense.default",
    "a.numpy()": "the wrapper raised RuntimeError: .numpy() is not supported",
    "a.view(7)": "the wrapper raised RuntimeError: ",
    "refuse(a)": "refused: ValueError: too small",
}
FILE = """
import torch

@torch.library.custom_op("recorded::registered", mutates_args=())
def registered(a: torch.Tensor) -> torch.Tensor:
    return a.cuda().clone()

def refuse(a):
    raise ValueError("too small")
"""


def tapes_of(path, expressions):
    """Returns the fault of each expression, whose operand is a transposed matrix; "" if it has none."""
    question = Question([Operand("a", (8, 4), (1, 8), "fp16")], [], {}, 0)
    answers = [decode(record(path, f"({each}, None)[1]", targets.find("sm_90"), [question])) for each in expressions]
    tapes = [answer.tapes[0] for answer in answers]
    return [f"refused: {tape.refused}" if tape.refused else tape.fault for tape in tapes]


def test_wrappers_may_do_what_wrappers_do_and_the_rest_has_a_sentence(tmp_path):
    path = tmp_path / "file.py"
    path.write_text(FILE)
    said = in_interpreter(tapes_of, path, [*TAKEN, *FAULTS])
    assert dict(zip(TAKEN, said, strict=False)) == dict.fromkeys(TAKEN, "")
    for expected, text in zip(FAULTS.values(), said[len(TAKEN) :], strict=True):
        assert text.startswith(expected)


SCRIPTS = {
    "matmul_kernel[(1,)](1)": "launches a kernel",
    "triton.autotune([triton.Config({})], [])(matmul_kernel)[(1,)](1)": "launches a kernel",
    "torch.zeros(1, device='cuda').item()": "raises DataDependentOutputException: ",
    "raise SystemExit(3)": "raises SystemExit: 3",
}


def import_faults(paths):
    return [decode(record(path, "1", targets.find("sm_90"), [])).fault for path in paths]


def test_a_script_is_told_its_line_and_the_guard_that_it_needs(tmp_path):
    paths = [tmp_path / f"file{number}.py" for number in range(len(SCRIPTS) + 1)]
    for path, text in zip(paths, [*SCRIPTS, "import unknown"], strict=True):
        path.write_text(f"import torch, triton\n@triton.jit\ndef matmul_kernel(x):\n    pass\n\n{text}\n")
    *faults, other = in_interpreter(import_faults, paths)
    for path, fault, said in zip(paths, faults, SCRIPTS.values(), strict=False):
        assert fault.startswith(f"{path.name} cannot be imported: line 6 {said}")
        assert fault.endswith("; put the lines that a script runs below 'if __name__ == \"__main__\":'")
    assert other.endswith("cannot be imported: line 6 raises ModuleNotFoundError: No module named 'unknown'")


def problem_of(tmp_path, operation, call, **fields):
    recorded = Recorded(Described(operation=operation, call=call, **fields), "file.kernel")
    return next(problems_of(kernel_of(recorded, tmp_path)))[0]


def test_a_factor_or_mask_that_the_call_does_not_name_is_that_of_a_function_without_it(tmp_path):
    plain = problem_of(tmp_path, "addmm", "addmm(bias, a, b)")
    scaled = problem_of(tmp_path, "addmm", "addmm(bias, a, b, alpha)")
    assert [(each.alpha, each.beta) for each in (plain, scaled)] == [(1, 1), (4, 1)]
    assert problem_of(tmp_path, "attention", "attention(q, k, v)").mask.kind == "full"


def test_a_kernel_without_masks_is_asked_for_whole_tiles(tmp_path):
    problem = problem_of(tmp_path, "mm", "matmul(a, b)", shapes=("whole-tiles",), tile=(64, 32, 16))
    assert (problem.M, problem.N, problem.K) == (128, 64, 32)


@pytest.mark.parametrize("wrong", [{"dtypes": ("int8",)}, {"fields": {"activation": "relu"}}])
def test_a_problem_that_cannot_be_is_one_sentence(tmp_path, wrong):
    with pytest.raises(DescriptionError, match=r"int_mm takes int8|unexpected keyword argument 'activation'"):
        problem_of(tmp_path, "mm", "matmul(a, b)", **wrong)


def test_a_forged_number_of_configs_costs_no_memory(monkeypatch, tmp_path):
    forged = encode(Answer((), (Tape(configs=10**9),)))
    monkeypatch.setattr(asked_problems, "run_apart", lambda *arguments: forged)
    described = Described(operation="mm", call="mm(a, b)", dtypes=("fp32",))
    with pytest.raises(SandboxError, match="names 1000000000 configs, and at most 4096 are judged"):
        asked_problems.recorded(tmp_path / "mm.py", described, [targets.find("sm_90")], tmp_path)
