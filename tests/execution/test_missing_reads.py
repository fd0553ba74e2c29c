"""Programs that did not read all that they need are named, from what they touched."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from conformance.execution.interpreter.accesses import Footprints
from conformance.execution.interpreter.missing_reads import missing_reads
from conformance.families.attention.problem import Attention
from conformance.families.gemm.problem import bmm, mm

PROBLEM = bmm(4, 6, 5, batch=3)
SPLIT = mm(4, 6, 8)


def tensors_of(problem):
    """Every operand and output as it lies in memory."""
    tensors = {}
    for operand in (*problem.operands, *problem.outputs):
        tensors[operand.name] = torch.zeros(operand.span).as_strided(operand.shape, operand.strides)
    return tensors


class Run:
    """A run that is told what each program touches."""

    def __init__(self, problem):
        self.problem, self.tensors = problem, tensors_of(problem)
        self.footprints = Footprints(self.tensors)
        self.footprints.launch(self.tensors)

    def touch(self, what, program, tensor):
        number = torch.arange(tensor.untyped_storage().nbytes() // 4).as_strided(
            tensor.shape, tensor.stride(), tensor.storage_offset()
        )
        addresses = tensor.untyped_storage().data_ptr() + 4 * number.flatten().numpy().astype(np.int64)
        self.footprints.touched(what, program, addresses, "tiles.py:7")

    def program(self, number, stored, **read):
        for tensor in read.values():
            self.touch("loads", (number, 0, 0), tensor)
        self.touch("stores", (number, 0, 0), stored)

    @property
    def facts(self):
        return missing_reads(self.problem, {}, self.footprints)


def run_of_batch(of_a=lambda z: z, of_b=lambda z: z):
    run = Run(PROBLEM)
    a, b, out = (run.tensors[name] for name in ("a", "b", "out"))
    for z in range(3):
        run.program(z, out[z], a=a[of_a(z)], b=b[of_b(z)])
    return run


def test_programs_that_read_what_they_need_have_no_fact():
    assert run_of_batch().facts == []


def test_an_operand_of_another_matrix():
    assert run_of_batch(of_a=lambda z: 0).facts == [
        "program (1, 0, 0) stores out without matrix 1 of a, and reads matrix 0, at tiles.py:7 [so do 1 others]"
    ]
    assert "without matrix 0 of a and b, and reads matrix 2" in run_of_batch(lambda z: 2, lambda z: 2).facts[0]


def test_rows_that_are_not_read():
    run = Run(SPLIT)
    run.program(0, run.tensors["out"], a=run.tensors["a"][:3], b=run.tensors["b"])
    assert run.facts == ["program (0, 0, 0) stores out without row 3 of a, and reads row 0..2, at tiles.py:7"]
    run = Run(SPLIT)
    run.program(0, run.tensors["out"], a=run.tensors["a"][:, 1:], b=run.tensors["b"][1:])
    assert run.facts == ["program (0, 0, 0) stores out without k 0 of a and b, and reads k 1..7, at tiles.py:7"]


def test_an_operand_that_nothing_reads():
    run = Run(SPLIT)
    run.program(0, run.tensors["out"], a=run.tensors["a"])
    assert run.facts == ["no program reads b"]


def test_programs_that_share_a_tile_share_what_they_read():
    run = Run(SPLIT)
    a, b, out = (run.tensors[name] for name in ("a", "b", "out"))
    run.program(0, out, a=a[:, :4], b=b[:4])
    assert "without k 4..7 of a and b" in run.facts[0]
    run.program(1, out, a=a[:, 4:], b=b[4:])
    assert run.facts == []


def test_a_launch_may_get_an_operand_from_another_launch():
    run = Run(SPLIT)
    a, b, out = (run.tensors[name] for name in ("a", "b", "out"))
    copy = run.footprints.workspace((4, 8), torch.float32)
    run.touch("loads", (0, 0, 0), a)
    run.touch("stores", (0, 0, 0), copy)
    run.footprints.launch({"copy": copy})
    run.program(0, out, a=copy, b=b)
    assert run.facts == []


def test_a_workspace_that_is_read_before_it_is_written():
    run = Run(SPLIT)
    copy = run.footprints.workspace((4, 8), torch.float32)
    run.footprints.launch({"copy": copy})
    run.touch("stores", (0, 0, 0), copy[:3])
    run.touch("loads", (1, 0, 0), copy[:3])
    assert run.footprints.unwritten == {}
    run.touch("loads", (1, 0, 0), copy)
    assert run.facts == ["program (1, 0, 0) reads copy where no program has stored, at tiles.py:7"]


@pytest.mark.parametrize(("keys", "told"), [(slice(0, 9), ""), (slice(0, 8), "without key 8 of k and v")])
def test_keys_of_attention(keys, told):
    problem = Attention("attention", 1, 2, 4, 9, 4, dtype="fp32", kv_heads=1)
    run = Run(problem)
    names = ("q", "k", "v", "out", "lse")
    q, k, v, out, lse = (run.tensors[name] for name in names)
    for head in range(2):
        run.touch("stores", (head, 0, 0), lse[:, head])
        run.program(head, out[:, head], q=q[:, head], k=k[:, :, keys], v=v[:, :, keys])
    assert (told in run.facts[0]) if told else run.facts == []
