"""Plain files are judged: wrappers, tuners and heuristics as they are, and what the command says of each file."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from conformance import cli, targets
from conformance.machine.gpus import Gpus
from conformance.plain_files.description import DescriptionError, described
from conformance.user_files.expected_failures import read_expected_failures
from tests.kernels.interpreter_runs import in_interpreter

FILES = Path(__file__).parent / "files"

ONE_SHAPE = ('["fp32"]', '["fp32"]\nshapes = ["smaller-than-a-tile"]')
ONE_DTYPE = """CONFORMANCE = {"operation": "mm", "call": "matmul(a, b)", "dtypes": ["fp16"], "shapes": ["ragged"]}


def matmul(a, b)"""


def judged_here(words):
    """The exit status of ``conformance judge`` and what it printed; in a process that interprets kernels."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    with contextlib.redirect_stdout(io.StringIO()) as output:
        status = cli.main(["judge", "--no-gpu", *map(str, words)])
    return status, output.getvalue()


def judge(path, *words):
    return in_interpreter(judged_here, [path, *words])


def changed(tmp_path, name, *changes):
    """A copy of a file of FILES, with its description, in which each first text of ``changes`` is the second."""
    for path in FILES.glob(f"{name}.*"):
        text = path.read_text()
        for before, after in changes:
            text = text.replace(before, after)
        (tmp_path / path.name).write_text(text)
    return tmp_path / f"{name}.py"


def test_a_kernel_without_a_wrapper_is_right(tmp_path):
    status, output = judge(changed(tmp_path, "product", ONE_SHAPE), "--seed", "7")
    assert (status, output.splitlines()[-1]) == (0, "product.py: 1 pass; seed 7")


def test_its_fault_is_seen(tmp_path):
    """By the interpreter, which comes first, and so the line names no other."""
    status, output = judge(changed(tmp_path, "product", ONE_SHAPE, ("SKIPPED=0", "SKIPPED=1")), "--seed", "7")
    assert (status, output.splitlines()[-1]) == (1, "product.py: 1 fail; seed 7")
    assert "numerics/transparent: FAIL" in output


def test_a_tuned_wrapper_is_judged_with_every_config(tmp_path):
    wrong_second = ("depth < K if", "depth < K - (GROUP == 2) if")
    path = changed(tmp_path, "matmul", ("def matmul(a, b)", ONE_DTYPE), wrong_second)
    status, output = judge(path, "--seed", "1")
    assert (status, output.splitlines()[-1]) == (1, "matmul.py: 1 pass, 1 fail; seed 1")
    assert "\nfail           matmul.mm mm-40x80x80-fp16-row.row.row 32x64x32-s2-w4-n1 sm_90" in output


def test_only_the_configs_that_are_described_are_judged(tmp_path):
    wrong_second = ("depth < K if", "depth < K - (GROUP == 2) if")
    one = ("def matmul(a, b)", ONE_DTYPE.replace("}", ', "configs": [1]}'))
    status, output = judge(changed(tmp_path, "matmul", one, wrong_second), "--seed", "1")
    assert (status, output.splitlines()[-1]) == (1, "matmul.py: 1 fail; seed 1")
    assert "-w4-n1 sm_90" in output
    none = ("def matmul(a, b)", ONE_DTYPE.replace("}", ', "configs": [2]}'))
    assert judge(changed(tmp_path, "matmul", none)) == (2, "")


def test_a_value_that_triton_leaves_undefined_is_a_warning(tmp_path):
    one_config = ONE_DTYPE.replace('"shapes"', '"configs": [0], "shapes"')
    path = changed(tmp_path, "matmul", ("def matmul(a, b)", one_config), (", other=0.0)", ")"))
    status, output = judge(path, "--seed", "1")
    assert (status, output.splitlines()[-1]) == (0, "matmul.py: 1 pass; seed 1")
    assert ": by ttgir; warning: undefined-lanes: " in output


def test_a_librarys_tuner_entry_and_modules_are_judged_as_they_are():
    status, output = judge(FILES / "library.py", "--seed", "1")
    assert (status, output.splitlines()[-1]) == (0, "library.py: 2 pass; seed 1")
    assert "-n0 sm_90: by ttgir" in output
    assert "-n1 sm_90: by ttgir" in output


def judged_shortly(words):
    from conformance.judging import plain_file

    plain_file.CASE_SECONDS = 3.0
    return judged_here(words)


def test_a_case_that_does_not_end_is_ended_also_where_python_cannot_be_interrupted(tmp_path):
    path = changed(
        tmp_path, "product", ONE_SHAPE, ("for k in range(K - SKIPPED)", "for k in range(sum(range(10**16)))")
    )
    status, output = in_interpreter(judged_shortly, [path, "--seed", "1"])
    assert (status, output.splitlines()[-1]) == (1, "product.py: 1 fail; seed 1")
    assert "it did not end within 3 s: a kernel may have a loop without an end" in output


def test_a_case_that_ends_its_process_costs_that_case_alone(tmp_path):
    path = changed(tmp_path, "matmul", ("def matmul(a, b)", ONE_DTYPE))
    status, output = in_interpreter(judged_with_a_death, [path, "--seed", "1"])
    assert (status, output.splitlines()[-1]) == (1, "matmul.py: 1 fail, 1 pass; seed 1")
    assert ": it ended its process, with status -9" in output


def judged_with_a_death(words):
    from conformance.judging import plain_file

    judge_case = plain_file._judge

    def dies(harness, recorded, case):
        if not case.config.number:
            os.kill(os.getpid(), 9)
        return judge_case(harness, recorded, case)

    plain_file._judge = dies
    return judged_here(words)


def test_on_a_gpu_cases_are_judged_in_the_process_of_the_command(tmp_path):
    path = changed(tmp_path, "matmul", ("def matmul(a, b)", ONE_DTYPE))
    status, output = in_interpreter(judged_on_a_gpu, [path, "--seed", "1"])
    assert status == 0
    assert output.count(": in the same process") == 2
    assert output.endswith("matmul.py: 2 pass; seed 1\n")


def judged_on_a_gpu(words):
    """Returns what :func:`judged_here` does, where cases have a GPU."""
    from conformance.judging import plain_file
    from conformance.judging.settings import Settings

    process = os.getpid()
    Settings.has_gpu = True
    plain_file.targets_of = lambda settings: [targets.find("sm_90")]
    plain_file.Harness = lambda settings: SimpleNamespace(pool=io.BytesIO())
    plain_file._judge = lambda *case: ("pass", f"in {'the same' if os.getpid() == process else 'another'} process")
    return judged_here(words)


def test_fields_that_an_operation_lacks_are_one_sentence(tmp_path):
    path = changed(tmp_path, "product", ('dtypes = ["fp32"]', 'dtypes = ["int8"]'))
    status, output = judge(path)
    assert (status, output) == (2, "")


WRONG_FILES = {
    "x = 1": "nothing says what file.py computes",
    "def": "file.py is not a file of Python",
    'CONFORMANCE = {"operation": "mm"}': "missing required field `call`",
    'CONFORMANCE = {"operation": "mm", "call": "a b"}': "the call 'a b' is not one expression",
    "CONFORMANCE = f()": "CONFORMANCE must be a literal",
    'CONFORMANCE = {"operation": "mm", "call": "a", "dtype": 1}': "unknown field `dtype`",
    'CONFORMANCE = {"operation": "mm", "call": "a", "name": "a-b"}': "a kernel is called 'a-b'",
}


@pytest.mark.parametrize("text", WRONG_FILES)
def test_a_description_that_cannot_be_used_is_one_sentence(tmp_path, text):
    (tmp_path / "file.py").write_text(text)
    with pytest.raises(DescriptionError, match=WRONG_FILES[text].replace("(", r"\(").replace("`", "`")):
        described(tmp_path / "file.py")


def test_usual_names_need_no_description(tmp_path):
    (tmp_path / "file.py").write_text("def matmul(a, b, activation=None): pass\ndef attention(q, k, v): pass\n")
    assert [(each.operation, each.call) for each in described(tmp_path / "file.py")] == [
        ("mm", "matmul(a, b)"),
        ("attention", "attention(q, k, v)"),
    ]


def test_the_command_interprets_kernels(tmp_path, forked):
    """Triton reads its environment when it is imported, and so the command sets it before."""
    path = changed(tmp_path, "product", ONE_SHAPE, ("SKIPPED=0", "SKIPPED=1"))
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [forked, "-m", "conformance", "judge", "--no-gpu", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 1, done.stderr
    assert "sm_90: FAIL exact/transparent" in done.stdout


@pytest.mark.parametrize(
    ("executable", "message"), [("/bin/false", "no device can be used"), ("/bin/cat", "no device")]
)
def test_a_gpu_that_cannot_be_used_is_a_sentence(monkeypatch, executable, message):
    from conformance.judging.plain_file import NotJudged, targets_of
    from conformance.judging.settings import Settings

    monkeypatch.setattr(sys, "executable", executable)
    gpus = Gpus(entries=("0",))
    settings = Settings("quick", (), (), (), 0, None, gpus, None, 60.0, (), read_expected_failures())
    with pytest.raises(NotJudged, match=message):
        targets_of(settings)
