"""Reproducers stand alone, show a planted fault and are silent without it.

Each script runs in a plain Python process in which the package cannot be imported.
"""

import dataclasses
import importlib
import os
import re
import subprocess
import sys

import pytest
import torch
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from conformance import targets
from conformance.codegen_checks import Evidence, Feature
from conformance.execution.trial.fill_groups import fills_for
from conformance.families.gemm.problem import mm, scaled_mm
from conformance.gate.changes.occupancy import occupancy, room
from conformance.heuristics.configs import Config
from conformance.judging.case_recorder import CaseRecorder
from conformance.judging.case_reproducers import Reproducers
from conformance.kernels import catalogue
from conformance.kernels.kernel import Features, Variant
from conformance.record_figures import LATE_WAITS, ROUND_TRIPS, Resources
from conformance.records import CompileFailure, ExecutorName, Status
from conformance.reproducers import kernel_scripts
from conformance.reproducers.copied.numbers import unpacked
from conformance.reproducers.definitions import NotReproducible, Sources
from conformance.reproducers.kernel_scripts import Checks, compiling_script, limits_of, numbers_script
from conformance.reproducers.launch_arguments import packed, without_memory, written
from conformance.reproducers.script_request import ScriptRequest, file_name
from conformance.reproducers.script_text import SeenFailure
from tests.forked_python import executable
from tests.planted import cases as on
from tests.planted.accumulator_faults import CHAINED, DUAL, WITH_SUMS
from tests.planted.cases import Case, Fault
from tests.planted.cases import fault as fault_of_one_edit
from tests.planted.faults import FAULTS
from tests.planted.planted_kernels import planted

SEEN = SeenFailure("test_some.py::test_case[mm-sm_90]", ("numerics/randn: FAIL",), "torch 2.13.0, triton 3.9.0")
SM_90 = targets.find("sm_90")
#: Runs a script as Python does, where nothing of this package can be imported.
ALONE = "import runpy, sys; sys.modules['conformance'] = None; runpy.run_path(sys.argv[1], run_name='__main__')"


@pytest.fixture
def run(tmp_path):
    """The exit status and the output of a script."""

    def run(text):
        script = tmp_path / "case.py"
        script.write_text(text)
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [executable(), "-c", ALONE, str(script)]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        return done.returncode, done.stdout + done.stderr

    return run


def plan_of(kernel, case):
    return kernel.plan(case.problem, case.config, targets.find(case.target or "sm_90"), case.variant)


def interpreted(kernel, case, name):
    """The script of the fill called ``name``, in the interpreter."""
    plan = plan_of(kernel, case)
    fills = fills_for(plan.problem, kernel.contract(plan, "interpreter"), 0)
    return numbers_script(kernel, plan, next(fill for fill in fills if fill.name == name), "interpreter", SEEN)


# --- numbers ----------------------------------------------------------------------------------------------------------

SPLIT = Case("decompose_k_mm", mm(40, 56, 80), on.SMALL, Variant(splits=2))
NO_SUM = fault_of_one_edit(
    "no_sum",
    SPLIT,
    "device/split_k.py::gemm_split_k,sum_parts",
    "for _part in range(splits):",
    "for _part in range(splits - 1):",
)
ATTENTION = catalogue.get("attention")
SOFTMAX = Case(
    "attention", ATTENTION.example("fp16", ATTENTION.configs[0], "smaller-than-a-tile"), ATTENTION.configs[0]
)


@pytest.mark.parametrize(
    ("fault", "fill", "says"),
    [
        ("skip_last_k", "transparent", r"FAULT: \d+ of 2240 elements of out are wrong"),
        ("skip_last_k", "randn", r"out\[0, 0\] is \S+, right is \S+"),
        ("mstore_off1", "randn", r"FAULT: \d+ bytes were written around out"),
        (NO_SUM, "transparent", r"FAULT: \d+ of 2240 elements of out are wrong"),
    ],
)
def test_wrong_numbers_show_and_right_ones_do_not(run, fault, fill, says):
    fault = fault if isinstance(fault, Fault) else next(one for one in FAULTS if one.name == fault)
    with planted(fault) as kernel:
        text = interpreted(kernel, fault.case, fill)
    status, output = run(text)
    assert status == 1, output
    assert re.search(says, output)
    if fill == "transparent":
        status, output = run(interpreted(catalogue.get(fault.case.kernel), fault.case, fill))
        assert status == 0, output
        assert "FINE" in output


@pytest.mark.parametrize(
    ("case", "fill"),
    [
        *((on.SCALED_BIAS, "wide-A"), (on.TMA_HOST, "special"), (on.ADDMM_BF16, "special"), (SOFTMAX, "uniform")),
        *((CHAINED, "wide-A"), (DUAL, "transparent"), (WITH_SUMS, "special")),
    ],
    ids=lambda value: value if isinstance(value, str) else value.kernel,
)
def test_a_kernel_that_is_right_passes(run, case, fill):
    """fp8 and bf16 in the mended interpreter, host descriptors, NaN among the wanted values, several outputs."""
    status, output = run(interpreted(catalogue.get(case.kernel), case, fill))
    assert status == 0, output


def test_an_element_that_is_not_written_makes_two_runs_differ(run):
    fault = next(fault for fault in FAULTS if fault.name == "mstore_short")
    with planted(fault) as kernel:
        status, output = run(interpreted(kernel, fault.case, "transparent"))
    assert status == 1
    assert "FAULT: two runs give different bits in out" in output


def test_a_script_that_would_be_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(kernel_scripts, "LARGEST", 20_000)
    with pytest.raises(NotReproducible, match=r"20000 are allowed: the data of fill randn is too large"):
        interpreted(catalogue.get("mm"), on.MM, "randn")


# --- compiling --------------------------------------------------------------------------------------------------------

TMA_STORE = Case("mm_persistent_tma", mm(128, 128, 128), Config(64, 64, 64, 3, 4), Variant(tma_store=True, sms=2))
STORED, LOST = (f"    if {condition}:\n        c_desc.store" for condition in ("TMA_STORE", "False"))
NO_TMA_STORE = fault_of_one_edit("no_tma_store", TMA_STORE, "device/persistent_tma.py", STORED, LOST)
NO_COMPILE = fault_of_one_edit(
    "no_compile",
    on.ADDMM,
    "device/tiles.py::swizzle,split_columns",
    "acc = acc * alpha\n",
    "acc = acc * alpha.no_such\n",
)


def test_a_lost_feature_shows(run):
    checks = Checks({"TMA_STORE": True, "POINTER_STORE": False})
    with planted(NO_TMA_STORE) as kernel:
        text = compiling_script(kernel, plan_of(kernel, TMA_STORE), checks, SEEN)
    status, output = run(text)
    assert status == 1, output
    assert "FAULT: TMA_STORE is missing: nothing like" in output
    assert "FAULT: POINTER_STORE is there: 'st.global' is in the ptx" in output
    kernel = catalogue.get("mm_persistent_tma")
    status, output = run(compiling_script(kernel, plan_of(kernel, TMA_STORE), checks, SEEN))
    assert status == 0, output


def test_a_feature_that_a_kernel_brings_itself_shows_when_it_is_lost(run):
    piece = Evidence("ptx", r"CHECK: {{^cp\.async\.bulk\.tensor\.2d\.global\b}}")
    stores = Feature("MY_STORE", "stores as its maker wants", {"nvidia": (piece,)})

    def text_of(kernel):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(kernel), "features", lambda self, plan: Features(required=frozenset({stores})))
            return compiling_script(kernel, plan_of(kernel, TMA_STORE), Checks({"MY_STORE": True}), SEEN)

    with planted(NO_TMA_STORE) as kernel:
        text = text_of(kernel)
    status, output = run(text)
    assert (status, "FAULT: MY_STORE is missing: nothing like" in output) == (1, True), output
    kernel = catalogue.get("mm_persistent_tma")
    assert run(text_of(kernel))[0] == 0
    with pytest.raises(NotReproducible, match="MY_STORE is no feature that is known here"):
        compiling_script(kernel, plan_of(kernel, TMA_STORE), Checks({"MY_STORE": True}), SEEN)


def test_a_kernel_that_does_not_compile_shows(run):
    with planted(NO_COMPILE) as kernel:
        text = compiling_script(kernel, plan_of(kernel, on.ADDMM), Checks(), SEEN)
    status, output = run(text)
    assert status == 1, output
    assert "FAULT: the kernel does not compile" in output
    assert "no_such" in output
    kernel = catalogue.get("addmm")
    status, output = run(compiling_script(kernel, plan_of(kernel, on.ADDMM), Checks(), SEEN))
    assert status == 0, output


def test_limits_and_spills_show(run):
    """A tile that is too large for one warp spills; fewer bytes than it takes stand for a smaller limit."""
    kernel, checks = catalogue.get("mm"), Checks(limits={**limits_of(SM_90), "spills": 0})
    large = kernel.plan(mm(256, 256, 64), Config(64, 128, 16, 1, 1), SM_90)
    status, output = run(compiling_script(kernel, large, checks, SEEN))
    assert status == 1, output
    assert re.search(r"FAULT: spills: [1-9]\d*, the limit is 0", output)
    small = kernel.plan(mm(256, 256, 64), Config(64, 64, 32, 3, 4), SM_90)
    status, output = run(compiling_script(kernel, small, checks, SEEN))
    assert status == 0, output
    status, output = run(compiling_script(kernel, small, Checks(limits={"shared memory": 1000}), SEEN))
    assert status == 1, output
    assert re.search(r"FAULT: shared memory: \d+, the limit is 1000", output)


@pytest.mark.parametrize(
    ("does", "seconds", "says"),
    [("os.abort()", 200, "the compiler dies: SIGABRT"), ("time.sleep(300)", 8, "the compiler does not end")],
)
def test_a_compiler_that_dies_or_hangs_is_a_fault_and_no_accident(run, monkeypatch, does, seconds, says):
    monkeypatch.setattr(kernel_scripts, "SECONDS", seconds)
    kernel = catalogue.get("mm")
    text = compiling_script(kernel, plan_of(kernel, on.MM), Checks(dies=True), SEEN)
    # the child runs the file again, without what keeps the package out
    broken = text.replace("    faults: list[str] = []\n", f"    import time\n    {does}\n", 1)
    status, output = run(broken)
    assert status == 1, output
    assert f"FAULT: {says}" in output


@pytest.mark.parametrize("dies", [True, False])
def test_a_launch_that_dies_is_a_fault_and_no_accident(run, dies):
    kernel = catalogue.get("mm")
    plan = plan_of(kernel, on.MM)
    fill = fills_for(plan.problem, kernel.contract(plan, "interpreter"), 0)[0]
    text = numbers_script(kernel, plan, fill, "interpreter", SEEN, dies=True)
    if dies:
        text = text.replace("        faults = check(launch,", "        os.abort()\n        faults = check(launch,", 1)
    status, output = run(text)
    assert status == int(dies), output
    assert ("FAULT: the launch dies: SIGABRT" in output) == dies


def test_room_for_as_many_blocks_shows(run):
    """The kernel leaves room for as many blocks as its own figures say, and not for twice as many."""
    kernel = catalogue.get("mm")
    plan = kernel.plan(mm(256, 256, 64), Config(64, 64, 32, 3, 4), SM_90)
    used = Resources(registers=64, shared_memory=24_576, threads=128)
    assert occupancy("sm_90", used).blocks == 8
    as_many, more = room("sm_90", used), room("sm_90", Resources(registers=24, shared_memory=8_192, threads=128))
    status, output = run(compiling_script(kernel, plan, Checks(limits=as_many), SEEN))
    assert status == 0, output
    status, output = run(compiling_script(kernel, plan, Checks(limits=more), SEEN))
    assert status == 1, output
    assert re.search(r"FAULT: shared memory: \d+, the limit is 13568", output)


def test_an_order_of_instructions_that_may_race_shows(run):
    kernel = catalogue.get("mm")
    plan = kernel.plan(mm(256, 256, 64), Config(64, 64, 32, 3, 4), targets.find("sm_80"))
    text = compiling_script(kernel, plan, Checks(faults=(LATE_WAITS, ROUND_TRIPS)), SEEN)
    status, output = run(text)
    assert status == 0, output
    without = "re.sub(r'bar[.]sync[^;]*;', '', kernel.asm['ptx'])"
    status, output = run(text.replace("kernel.asm['ptx']", without))
    assert status == 1, output
    assert re.search(r"FAULT: waits behind their barrier: [1-9]\d* in the ptx", output)
    assert ROUND_TRIPS not in output


def test_a_script_compiles_for_amd():
    kernel = catalogue.get("mm")
    plan = kernel.plan(mm(40, 56, 40), Config(32, 32, 16, 2, 4), targets.find("gfx942"))
    text = compiling_script(kernel, plan, Checks({"MFMA": True}, limits_of(plan.target)), SEEN)
    assert "GPUTarget('hip', 'gfx942', 64)" in text
    assert "used_on_amd" in text
    assert "cuobjdump" not in text


# --- what scripts are made of -----------------------------------------------------------------------------------------


def test_a_script_stands_alone_and_says_what_it_is():
    text = compiling_script(catalogue.get("mm"), plan_of(catalogue.get("mm"), on.MM), Checks(), SEEN)
    assert not re.search(r"^\s*(import|from) conformance", text, re.MULTILINE)
    for fact in ("numerics/randn: FAIL", "torch 2.13.0, triton 3.9.0", "test_some.py::test_case[mm-sm_90]", "sm_90"):
        assert fact in text.split('"""')[1]


def test_a_failure_that_holds_quotes_and_backslashes_stays_text():
    seen = dataclasses.replace(SEEN, failures=('x: """ \\ \x1b[31m {nothing} \'\'\'"',))
    text = compiling_script(catalogue.get("mm"), plan_of(catalogue.get("mm"), on.MM), Checks(), seen)
    compile(text, "case.py", "exec")
    assert "\x1b" not in text


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A new module with this source."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(name, source):
        (tmp_path / f"{name}.py").write_text(source)
        return importlib.import_module(name)

    return make


HEAD = "import triton\nimport triton.language as tl\n"


def test_sources_come_in_order_with_constants_and_aliases(module):
    module(
        "reproduced_parts",
        f"{HEAD}\nLIMIT = tl.constexpr(2 ** 3)\n\n@triton.jit\ndef inner(x):\n    return x * LIMIT\n",
    )
    outer = module(
        "reproduced_whole",
        f"{HEAD}from reproduced_parts import inner as other\n\n@triton.jit\ndef outer(x):\n    return other(x)\n",
    )
    sources = Sources()
    sources.add("outer", outer.outer)
    assert sources.imports.splitlines() == ["import triton", "import triton.language as tl"]
    marks = ["LIMIT = tl.constexpr(2 ** 3)", "def inner(x)", "other = inner", "def outer(x)"]
    assert [sources.text.index(mark) for mark in marks] == sorted(sources.text.index(mark) for mark in marks)


def test_what_chooses_arguments_is_left_out(module):
    """The script's launch has a config; under the autotuner it would be two, and the script would fail for that."""
    tuned = module(
        "reproduced_tuned",
        f"{HEAD}\nCONFIGS = [triton.Config({{}})]\n\n@triton.autotune(\n    CONFIGS,\n    key=[],\n)\n"
        "@triton.heuristics({'B': lambda arguments: 1})\n@triton.jit\ndef tuned(x, B):\n    return x\n",
    )
    sources = Sources()
    sources.add("tuned", tuned.tuned.fn.fn)
    assert sources.text == "@triton.jit\ndef tuned(x, B):\n    return x"


def test_two_things_of_one_name_cannot_share_a_script(module):
    for name, factor in (("reproduced_one", 2), ("reproduced_two", 3)):
        module(name, f"{HEAD}\nF = tl.constexpr({factor})\n\n@triton.jit\ndef scaled_{factor}(x):\n    return x * F\n")
    sources = Sources()
    sources.add("scaled_2", sys.modules["reproduced_one"].scaled_2)
    with pytest.raises(NotReproducible, match="two different things are called F"):
        sources.add("scaled_3", sys.modules["reproduced_two"].scaled_3)


def test_arguments_are_written_as_source():
    sources = Sources()
    values = [None, True, 3, -0.5, float("inf"), "ieee", (1, (2.0, None)), (4,), torch.float16, tl.float8e4nv]
    texts = [written(value, sources, without_memory) for value in [*values, tl.constexpr(tl.int32)]]
    expected = ["None", "True", "3", "-0.5", 'float("inf")', "'ieee'", "(1, (2.0, None))", "(4,)", "torch.float16"]
    assert texts == [*expected, "tl.float8e4nv", "tl.constexpr(tl.int32)"]
    base = torch.empty(72, dtype=torch.float16, device="meta")[8:]
    descriptor = TensorDescriptor(base, [8, 8], [8, 1], [4, 8])
    assert written(descriptor, sources, without_memory) == (
        "TensorDescriptor(pointer(torch.float16, 72, 8), [8, 8], [8, 1], [4, 8])"
    )
    with pytest.raises(NotReproducible, match="cannot be written as source"):
        written({1: 2}, sources, without_memory)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int8, torch.bool])
def test_bits_survive_being_packed(dtype):
    values = torch.arange(-3, 9).reshape(3, 4).to(dtype).t()
    assert torch.equal(unpacked(packed(values), dtype, (4, 3)).double(), values.double())
    assert unpacked(packed(torch.empty(0, 4, dtype=dtype)), dtype, (0, 4)).shape == (0, 4)


# --- which script a case gets -----------------------------------------------------------------------------------------


@dataclasses.dataclass
class RunSettings:
    seed: int = 0
    compile_only: bool = False
    has_gpu: bool = False


def judged(folder, verdicts=(), error=None, request=None, meanwhile=lambda: None):
    """The record and the scripts of a case whose checks ``verdicts`` failed, or that raised ``error``. ``meanwhile`` is
    called while it runs."""
    recorder = CaseRecorder("test_x.py::test_y[a/b-sm_90]")
    recorder.set(executor="interpreter")
    (folder / "scripts").mkdir()
    if request is not None:
        request.write(folder / "scripts")
    reproducing = Reproducers(recorder, RunSettings(), folder / "scripts")
    kernel = catalogue.get("mm")
    try:
        with reproducing.judging(kernel, plan_of(kernel, on.MM), None):
            meanwhile()
            for check in verdicts:
                recorder.verdict(check, False, "it is wrong in /home/someone/file.ptx")
            if error is not None:
                raise error
    except type(error or KeyError()):
        pass
    reproducing.write()
    return recorder.record(), [path.read_text() for path in folder.glob("scripts/*.py")]


@pytest.mark.parametrize(
    ("verdicts", "error", "holds"),
    [
        (["numerics/randn", "repeat/randn"], None, "those called randn, seed 0"),
        (["memory/wide-A"], None, "those called wide-A, seed 0"),
        (["codegen/requires/MMA"], None, "('MMA', 'ptx',"),
        (["resources"], None, "'shared memory': 232448"),
        (["spills"], None, "{'spills': 0}"),
        ([], CompileFailure(Status.COMPILE_ERROR, "CompilationError: no"), "def compile_and_look"),
        ([], CompileFailure(Status.CRASH, "exit status -6"), "in_child('the compiler', 240)"),
        ([], RuntimeError("the launch failed"), "RuntimeError: the launch failed"),
    ],
)
def test_what_failed_decides_the_script(tmp_path, verdicts, error, holds):
    record, scripts = judged(tmp_path, verdicts, error)
    assert len(scripts) == 1
    assert holds in scripts[0]
    assert "/home/someone" not in scripts[0]
    assert record.observed["reproducer"].endswith(file_name(record.case))


def test_what_no_script_can_show_is_said(tmp_path):
    record, scripts = judged(tmp_path, ["grid"])
    assert not scripts
    assert record.observed["no_reproducer"].startswith("no script can show what failed: grid; one launches the grid")


def test_a_case_that_passes_leaves_nothing(tmp_path):
    record, scripts = judged(tmp_path)
    assert not scripts
    assert "reproducer" not in record.observed


@pytest.mark.parametrize(
    ("script_request", "holds"),
    [
        (ScriptRequest(features=("ASYNC_COPY",)), "('ASYNC_COPY', 'ptx',"),
        (ScriptRequest(spills=16), "check_limits(used_on_nvidia(kernel), {'spills': 16})"),
        (ScriptRequest(room={"registers": 64}, resident="4 blocks"), "(kernel), {'registers': 64})"),
        (ScriptRequest(room={"registers": 64}, resident="4 blocks"), "all is fine left room for 4 blocks; the limits"),
        (ScriptRequest(faults=(LATE_WAITS,)), "kernel.asm['ptx'], ('waits behind their barrier',))"),
    ],
    ids=["feature", "spills", "room", "what the room is for", "faults"],
)
def test_a_case_that_passes_shows_what_its_code_had_elsewhere(tmp_path, script_request, holds):
    record, scripts = judged(tmp_path, request=script_request)
    assert len(scripts) == 1
    assert holds in scripts[0]
    assert record.observed["reproducer"].endswith(file_name(record.case))


def test_what_fails_goes_before_what_the_code_had_elsewhere(tmp_path):
    _, scripts = judged(tmp_path, ["numerics/randn"], request=ScriptRequest(features=("ASYNC_COPY",)))
    assert "those called randn" in scripts[0]
    assert "ASYNC_COPY" not in scripts[0]


@pytest.mark.parametrize(
    ("verdicts", "after"), [([], []), (["codegen/requires/MMA"], ["('MMA', 'ptx',"])], ids=["passes", "fails"]
)
def test_a_script_is_there_while_a_case_runs_that_may_die(tmp_path, verdicts, after):
    during = []

    def look():
        during.extend(path.read_text() for path in tmp_path.glob("scripts/*.py"))

    record, scripts = judged(tmp_path, verdicts, request=ScriptRequest(dies=True), meanwhile=look)
    assert len(during) == 1
    assert "in_child('the launch', 240)" in during[0]
    assert len(scripts) == len(after)
    assert all(holds in script for holds, script in zip(after, scripts, strict=True))
    assert ("reproducer" in record.observed) == bool(after)


def test_names_of_scripts_are_safe_and_unique():
    names = [file_name(case) for case in ("a.py::b[x/../y]", "a.py::b[x/.. y]", "a.py::" + "z" * 500)]
    assert len(set(names)) == 3
    assert all(re.fullmatch(r"[A-Za-z0-9-]{1,100}\.py", name) for name in names)


@pytest.mark.parametrize("dtype", ["e4m3", "e5m2"])
def test_a_failure_in_an_fp8_output_has_a_script(run, dtype):
    """torch compares no fp8 values."""
    kernel, problem = catalogue.get("scaled_mm"), scaled_mm(16, 16, 32, "e4m3", out_dtype=dtype)
    plan = kernel.plan(problem, Config(16, 16, 32, 2, 2), SM_90)
    (fill,) = fills_for(problem, kernel.contract(plan, ExecutorName.INTERPRETER), 0, ("transparent",))
    assert run(numbers_script(kernel, plan, fill, ExecutorName.INTERPRETER, SEEN))[0] == 0
    wrong = dataclasses.replace(fill, expected=fill.expected + 16 * (fill.expected.abs() < 16))
    status, output = run(numbers_script(kernel, plan, wrong, ExecutorName.INTERPRETER, SEEN))
    assert status == 1
    assert "Traceback" not in output
