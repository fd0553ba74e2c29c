"""Small programs with known results, which the executor runs before it judges any: what it says of them must be so.

Each is right as it stands, in every order, and wrong in a known way after one edit.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import torch

from conformance.ttgir.arithmetic import UnknownOperation
from conformance.ttgir.machine import PROGRAM, Agent, ProgramRun, Schedule, orders_of
from conformance.ttgir.memory import GlobalMemory, ProgramFault
from conformance.ttgir.regions import prepared, run_steps
from conformance.ttgir.text import TextError, parse

SIZE = 16
_HEAD = """\
module attributes {"ttg.num-ctas" = 1 : i32} {
  tt.func public @proof(%in: !tt.ptr<f32>, %out: !tt.ptr<f32>) {
    %range = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32, #b>
    %in_0 = tt.splat %in : !tt.ptr<f32> -> tensor<16x!tt.ptr<f32>, #b>
    %from = tt.addptr %in_0, %range : tensor<16x!tt.ptr<f32>, #b>, tensor<16xi32, #b>
    %out_0 = tt.splat %out : !tt.ptr<f32> -> tensor<16x!tt.ptr<f32>, #b>
    %to = tt.addptr %out_0, %range : tensor<16x!tt.ptr<f32>, #b>, tensor<16xi32, #b>
    %tile = ttg.local_alloc : () -> !ttg.memdesc<16xf32, #s, #smem, mutable>
"""
_TAIL = """\
    tt.return
  }
}
"""
#: A copy that goes on while the program does; sums of what it brought.
_COPY = """\
    %copy = ttg.async_copy_global_to_local %from, %tile : tensor<16x!tt.ptr<f32>, #b> -> <16xf32, #s, #smem, mutable>
    %group = ttg.async_commit_group tokens %copy
    %over = ttg.async_wait %group {num = 0 : i32}
    %value = ttg.local_load %tile token %over : !ttg.memdesc<16xf32, #s, #smem, mutable> -> tensor<16xf32, #b>
    %sum = "tt.reduce"(%value) <{axis = 0 : i32}> ({
    ^bb0(%first: f32, %second: f32):
      %both = arith.addf %first, %second : f32
      tt.reduce.return %both : f32
    }) : (tensor<16xf32, #b>) -> f32
    %sums = tt.splat %sum : f32 -> tensor<16xf32, #b>
    %result = arith.addf %value, %sums : tensor<16xf32, #b>
    tt.store %to, %result : tensor<16x!tt.ptr<f32>, #b>
"""
#: Two agents: one fills the tile twice, the other reads it, and each waits for the other.
_AGENTS = """\
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c2 = arith.constant 2 : i32
    %full = ttg.local_alloc : () -> !ttg.memdesc<1xi64, #s, #smem, mutable>
    ttng.init_barrier %full, 1 : !ttg.memdesc<1xi64, #s, #smem, mutable>
    %free = ttg.local_alloc : () -> !ttg.memdesc<1xi64, #s, #smem, mutable>
    ttng.init_barrier %free, 1 : !ttg.memdesc<1xi64, #s, #smem, mutable>
    %zero = arith.constant dense<0.0> : tensor<16xf32, #b>
    ttg.warp_specialize(%from, %tile, %full, %free) attributes {requestedRegisters = array<i32: 24>}
    default {
      %total = scf.for %i = %c0 to %c2 step %c1 iter_args(%before = %zero) -> (tensor<16xf32, #b>)  : i32 {
        ttng.wait_barrier %full, %i : !ttg.memdesc<1xi64, #s, #smem, mutable>
        %value = ttg.local_load %tile : !ttg.memdesc<16xf32, #s, #smem, mutable> -> tensor<16xf32, #b>
        ttng.arrive_barrier %free, 1 : !ttg.memdesc<1xi64, #s, #smem, mutable>
        %after = arith.addf %before, %value : tensor<16xf32, #b>
        scf.yield %after : tensor<16xf32, #b>
      }
      tt.store %to, %total : tensor<16x!tt.ptr<f32>, #b>
      ttg.warp_yield
    }
    partition0(%source: tensor<16x!tt.ptr<f32>, #b>, %slot: !ttg.memdesc<16xf32, #s, #smem, mutable>, \
%ready: !ttg.memdesc<1xi64, #s, #smem, mutable>, %empty: !ttg.memdesc<1xi64, #s, #smem, mutable>) num_warps(4) {
      %d0 = arith.constant 0 : i32
      %d1 = arith.constant 1 : i32
      %d2 = arith.constant 2 : i32
      %loaded = tt.load %source : tensor<16x!tt.ptr<f32>, #b>
      scf.for %j = %d0 to %d2 step %d1  : i32 {
        %phase = arith.xori %j, %d1 : i32
        ttng.wait_barrier %empty, %phase : !ttg.memdesc<1xi64, #s, #smem, mutable>
        ttg.local_store %loaded, %slot : tensor<16xf32, #b> -> !ttg.memdesc<16xf32, #s, #smem, mutable>
        ttng.arrive_barrier %ready, 1 : !ttg.memdesc<1xi64, #s, #smem, mutable>
      }
      ttg.warp_return
    } : (tensor<16x!tt.ptr<f32>, #b>, !ttg.memdesc<16xf32, #s, #smem, mutable>, \
!ttg.memdesc<1xi64, #s, #smem, mutable>, !ttg.memdesc<1xi64, #s, #smem, mutable>) -> ()
"""


@dataclass(frozen=True)
class Sample:
    """One program. It has its text, and what each element of the result is (a multiple of the one given, and of the sum
    of all). It also has lines whose removal is a fault, with the message expected then."""

    name: str
    text: str
    times: int
    sums: int
    needed: tuple[tuple[str, str], ...]


PROGRAMS = (
    Sample("copy", _HEAD + _COPY + _TAIL, 1, 1, (("ttg.async_wait", "may still be writing"),)),
    Sample(
        "agents",
        _HEAD + _AGENTS + _TAIL,
        2,
        0,
        (
            ("ttng.wait_barrier %full", "deadlock"),
            ("ttng.wait_barrier %empty", "deadlock"),
            ("ttng.arrive_barrier %ready", "deadlock"),
            ("ttng.init_barrier %free", "no operation made it one"),
        ),
    ),
)


@functools.cache
def objection() -> str:
    """Returns the reason why the executor may judge nothing here; "" if its answer about every known program is
    right."""
    for sample in PROGRAMS:
        if said := said_of(sample.text, sample):
            return f"the program '{sample.name}' is right, and the executor says: {said}"
        for line, expected in sample.needed:
            without = "\n".join(each for each in sample.text.splitlines() if line not in each)
            without = without.replace(" token %over", "")
            if expected not in (said := said_of(without, sample)):
                return (
                    f"the program '{sample.name}' without {line} is at fault, and the executor says: {said or 'right'}"
                )
    return ""


def said_of(text: str, sample: Sample) -> str:
    """Runs ``text`` and returns the fault of the first order that is not right; "" if all are."""
    try:
        module = parse(text)
        return next(filter(None, (_said_in(order, text, sample) for order in orders_of(module))), "")
    except (UnknownOperation, TextError) as error:
        return f"not known: {error}"


def _said_in(order: Schedule, text: str, sample: Sample) -> str:
    given, result = torch.arange(1.0, SIZE + 1), torch.zeros(SIZE)
    names = {"%in": np.int64(given.data_ptr()), "%out": np.int64(result.data_ptr())}
    program = ProgramRun((0, 0, 0), (1, 1, 1), GlobalMemory((given, result)), order)
    agent = Agent(program, PROGRAM, {})
    try:
        program.run(agent, run_steps(prepared(parse(text).function.body), agent, names))
    except ProgramFault as fault:
        return str(fault)
    expected = sample.times * given + sample.sums * given.sum()
    return "" if torch.equal(result, expected) else f"wrong numbers in order '{order.name}'"
