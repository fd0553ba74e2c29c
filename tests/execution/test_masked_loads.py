"""LLVM IR shows what the code gives to lanes that a mask leaves without a value, or does not show that it is 0."""

from __future__ import annotations

import pytest

from conformance.execution.compile.masked_loads import NOT_SHOWN, ZERO, masked_values, places_without_value

METADATA = """
!1 = !DIFile(filename: "mm.py", directory: "/kernels")
!2 = distinct !DISubprogram(name: "mm", scope: !1, file: !1, line: 3)
!3 = !DILocation(line: 24, column: 13, scope: !2)
!4 = !DILocation(line: 25, column: 13, scope: !5, inlinedAt: !3)
!5 = distinct !DILexicalBlockFile(scope: !2, file: !1, discriminator: 0)
"""
OLD = "what shared memory held before"
ZEROED = r"mov.u32 $0, 0x0;\0A\09mov.u32 $1, 0x0;\0A\09@$3 ld.global.v2.b32 { $0, $1 }, [ $2 + 0 ];"
COPY = "cp.async.cg.shared.global [ $0 + 0 ], [ $1 + 0 ], 0x10"
LOADED = "%7 = load <8 x half>, ptr addrspace(1) %6, align 16, !dbg !3"
BUFFER = "call {} @llvm.amdgcn.raw.ptr.buffer.load.{}(ptr addrspace(8) %5, i32 %6, i32 0, i32 0), !dbg !3"


@pytest.mark.parametrize(
    ("code", "value"),
    [
        (f'%5 = tail call {{ i32, i32 }} asm sideeffect "{ZEROED}", "=r,=r,l,b"(ptr %3, i1 %4), !dbg !3', ZERO),
        (f'%5 = call i32 asm sideeffect "{ZEROED.replace("$1, 0x0", "$1, $4")}", "=r"(i1 %4), !dbg !3', NOT_SHOWN),
        (f'%5 = call i32 asm sideeffect "{ZEROED[ZEROED.index("@") :]}", "=r,=r,l,b"(i1 %4), !dbg !3', NOT_SHOWN),
        ('%5 = call i16 asm "mov.u16 $0, 0x0; @$2 ld.global.b16 $0, [ $1 + 0 ];", "=c,l,b"(i1 %4), !dbg !3', ZERO),
        (f'tail call void asm sideeffect "{COPY}, $2;", "r,l,r"(ptr %1, ptr %2, i32 %3), !dbg !3', ZERO),
        (f'tail call void asm sideeffect "@$2 {COPY};", "r,l,b"(ptr %1, ptr %2, i1 %3), !dbg !3', OLD),
        (f"{LOADED}\n%9 = phi <8 x half> [ %7, %5 ], [ zeroinitializer, %1 ], !dbg !3", ZERO),
        (f"{LOADED}\n%9 = phi <8 x half> [ %7, %5 ], [ undef, %1 ], !dbg !3", NOT_SHOWN),
        (f"{LOADED}\n%9 = phi <8 x half> [ %8, %5 ], [ zeroinitializer, %1 ], !dbg !3", NOT_SHOWN),
        (f"{LOADED}\n%9 = phi half [ %7, %5 ], [ %2, %1 ]\n%8 = phi half [ %7, %5 ], [ 0xH0000, %1 ]", NOT_SHOWN),
        (BUFFER.format("<4 x i32>", "v4i32"), ZERO),
        (BUFFER.format("void", "async.lds"), ZERO),
        ("tail call void @llvm.amdgcn.global.load.async.lds(ptr addrspace(1) %6, ptr addrspace(3) %7), !dbg !3", OLD),
    ],
)
def test_the_value_of_lanes_is_read_from_the_code(code, value):
    assert masked_values([code + METADATA]) == {"mm.py:24": value}


def test_a_line_is_zero_only_if_all_its_loads_are():
    zero, other = f"{BUFFER.format('i32', 'i32')}\n", f"{LOADED}\n"
    assert masked_values([other + zero + METADATA, zero + METADATA]) == {"mm.py:24": NOT_SHOWN}
    assert masked_values([zero + METADATA, zero.replace("!dbg !3", "!dbg !4") + METADATA]) == {
        "mm.py:24": ZERO,
        "mm.py:25": ZERO,
    }


def test_what_loads_nothing_has_no_value():
    text = "declare void @llvm.amdgcn.global.load.async.lds(ptr addrspace(1))\n%5 = load half, ptr addrspace(3) %4"
    assert masked_values([text + METADATA]) == {}


def test_loads_without_a_value_are_found_in_ttir():
    text = """
    %x = tt.load %p, %mask : tensor<64x32x!tt.ptr<f16>> loc(#loc5)
    %y = tt.load %p, %mask, %cst evictionPolicy = evict_last : tensor<64x32x!tt.ptr<f16>> loc(#loc2)
    %z = tt.load %p : tensor<64x32x!tt.ptr<f16>> loc(#loc2)
    %w = tt.load %p, %mask#1 cacheModifier = cg {isVolatile = true} : tensor<64x!tt.ptr<f16>> loc("k/other.py":7:3)
#loc1 = loc("/kernels/mm.py":24:13)
#loc2 = loc("/kernels/mm.py":25:13)
#loc4 = loc(callsite(#loc1 at #loc2))
#loc5 = loc("x"(#loc4))
"""
    assert places_without_value([text]) == {"mm.py:24", "other.py:7"}
