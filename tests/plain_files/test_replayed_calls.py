"""Calls that launch a kernel again, add partial results, or keep memory are replayed as they are."""

from __future__ import annotations

import pytest

from tests.kernels.interpreter_runs import executor, in_interpreter
from tests.plain_files.test_cheats import judged
from tests.plain_files.test_judged_files import FILES

#: A kernel that computes in the first call, and gives the result of that call from then on.
REMEMBERS = (
    ("tl.atomic_add(sums, total)", "tl.atomic_add(sums, tl.where(tl.load(locks + 63) == 0, total, 0.0))"),
    ("        tl.store(sums, tl.zeros((B, B), tl.float32))\n", "        tl.store(locks + 63, 1)\n"),
)
OPERANDS = ("        KEPT[a.device] = torch", "        KEPT[a.device] = a.clone(), locks.zero_()\n        _ = torch")
RIGHT = {"halves": 1, "parts": 1, "kept": 2}
#: By name: the call, changes of the file, which of the calls is at fault, and what is said.
WRONG = {
    "a half is left out": ("halves", (("launch(a[half:], b, c[half:])", "launch(a[:1], b, c[:1])"),), 0, "FAIL exact"),
    "a part is added twice": ("parts", (("c.sum(dim=0)", "c[[0, 1, 1]].sum(dim=0)"),), 0, "indexing by a tensor"),
    "parts of another axis": ("parts", (("c.sum(dim=0)", "c.sum(dim=1)[:, :1]"),), 0, "outputs: the wrapper returns"),
    "no kernel adds": (
        "parts",
        (("    launch(a, b, c, 3)", "    launch(a, b, c, 3)\n    c = a[None]"),),
        0,
        "torch's sum",
    ),
    "a lock that stays": ("kept", (("        tl.store(locks + tile, 0)\n", ""),), 1, "FAIL exact"),
    "a result that is kept": ("kept", REMEMBERS, 1, "FAIL exact"),
    "an operand that is kept": ("kept", (OPERANDS,), 0, "uses a tensor that this call did not make"),
    "memory that is returned": ("kept", (("return c", "return KEPT[a.device][0][: M * N].view(M, N)"),), 0, "it keeps"),
    "too many": (
        "halves",
        (("    return c\n", "    for _ in range(15): launch(a, b, c)\n    return c\n"),),
        0,
        "more than 16",
    ),
}


def said(folder):
    """Returns what is said of each call, and of the same call after another one."""
    from conformance.plain_files import asked_problems
    from conformance.plain_files.description import Described
    from conformance.targets import find

    executor()
    texts = {}
    for number, name in enumerate([*RIGHT, *WRONG]):
        call, changes, *_ = WRONG.get(name, (name, ()))
        text = (FILES / "repeated.py").read_text()
        for before, after in changes:
            assert before in text
            text = text.replace(before, after)
        path = folder / f"file{number}.py"
        path.write_text(text)
        described = Described(operation="mm", call=f"{call}(a, b)", dtypes=("fp32",), shapes=("smaller-than-a-tile",))
        kernels = asked_problems.recorded(path, described, [find("sm_90")], folder / f"{number}")
        texts[name] = [judged(kernel, case, folder / f"{number}") for kernel, cases in kernels for case in cases]
    return texts


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return in_interpreter(said, tmp_path_factory.mktemp("files"))


@pytest.mark.parametrize("name", RIGHT)
def test_it_is_right(texts, name):
    assert texts[name] == [""] * RIGHT[name]


@pytest.mark.parametrize("name", WRONG)
def test_its_fault_is_seen(texts, name):
    """A fault of the second call is not seen in the first, and so each judge of single calls takes it for right."""
    _, _, wrong, said = WRONG[name]
    assert [bool(text) for text in texts[name]] == [False] * wrong + [True]
    assert said in texts[name][wrong]
