"""Reproducers of what ``torch.compile`` generates: what they hold, what they compare, and when there is none.

Where there is no GPU the function stands uncompiled, or broken, in place of what was compiled.
"""

import dataclasses
import os
import re
import subprocess

import pytest
from torch._inductor.select_algorithm import AlgorithmSelectorCache

from conformance.inductor.source.source_checks import exactly
from conformance.records import CaseRecord, Status, Verdict
from conformance.reproducers.definitions import NotReproducible
from conformance.reproducers.program_scripts import program_script
from tests.forked_python import executable

PROGRAM = {
    "graph": "conformance.inductor.topics.gemm:mm",
    "operands": [
        {"name": "a", "shape": [24, 40], "strides": [48, 1], "dtype": "fp16", "offset": 8},
        {"name": "b", "shape": [40, 16], "strides": [1, 40], "dtype": "fp16", "offset": 0},
    ],
    "arguments": [],
    "dynamic": None,
    "settings": [["max_autotune_gemm", True], ["triton.enable_persistent_tma_matmul", True]],
    "marked": [["a", 0]],
    "carveout": 27,
    "templates": "^triton_mm_\\d+$",
    "descriptions": "\\bEPILOGUE_SUBTILE=1\\b",
    "pick": 184,
    "calls": [],
}
WRONG = Verdict("numerics/randn@128x64x32-s3-w4", False, "FAIL")
RECORD = CaseRecord(
    "test_inductor_gemm.py::test_mm[sm_90]",
    "inductor_gemm",
    Status.FAIL,
    kernel="inductor/mm",
    config={"id": "64x64x64-s2-w8"},
    options={"program": PROGRAM},
    target="sm_90",
    seed=0,
    stack={"torch": "2.13.0", "triton": "3.9.0"},
    verdicts=(WRONG,),
)
COMPILED = "torch.compile(mm, dynamic=None)"


def counted(directives, where="kernel"):
    """A record of a case that failed for ``directives``."""
    details = {"directives": directives, "where": where}
    return dataclasses.replace(RECORD, verdicts=(Verdict("source/x@64x64x64-s2-w8", False, "no", details),))


def with_program(**fields):
    return dataclasses.replace(RECORD, options={"program": {**PROGRAM, **fields}})


def run(text, tmp_path):
    """The exit status and the output of a script that runs where nothing of this package can be imported."""
    (tmp_path / "case.py").write_text(text)
    alone = "import runpy, sys; sys.modules['conformance'] = None; runpy.run_path(sys.argv[1], run_name='__main__')"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [executable(), "-c", alone, str(tmp_path / "case.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def on_cpu(monkeypatch, capsys):
    """Runs a script in this process with ``compiled`` in place of what Inductor would make, on the CPU: its status and
    its output. What it does to the process is undone."""
    for name in ("TRITON_INTERPRET", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(AlgorithmSelectorCache, "__call__", AlgorithmSelectorCache.__call__)

    def run(text, compiled):
        for old, new in (
            ('DEVICE = "cuda"', 'DEVICE = "cpu"'),
            (COMPILED, compiled),
            ("    if not torch.accelerator.is_available():", "    if False:"),
            ("    arch = triton.runtime.driver.active.get_current_target().arch", "    arch = 90"),
            ("    torch._C._set_sm_carveout_experimental(27)\n", ""),
            ("    triton.set_allocator(", "    (lambda allocator: None)("),
        ):
            assert text.count(old) == 1
            text = text.replace(old, new)
        names = {"__name__": "case"}
        exec(compile(text, "case.py", "exec"), names)
        try:
            status = names["main"]()
        except SystemExit as end:
            status = end.code
        return status, capsys.readouterr().out

    return run


def test_a_script_says_all_that_was_compiled():
    text = program_script(RECORD)
    for part in (
        "def mm(a: Tensor, b: Tensor",
        "'a': (torch.float16, (24, 40), (48, 1), 8)",
        "'triton.enable_persistent_tma_matmul': True",
        "MARKED = [('a', 0)]",
        "_set_sm_carveout_experimental(27)",
        COMPILED,
        "numerics/randn@128x64x32-s3-w4: FAIL",
        "torch 2.13.0, triton 3.9.0",
    ):
        assert part in text
    assert not re.search(r"^\s*(import|from) conformance", text, re.MULTILINE)


def test_the_choice_that_failed_is_pinned_and_not_the_last_one():
    """Its place among the choices is another on another stack, its config is the same."""
    line = next(line for line in program_script(RECORD).splitlines() if line.strip().startswith("choose("))
    expression = re.findall(r"'(\^[^']*)'", line)[1].replace("\\\\", "\\")
    described = "ALLOW_TF32=False, BLOCK_K=32, BLOCK_M=128, BLOCK_N=64, EPILOGUE_SUBTILE=1, num_stages=3, num_warps=4"
    assert re.search(expression, described)
    for other in (("BLOCK_M=128", "BLOCK_M=64"), ("num_warps=4", "num_warps=8"), ("SUBTILE=1", "SUBTILE=2")):
        assert not re.search(expression, described.replace(*other))


def test_without_a_gpu_a_script_says_that_it_cannot_run(tmp_path):
    status, output = run(program_script(RECORD), tmp_path)
    assert (status, "CANNOT RUN: a GPU is needed" in output) == (2, True), output


@pytest.mark.parametrize(
    ("compiled", "status", "says"),
    [
        ("mm", 0, "FINE"),
        (
            "lambda a, b: torch.mm(a, b) + (a == 3).any(1)[:, None]",
            1,
            r"FAULT: \d+ of 384 elements of output 0 of call 0",
        ),
        ("lambda a, b: torch.mm(a, b)[:8]", 1, r"FAULT: output 0 of call 0 is \(8, 16\), right is \(24, 16\)"),
        ("lambda a, b: mm(torch.as_strided(a, (24, 40), (48, 1), 9), b)", 1, r"FAULT: two runs give different bits"),
        (
            "lambda a, b: (a.as_strided((1,), (1,), 9 + 48).zero_(), mm(a, b))[1]",
            1,
            r"FAULT: bytes were written in .* a",
        ),
        ("lambda a, b: 1 / 0", 1, "FAULT: compiling or calling it raises ZeroDivisionError"),
    ],
    ids=["right", "wrong", "shape", "poison", "written", "raises"],
)
def test_what_is_computed_is_compared(on_cpu, compiled, status, says):
    exit_status, output = on_cpu(program_script(RECORD), compiled)
    assert exit_status == status, output
    assert re.search(says, output), output


def test_a_function_of_chance_is_no_reference(on_cpu):
    text = program_script(RECORD).replace("return torch.mm(a, b) if", "return torch.mm(a, b) * torch.rand(1) if")
    status, output = on_cpu(text, "mm")
    assert (status, "CANNOT RUN: the function itself returns something else each time" in output) == (2, True), output


def test_a_feature_that_failed_is_looked_for():
    lost = dataclasses.replace(RECORD, verdicts=(Verdict("codegen/requires/TMA_LOAD@64x64x64-s2-w8", False, "no"),))
    text = program_script(lost)
    assert "('TMA_LOAD', 'ptx'," in text
    assert "check_code(template_code(), patterns)" in text


#: A function that is not compiled, but says what would have been generated for it.
GENERATES = r"""(lambda a, b: (MODULES.append(
    "mm_0 = async_compile.triton('triton_tem_fused_mm_0', '''\n"
    "@triton_heuristics.template()\ndef triton_tem_fused_mm_0():\n    make(1)\n    make(2)\n''')\nempty(24)\n"
), mm(a, b))[1])"""


@pytest.mark.parametrize(
    ("directives", "where", "fault"),
    [
        (exactly(2, r"\bmake\(\d\)"), "kernel", None),
        (exactly(3, r"\bmake\("), "kernel", "is 2 times in the kernel, 3 required"),
        (exactly(1, r"^ +make\(1\)$"), "kernel", None),
        (exactly(0, "make"), "module", "'make' is 2 times in the module, 0 required"),
        ("CHECK: def triton_tem_fused_mm", "kernel", None),
        ("CHECK: def triton_tem_fused_{{b?}}addmm", "kernel", "is 0 times in the kernel, at least 1 required"),
        ("CHECK: {{empty.([0-9]{2}.)}}", "module", None),
        ("CHECK: empty(24)", "kernel", "is 0 times in the kernel"),
    ],
)
def test_what_a_check_counted_in_the_source_is_counted(on_cpu, directives, where, fault):
    status, output = on_cpu(program_script(counted(directives, where)), GENERATES)
    assert (status, (fault or "FINE") in output) == (int(fault is not None), True), output


def test_a_check_that_no_script_shows_takes_no_other_away():
    record = counted("CHECK: a\nCHECK: b")
    assert "numerics/randn" in program_script(dataclasses.replace(record, verdicts=(WRONG, *record.verdicts)))


def test_what_a_check_counted_in_a_stage_is_counted(on_cpu):
    writes = (
        "(lambda a, b: (Path(os.environ['TRITON_CACHE_DIR'], 'triton_tem_fused_mm_0.ttir')"
        ".write_text('tt.store %1 // tt.store\\n'), mm(a, b))[1])"
    )
    status, output = on_cpu(program_script(counted(exactly(1, r"\btt\.store\b"), "ttir")), writes)
    assert (status, "FINE" in output) == (0, True), output
    status, output = on_cpu(program_script(counted(exactly(2, r"\btt\.store\b"), "ttir")), writes)
    assert (status, "is 1 times in the ttir, 2 required" in output) == (1, True), output


def test_a_compilation_that_takes_its_process_with_it_has_one_of_its_own():
    text = program_script(dataclasses.replace(RECORD, status=Status.CRASH, verdicts=()))
    assert "in_child('the compiler, or what it compiled,', 240)" in text


@pytest.mark.parametrize(
    ("former", "now"),
    [("graphs", "gemm:mm"), ("graphs.products", "gemm:mm"), ("graphs_operations", "operations:cat_mm")],
)
def test_a_record_from_before_the_modules_were_moved(former, now):
    module, _, function = now.partition(":")
    scripts = [
        program_script(with_program(graph=f"conformance.inductor.{name}:{function}"))
        for name in (former, f"topics.{module}")
    ]
    assert scripts[0] == scripts[1]


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (dataclasses.replace(RECORD, status=Status.PASS, verdicts=()), "it did not fail: a script of what Inductor"),
        (
            dataclasses.replace(RECORD, verdicts=(Verdict("recompiles@64x64x64-s2-w8", False),)),
            "what failed is recompiles: a script of what Inductor generates cannot show that",
        ),
        (counted("CHECK: a\nCHECK-NEXT: b"), "a script does not look for 'CHECK-NEXT: b'"),
        (counted("CHECK: a\nCHECK: b"), "a script looks for one pattern, and there are 2 in"),
        (counted("CHECK-NOT: a\nCHECK: a"), "nothing can be as 'CHECK-NOT: a\\nCHECK: a' asks for"),
        (dataclasses.replace(RECORD, target="sm_1"), "cannot be compiled here: target 'sm_1' is not available"),
        (with_program(graph="os:system"), "os:system is no function of the suites about Inductor"),
        (with_program(graph="conformance.inductor.topics.gemm:mm; import os"), "is no function of the suites"),
        (with_program(decision="decomposes k"), "cannot replace the decision 'decomposes k'"),
        (with_program(dynamic="print(1)"), "Expected `bool | null`, got `str`"),
        (with_program(operands=[{"name": "a"}]), "cannot be compiled here: Object missing required field"),
        (with_program(operands=[{**PROGRAM["operands"][0], "dtype": "fp6"}]), "'a' has the dtype 'fp6', known are"),
        (with_program(graph="conformance.inductor.topics.operations:many_of_one_in_a_graph"), "is a closure"),
    ],
    ids=range(13),
)
def test_why_there_is_no_script(record, says):
    with pytest.raises(NotReproducible, match=re.escape(says)):
        program_script(record)
