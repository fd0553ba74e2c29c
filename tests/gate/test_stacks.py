"""Stacks as users write them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from conformance.gate.stacks.stack_file import StackError, parse, read_matrix, spelled


def test_items_may_be_combined(tmp_path: Path) -> None:
    wheel, tool = tmp_path / "triton-4.0-py3-none-any.whl", tmp_path / "ptxas"
    wheel.touch(), tool.touch(), (tmp_path / "package.py").touch()
    stack = parse(f"torch==2.14.1, {wheel} site={tmp_path} ptxas={tool}")
    assert stack.packages == ("torch==2.14.1",)
    assert (stack.wheels, stack.sites, stack.ptxas) == ((wheel,), (tmp_path,), tool)
    assert parse("ptxas==12.9").ptxas == "12.9"
    assert parse("current").packages == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "an empty stack"),
        ("triton", "no exact version"),
        ("triton>=3.8", "no exact version"),
        ("triton==3.*", "no exact version"),
        ("triton[extra]==3.8", "no exact version"),
        ("triton==3.8.0 triton==3.9.0", "triton is given twice"),
        ("ptxas==12.9 ptxas==13.0", "ptxas is given twice"),
        ("ptxas==twelve", "a version of CUDA's compiler is required"),
        ("ptxas=/nowhere/ptxas", "no file is there"),
        ("/nowhere/triton-4.0-py3-none-any.whl", "no file is there"),
        ("Triton==3.8.0 triton==3.9.0", "triton is given twice"),
        ("ptxas=12.9", "write ptxas==VERSION"),
        ("site=/nowhere", "a folder of packages is required"),
        ("current triton==3.9.0", "'current' is no exact version"),
        ("tri!ton==3", "not understood"),
        ("triton==3.8;touch${IFS}PWN", "not understood|no exact version"),
        ("$(touch${IFS}PWN)", "not understood"),
        ("--index-url=http://x", "not understood"),
        ("-rx", "not understood"),
        ("triton@https://example.org/triton.zip", "no exact version"),
    ],
)
def test_what_is_no_stack_is_refused_with_advice(text: str, message: str) -> None:
    with pytest.raises(StackError, match=message):
        parse(text)


def test_a_folder_without_a_package_is_no_site(tmp_path: Path) -> None:
    (tmp_path / "python" / "triton").mkdir(parents=True)
    (tmp_path / "python" / "triton" / "__init__.py").touch()
    with pytest.raises(StackError, match="no package lies in it"):
        parse(f"site={tmp_path}")
    assert parse(f"site={tmp_path / 'python'}").sites == (tmp_path / "python",)


MATRIX = """
[stack.old]
use = "triton==3.8.0"
[stack.new]
use = "triton==3.9.0"
env = { TRITON_DEFAULT_FP_FUSION = "1" }
[stack.newest]
use = "triton==3.9.0 ptxas==13.0"
"""


def matrix(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "stacks.toml"
    file.write_text(text)
    return file


def test_a_matrix_compares_each_stack_with_the_one_before_or_with_one(tmp_path: Path) -> None:
    described = read_matrix(matrix(tmp_path, MATRIX))
    assert [stack.name for stack in described.stacks] == ["old", "new", "newest"]
    assert described.stacks[1].variables == (("TRITON_DEFAULT_FP_FUSION", "1"),)
    assert described.pairs == (("old", "new"), ("new", "newest"))
    described = read_matrix(matrix(tmp_path, 'compare = "new"\n' + MATRIX))
    assert described.pairs == (("new", "old"), ("new", "newest"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stack", "cannot be read as TOML"),
        ('[stack.one]\nuse = "current"', "two stacks or more"),
        ('compare = "nobody"\n' + MATRIX, "'previous' or one of old, new, newest"),
        ("tier = 1\n" + MATRIX, "unknown key tier"),
        (MATRIX + "[stack.odd]\nuse = 3", r"\[stack.odd\] needs the key use"),
        (MATRIX + '[stack.odd]\nuse = "current"\nenv = { A = 1 }', "env must be a table of texts"),
        (MATRIX + '[stack.odd]\nuse = "current"\nenv = { "A=B" = "1" }', "'A=B' cannot be set"),
        (MATRIX + '[stack.odd]\nuse = "current"\nenv = { A = "\\u0000" }', "'A' cannot be set"),
        (MATRIX + '[stack.odd]\nuse = "current"\nenv = { PYTHONPATH = "/x" }', "write site=/folder, a wheel or"),
        *(
            (
                MATRIX + f'[stack.odd]\nuse = "current"\nenv = {{ {name} = "/x" }}',
                f"env cannot set {name}, which can load",
            )
            for name in ("LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "PYTHONHOME", "PYTHONSTARTUP", "PYTEST_PLUGINS")
        ),
        ("a = " + "[" * 100_000 + "]" * 100_000, "cannot be read as TOML"),
        (MATRIX + '[stack.odd]\nuse = "triton"', "no exact version"),
    ],
)
def test_a_matrix_that_cannot_be_run_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(StackError, match=message):
        read_matrix(matrix(tmp_path, text))


def test_a_stack_is_spelled_as_it_was_written(tmp_path: Path) -> None:
    wheel, tool = tmp_path / "triton-4.0-py3-none-any.whl", tmp_path / "ptxas"
    wheel.touch(), tool.touch(), (tmp_path / "package.py").touch()
    texts = ("current", "torch==2.14.1 preview=fp-fusion-off", "ptxas==12.9", f"{wheel} site={tmp_path} ptxas={tool}")
    for text in texts:
        assert spelled(parse(text)) == text
    assert spelled(replace(parse("current"), variables=(("TRITON_DEBUG", "1"),))) is None
