"""The words of an exception that others wrapped."""

import pytest

from conformance.execution.first_error import with_first_error


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
