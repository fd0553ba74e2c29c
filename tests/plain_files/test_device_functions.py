"""Device functions are taken from the text of a file, and refused where they name anything but the language."""

from __future__ import annotations

import builtins
import inspect

import pytest
import triton.language as tl

from conformance.plain_files import device_functions as device_code
from conformance.plain_files.device_functions import ForeignCode, device_functions, taken
from conformance.plain_files.tape import Callee, Constant, Function, Module, Namespace, Number

TEXT = """import os
import triton
import triton.language as tl

if True:

    @triton.jit(do_not_specialize=["n"])
    def twice(x, n, BLOCK: tl.constexpr = 16):
        i = tl.arange(0, BLOCK)
        {body}
"""
GLOBALS = {
    "tl": Module("triton.language"),
    "triton": Module("triton"),
    "os": Module("os"),
    "EPS": Constant(Number(0.5)),
    "cdiv": Callee(name="triton.language.standard:cdiv"),
    "evil": Callee(name="os:system"),
    "again": Callee(0),
    "mine": Namespace({"again": Callee(0), "EPS": Constant(Number(0.5))}),
    "theirs": Namespace({"os": Module("os")}),
}


def function(tmp_path, body, **changes):
    path = tmp_path / "file.py"
    path.write_text(TEXT.replace("{body}", body))
    fields = {"name": "twice", "path": str(path), "line": 7, "module_globals": GLOBALS, **changes}
    return built([Function(**fields)], tmp_path)[0]


def built(functions, root):
    return device_functions(taken(functions, root, root / "apart"), root / "made")


def test_a_function_keeps_its_lines_and_options(tmp_path):
    taken_function = function(tmp_path, "tl.store(x + i, cdiv(n, 2) + EPS + i.to(tl.float32))")
    assert taken_function.fn.__code__.co_firstlineno == 8
    assert taken_function.fn.__globals__["EPS"].value == 0.5
    assert taken_function.fn.__defaults__ == (16,)


def test_a_module_of_the_package_has_what_the_code_names(tmp_path):
    taken_function = function(tmp_path, "tl.store(x + i, mine.again(x, n) + mine.EPS + x.type.element_ty)")
    space = taken_function.fn.__globals__["mine"]
    assert (space.again, space.EPS.value) == (taken_function, 0.5)


def test_annotations_and_defaults_of_the_language_are_kept_and_others_are_blank(tmp_path):
    head = """@triton.jit(launch_metadata=print, repr=print)
    def twice(x: Any, n: tl.int64, m: "fp32", é: Dict[
            str, int], BLOCK: constexpr, OUT: tl.constexpr = tl.float16) -> Any:"""
    text = TEXT.replace('@triton.jit(do_not_specialize=["n"])\n    def twice(x, n, BLOCK: tl.constexpr = 16):', head)
    path = tmp_path / "file.py"
    path.write_text(text.replace("{body}", "tl.store(x + i, é)"))
    given = Function(name="twice", path=str(path), line=7, module_globals=GLOBALS)
    (annotated,) = built([given], tmp_path)
    assert annotated.fn.__annotations__ == {
        "n": tl.int64, "m": "fp32", "BLOCK": tl.constexpr, "OUT": tl.constexpr, "return": None,
    }  # fmt: skip
    assert annotated.fn.__defaults__ == (tl.float16,)
    assert annotated.fn.__code__.co_firstlineno == 8
    lines = inspect.getsource(annotated.fn).splitlines()
    assert lines[-1].strip() == "tl.store(x + i, é)"


def test_a_default_that_is_computed_is_refused(tmp_path):
    path = tmp_path / "file.py"
    path.write_text(TEXT.replace("= 16", "= len('ab')").replace("{body}", "tl.store(x + i, n)"))
    given = Function(name="twice", path=str(path), line=7, module_globals=GLOBALS)
    with pytest.raises(ForeignCode, match=r"the default len\('ab'\) must be a literal or a dtype of tl"):
        built([given], tmp_path)


FOREIGN = {
    "theirs.os": "names the module os",
    "os.system('x')": "names the module os",
    "evil('x')": "names evil of os",
    "open('x')": "names open, which is neither",
    "getattr(tl, 'x')": "names getattr",
    "tl.core.os.system('x')": "names system, which no value",
    "tl.core.knobs": "names knobs of triton.knobs",
    "triton.knobs.x": "which is not Triton's language",
    "x.handle.data": "names data, which no value",
    "x.handle": "names handle, which no value",
    "x.__class__": "begins with '_'",
    "match x:\n            case tl.tensor(handle=h): pass": "a statement that device code may not have",
    "[open for open in (1,)]; open('f')": "names open, which only a part of it makes",
    "import os": "a statement that device code may not have",
    "(lambda: 1)()": "a statement that device code may not have",
    "unknown": "names unknown",
}


@pytest.mark.parametrize("body", FOREIGN)
def test_other_code_is_refused(tmp_path, body):
    with pytest.raises(ForeignCode, match=FOREIGN[body]):
        function(tmp_path, body)


def test_a_function_must_be_in_the_text_of_the_users_files(tmp_path):
    with pytest.raises(ForeignCode, match="it was made while the file ran"):
        function(tmp_path, "pass", line=3)
    with pytest.raises(ForeignCode, match="is of a library"):
        function(tmp_path, "pass", path="/usr/lib/other.py")


def test_lines_are_those_of_python(tmp_path):
    """Words of a comment that other readers take for ends of lines do not move the text that is compiled."""
    path = tmp_path / "file.py"
    other = "if False:\n    def twice(x): evil()\n"
    path.write_text(f"import triton\n# \u2028\u2028\u2028\n\n{other}\n@triton.jit\ndef twice(x):\n    pass\n")
    (kernel,) = built([Function("twice", str(path), 7, {})], tmp_path)
    assert (kernel.fn.__code__.co_firstlineno, kernel.fn.__code__.co_names) == (8, ())


def test_a_text_that_changes_is_read_once(tmp_path, monkeypatch):
    path = tmp_path / "file.py"
    path.write_text(TEXT.replace("{body}", "tl.store(x + i, n)"))
    functions = taken([Function("twice", str(path), 7, GLOBALS)] * 2, tmp_path, tmp_path / "apart")
    path.write_text("changed")
    assert [each.fn.__name__ for each in device_functions(functions, tmp_path / "made")] == ["twice", "twice"]


HIDDEN = "[eval for eval in (1,)]; eval({code!r})"


def test_device_code_that_hides_a_function_of_python_wins_where_the_defences_are_taken_out(tmp_path, monkeypatch):
    body = HIDDEN.format(code=f"open({str(tmp_path / 'won')!r}, 'w')")
    with pytest.raises(ForeignCode, match="names eval, which only a part of it makes"):
        function(tmp_path, body)
    monkeypatch.setattr(device_code, "_of_parts", lambda node: set())
    guarded = function(tmp_path, body).fn
    monkeypatch.setattr(device_code, "_python", lambda: vars(builtins))
    open_function = function(tmp_path, body).fn
    monkeypatch.setattr(tl, "arange", lambda *_: 0)  # as the functions of Python are called
    with pytest.raises(NameError, match="eval"):
        guarded(1, 2)
    assert not (tmp_path / "won").exists()
    open_function(1, 2)
    assert (tmp_path / "won").exists()


def test_device_code_has_no_other_function_of_python(tmp_path):
    kernel = function(tmp_path, "tl.store(x + i, n)")
    assert not {"eval", "open", "__import__", "getattr"} & kernel.fn.__builtins__.keys()


def test_a_global_that_is_annotated_as_a_constant_stays_one(tmp_path):
    kernel = function(tmp_path, "tl.store(x + i, EPS)", annotated=("EPS",))
    assert kernel.fn.__globals__["__annotations__"] == {"EPS": tl.constexpr}
