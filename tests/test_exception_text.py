"""The words of an exception that others wrapped."""

import pytest

from conformance.exception_text import raised_by_kernel, with_first_error
from tests.kernels.interpreter_runs import in_interpreter


def wrapped(first, words):
    try:
        try:
            if first is None:
                assert 1 + 1 == 3
            raise first
        except Exception as error:
            raise RuntimeError(words) from error
    except RuntimeError as error:
        return error


@pytest.mark.parametrize(
    ("first", "words", "text"),
    [
        (ValueError("no such layout"), "line 3", "RuntimeError: line 3\nValueError: no such layout"),
        (ValueError("no such layout"), "ValueError('no such layout')", "RuntimeError: ValueError('no such layout')"),
        (AssertionError(), "line 3", "RuntimeError: line 3\nAssertionError: raise first"),
        (None, "words", "RuntimeError: words\nAssertionError: "),
    ],
)
def test_the_first_error_is_named_once(first, words, text):
    assert text in with_first_error(wrapped(first, words))


def test_an_error_of_its_own_is_told_as_it_is():
    assert with_first_error(KeyError("x")) == "KeyError: 'x'"
    error = RuntimeError("x")
    error.__cause__ = ValueError()  # never raised: no words and no line
    assert with_first_error(error) == "RuntimeError: x"


def raised_here(way):
    """An error in an interpreted kernel, or in one of its functions, names its line."""
    import torch

    from conformance.execution.interpreter.executor import InterpreterExecutor
    from conformance.kernels.launch import Launch
    from tests.execution import raising_kernels

    try:
        InterpreterExecutor().run(Launch(raising_kernels.raises, (1,), {"a": torch.zeros(4), "WAY": way}))
    except Exception as error:
        return raised_by_kernel(error)
    return "nothing"


@pytest.mark.parametrize(
    ("way", "text"),
    [
        (
            "shapes",
            "the kernel raises ValueError (Cannot make_shape_compatible: incompatible dimensions at index 0: 4 ",
        ),
        ("name", "the kernel raises NameError (name 'missing_name' is not defined) at raising_kernels.py:19 in raises"),
        ("nothing wrong", "nothing"),
    ],
)
def test_the_line_of_the_kernel_that_raises_is_named(way, text):
    told = in_interpreter(raised_here, way)
    assert told.startswith(text), told
    inner = "in shifted, called at raising_kernels.py:22 in raises"
    assert (inner in told) == (way == "shapes"), told


def test_an_error_outside_a_kernel_has_no_line():
    assert raised_by_kernel(wrapped(ValueError("no such layout"), "line 3")) == ""
