"""A forged answer of the process of a file's code is refused in a sentence."""

from __future__ import annotations

import json

import pytest

from conformance.plain_files import asked_problems
from conformance.plain_files.answer_check import MOST_BYTES, MOST_PROGRAMS, check_answer
from conformance.plain_files.asked_problems import Asked, ask
from conformance.plain_files.description import Described
from conformance.plain_files.device_functions import ForeignCode, device_functions, taken
from conformance.plain_files.file_kernel import Recorded, kernel_of
from conformance.plain_files.sandbox import SandboxError
from conformance.plain_files.tape import (
    Answer,
    Callee,
    Constant,
    Dtype,
    Filled,
    Function,
    Launched,
    Memory,
    Module,
    Number,
    Tape,
    View,
    decode,
    encode,
)

VIEW = View(0, 0, (4,), (1,), "torch.float32")
MEMORY = Memory("a", "torch.float32", 4, workspace=False)
LAUNCH = Launched(0, (1,), {"x": VIEW}, {})
FUNCTION = Function("f", "f.py", 3, {})


def forged(memory=MEMORY, step=LAUNCH, function=FUNCTION, **fields):
    return Answer((function,), (Tape((memory,), (step,), {"out": VIEW}, **fields),))


FORGED = {
    "a function that is not there": forged(step=Launched(1, (1,), {}, {})),
    "a callee that is not there": forged(step=Launched(0, (1,), {"f": Callee(7)}, {})),
    "a callee from behind": forged(function=Function("f", "f.py", 3, {"g": Callee(-1)})),
    "memory that is not there": forged(step=Launched(0, (1,), {"x": View(1, 0, (4,), (1,), "torch.float32")}, {})),
    "a tensor past its memory": forged(step=Launched(0, (1,), {"x": View(0, 1, (4,), (1,), "torch.float32")}, {})),
    "a wider dtype": forged(step=Filled(View(0, 0, (4,), (1,), "torch.float64"), Number(0))),
    "a step far behind": forged(step=Filled(View(0, 0, (2,), (1 << 60,), "torch.float32"), Number(0))),
    "a dtype of another world": forged(memory=Memory("a", "torch.float33", 4, workspace=True)),
    "a dtype that Triton lacks": forged(function=Function("f", "f.py", 3, {"T": Constant(Dtype("fp33"))})),
    "a number that is too long": forged(step=Filled(VIEW, Number(1 << 70))),
}
TEXTS = {
    "a word for a number": encode(forged(step=Filled(VIEW, Number(special="inf")))).replace(b'"inf"', b'"one"'),
    "a negative place": encode(forged()).replace(b'"offset":0', b'"offset":-1'),
    "deep": b'{"functions":[],"tapes":[{"steps":[{"type":"launch","function":0,"grid":[1],"options":{},'
    + b'"arguments":{"x":'
    + b'{"type":"items","items":[' * 2000
    + b"]}" * 2000
    + b"}}]}]}",
    "no text": b"\xff",
    "a number without end": b'{"functions":[],"tapes":[],"fault":' + b"9" * 5000 + b"}",
}


def test_the_unchanged_answer_is_one():
    check_answer(decode(encode(forged())))


@pytest.fixture
def said(monkeypatch, tmp_path):
    """Returns a function that gives the tape in bytes from the process of a file's code."""
    described = Described(operation="mm", call="mm(a, b)", dtypes=("fp32",))
    kernel = kernel_of(Recorded(described, "file.mm"), tmp_path)
    from conformance.targets import find

    problem = kernel.example("fp32", kernel.configs[0])

    def say(data):
        monkeypatch.setattr(asked_problems, "run_apart", lambda *arguments: data)
        return ask(tmp_path / "f.py", described, [Asked(problem, kernel.configs[0], find("sm_90"))], tmp_path).tapes[0]

    return say


@pytest.mark.parametrize("name", [*FORGED, *TEXTS])
def test_a_forged_answer_is_refused(said, name):
    data = TEXTS.get(name) or encode(FORGED[name])
    with pytest.raises(SandboxError, match="sent what is no answer"):
        said(data)


def test_work_without_end_is_a_fault_before_it_begins(said):
    large = Memory("w", "torch.float32", MOST_BYTES, workspace=True)
    assert f"bytes of memory, and at most {MOST_BYTES}" in said(encode(forged(memory=large))).fault
    many = Launched(0, (MOST_PROGRAMS, 2), {}, {})
    assert f"programs, and at most {MOST_PROGRAMS}" in said(encode(forged(step=many))).fault


GLOBALS = {
    "the functions of Python": Callee(name="triton.language.core:__builtins__"),
    "what the language imports": Callee(name="triton.language.core:wraps"),
    "no module": Callee(name="triton.language.nothing:f"),
    "another module": Module("triton.language.nothing"),
    "nothing": Callee(name="triton.language:nothing"),
}


@pytest.mark.parametrize("name", GLOBALS)
def test_a_forged_global_is_refused(tmp_path, name):
    path = tmp_path / "f.py"
    path.write_text("import triton\n@triton.jit\ndef f(x):\n    evil['exec']('1')\n")
    function = Function("f", str(path), 2, {"evil": GLOBALS[name]})
    with pytest.raises(ForeignCode, match=r"f \(f.py:2\) (names evil of|cannot have) triton"):
        device_functions(taken([function], tmp_path, tmp_path / "apart"), tmp_path / "made")


@pytest.mark.parametrize("path", ["", "\0", "apart/f.py", "link", ".", "missing.py"])
def test_a_forged_path_is_refused(tmp_path, path):
    (tmp_path / "apart").mkdir()
    (tmp_path / "apart" / "f.py").write_text("import triton\n@triton.jit\ndef f(x):\n    pass\n")
    (tmp_path / "link").symlink_to("/dev/zero")
    function = Function("f", f"{tmp_path}/{path}" if path else "", 2, {})
    with pytest.raises(ForeignCode):
        taken([function], tmp_path, tmp_path / "apart")


def test_every_cut_of_an_answer_is_a_sentence(said):
    """A text of JSON with any value in place of another gives a tape, or SandboxError."""
    whole = json.loads(encode(forged()))
    values = [None, -1, 1 << 63, 1.5, "x", [], {}, [[]], {"type": "number"}, True]

    def places(part, path=()):
        yield path
        for key in part if isinstance(part, dict) else range(len(part)) if isinstance(part, list) else ():
            yield from places(part[key], (*path, key))

    tried = 0
    for path in list(places(whole))[1:]:
        for value in values:
            copy = json.loads(json.dumps(whole))
            part = copy
            for key in path[:-1]:
                part = part[key]
            part[path[-1]] = value
            tried += 1
            try:
                said(json.dumps(copy).encode())
            except SandboxError:
                continue
    assert tried > 300
