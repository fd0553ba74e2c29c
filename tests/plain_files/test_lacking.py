"""Errors that come of what the installed Triton lacks are told from others, and such a case is not run."""

from __future__ import annotations

import pytest
import triton
import triton.language as tl

from conformance.plain_files.lacking import lacked
from tests.plain_files.test_judged_files import ONE_SHAPE, changed, judge

LACKED = {
    "tl.unknown": "triton.language.unknown",
    "exec('from triton.language import unknown')": "triton.language.unknown",
    "exec('import triton.unknown')": "the module triton.unknown",
    "triton.Config({}, unknown=1)": "the argument unknown of Config",
    "triton.jit(unknown=1)": "the argument unknown of jit",
    "tl.load(1, unknown=1, _semantic=1)": "the argument unknown of load",
    "removed()": "something (products have been removed in favour of sums)",
    "refused()": "something (not any more)",
    "option()": "the option unknown of a launch",
}
OTHERS = ["x.unknown", "unknown(1)", "exec('import unknown')", "dict(a=1, **{'a': 2})", "mine(1, b=2)", "abstract()"]


def removed():
    raise ValueError("products have been removed in favour of sums")


def option():
    raise KeyError("Keyword argument unknown was specified but unrecognised")


def mine(a):
    pass


def abstract():
    raise NotImplementedError("not by Triton")


# as if Triton's own file raised it
exec(compile("def refused(): raise NotImplementedError('not any more')", tl.core.__file__, "exec"), globals())


def raised(expression):
    with pytest.raises(Exception) as error:  # noqa: PT011
        eval(expression, {**globals(), "x": 1})
    return error.value


@pytest.mark.parametrize("expression", LACKED)
def test_what_triton_lacks_is_named(expression):
    error = raised(expression)
    expected = f"the installed Triton {triton.__version__} lacks {LACKED[expression]}, which the file uses"
    assert lacked(error).startswith(expected)
    wrapped = RuntimeError("compilation failed")
    wrapped.__cause__ = error
    assert lacked(wrapped).startswith(expected)


@pytest.mark.parametrize("expression", OTHERS)
def test_other_errors_have_other_causes(expression):
    assert not lacked(raised(expression))


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        ("tl.program_id(1)", "tl.unknown(1)", "triton.language.unknown"),
        ("import triton\n", "import triton\nfrom triton.language import unknown\n", "triton.language.unknown"),
        ("@triton.jit", "@triton.jit(unknown=1)", "the argument unknown of jit"),
    ],
)
def test_a_file_that_needs_another_triton_is_not_run(tmp_path, before, after, what):
    status, output = judge(changed(tmp_path, "product", ONE_SHAPE, (before, after)), "--seed", "7")
    assert (status, output.splitlines()[-1]) == (1, "product.py: 1 not-run; seed 7")
    assert f"lacks {what}, which the file uses: judge it with a Triton that has it" in output
