"""Thresholds: smaller differences than these are not reported. They are shares of the baseline's value, or of the
unit in their name."""

from __future__ import annotations

from collections.abc import Mapping

#: Clocks, temperature and the placement of buffers move a GEMM's time by a few per cent between runs of one binary.
TIME = 0.05
#: Registers are allocated in units of 8 per thread: less than one unit cannot change how many blocks fit.
REGISTERS = 0.10
REGISTERS_LEAST = 8
#: Shared memory is a sum of tiles and barriers: the barriers' few bytes move between releases, a tile is much more.
SHARED_MEMORY = 0.05
SHARED_MEMORY_LEAST_BYTES = 1024
#: Where code spills already, a few bytes move with every change of the register allocator: from one unit of its
#: allocation on, 8 registers of 4 bytes, it is more.
SPILLS = 0.10
SPILLS_LEAST = {"bytes": 32, "registers": 8}
#: Every release moves code size by some per cent: unrolling or a lost loop shows as much more.
CODE_BYTES = 0.20
#: Total variation distance between two shares of instructions: this part of the code is something else now.
INSTRUCTION_MIX = 0.10
#: Compile time is processor time, measured once, beside others that share caches and cores: only the median over
#: several cases of a kernel counts.
COMPILE_TIME = 0.50
COMPILE_TIME_LEAST_CASES = 5
COMPILE_TIME_LEAST_S = 0.1

THRESHOLDS: Mapping[str, float] = {
    "time": TIME,
    "registers": REGISTERS,
    "registers, at least": REGISTERS_LEAST,
    "shared memory": SHARED_MEMORY,
    "shared memory, at least bytes": SHARED_MEMORY_LEAST_BYTES,
    "spills": SPILLS,
    **{f"spills, at least {unit} where there were some": least for unit, least in SPILLS_LEAST.items()},
    "code bytes": CODE_BYTES,
    "instruction mix": INSTRUCTION_MIX,
    "compile time": COMPILE_TIME,
    "compile time, at least cases": COMPILE_TIME_LEAST_CASES,
    "compile time, at least seconds": COMPILE_TIME_LEAST_S,
}
