"""Layouts of compiled kernels fit together, and an edit of one is named or has a reason why it changes nothing."""

from __future__ import annotations

import re

import pytest

from conformance import targets
from conformance.execution.compile.compilation import CompilePool
from conformance.families.gemm.problem import int_mm, mm
from conformance.heuristics.configs import Config
from conformance.judging.conform import launches_to_compile
from conformance.kernels.catalogue import get
from conformance.kernels.kernel import Variant
from conformance.problems import Layout
from conformance.ttgir.fragments import used_depths
from conformance.ttgir.layout_check import verified
from conformance.ttgir.layouts import layout_of
from conformance.ttgir.register_maps import scales_map
from conformance.ttgir.text import parse

PADDED, TILE = Layout(pad=8), Config(64, 64, 32, 3, 4)
SIZES = (136, 56, 176)
SOURCES = {
    "mma.sync": ("mm", mm(*SIZES, layout_b=PADDED), "sm_80", Variant(), TILE),
    "wgmma": ("mm", mm(*SIZES, layout_b=PADDED), "sm_90", Variant(), TILE),
    "tcgen05": ("mm", mm(*SIZES, layout_b=PADDED), "sm_100", Variant(), TILE),
    "tma": (
        "mm_persistent_tma", mm(136, 64, 176, layout_b=Layout("col")), "sm_90", Variant(tma_store=True, sms=2), TILE,
    ),
    "partitions": (
        "mm_blackwell_ws", mm(600, 56, 176), "sm_100", Variant(flatten=True, sms=1), Config(128, 64, 64, 3, 4),
    ),
    "8 bits": ("int_mm", int_mm(*SIZES), "sm_90", Variant(), TILE),
    "mfma": ("mm", mm(*SIZES, layout_a=PADDED, layout_b=PADDED), "gfx942", Variant(), TILE),
    "mfma of gfx950": ("mm", mm(*SIZES, layout_a=PADDED, layout_b=PADDED), "gfx950", Variant(), TILE),
    "wmma": ("mm", mm(*SIZES, layout_a=PADDED, layout_b=PADDED), "gfx1250", Variant(), TILE),
}  # fmt: skip


@pytest.fixture(scope="module")
def compiled():
    """The TTGIR of a source."""
    texts = {}
    with CompilePool(1, 240) as pool:

        def text_of(name):
            if name not in texts:
                kernel, problem, target, variant, config = SOURCES[name]
                if target not in {one.id for one in targets.compile_targets()}:
                    pytest.skip(f"the installed Triton cannot compile for {target}")
                plan = get(kernel).plan(problem, config, targets.find(target), variant)
                ((request, _),) = launches_to_compile(plan).values()
                result = pool.submit(request).result()
                assert result.artefact is not None, result.error
                texts[name] = result.artefact.text("ttgir")
            return texts[name]

        yield text_of


def judged(text):
    """Returns the faults of ``text`` and its unknown operations."""
    answer = verified(parse(text))
    return answer.faults, answer.unknown


@pytest.mark.parametrize("name", SOURCES)
def test_layouts_of_a_compiled_kernel_fit(compiled, name):
    assert judged(compiled(name)) == ([], [])


OLDER = """module attributes {"triton_gpu.num-warps" = 4 : i32} {
  tt.func public @copied(%from: tensor<16x!tt.ptr<f32>, #blocked>, %tile: !tt.memdesc<16xf32, #shared>) {
    %copy = triton_gpu.async_copy_global_to_local %from, %tile : tensor<16x!tt.ptr<f32>, #blocked> -> <16xf32, #shared>
    tt.return
  }
}
"""


def test_layouts_that_triton_3_2_spells_are_unknown_and_no_fault():
    assert judged(OLDER) == ([], ["dialect triton_gpu of Triton 3.2"])


def alias(text, pattern):
    """The first alias whose layout matches."""
    return re.search(rf"^(#\w+) = .*{pattern}.*$", text, re.M)[1]


def edited(text, name, old, new):
    """``text`` with the layout of one alias changed."""
    line = re.search(rf"^{name} = .*$", text, re.M)[0]
    changed = re.sub(old, new, line)
    assert changed != line
    return text.replace(line, changed, 1)


@pytest.mark.parametrize("name", ["mma.sync", "mfma", "mfma of gfx950", "wmma"])
def test_one_operand_with_another_width(compiled, name):
    text = compiled(name)
    dot = next(line for line in text.splitlines() if "= tt.dot " in line)
    width = int(re.search(r"opIdx = 1, parent = #mma\d*, kWidth = (\d+)", dot)[1])
    other = re.sub(r"(opIdx = 1, parent = #mma\d*, kWidth = )\d+", rf"\g<1>{2 * width}", dot)
    faults, _ = judged(text.replace(dot, other))
    assert any(f"A has kWidth {width} and B {2 * width}" in fault for fault in faults)


def test_a_width_that_fills_no_register(compiled):
    faults, _ = judged(compiled("mma.sync").replace("kWidth = 2", "kWidth = 1"))
    assert "has kWidth 1, and a register holds 2 of its depths" in faults[0]


def test_a_width_that_a_and_b_share_changes_no_sum(compiled):
    """Twice the width has the depths in another order, the same for A and B."""
    assert judged(compiled("mma.sync").replace("kWidth = 2", "kWidth = 4")) == ([], [])


@pytest.mark.parametrize(
    ("depth", "width", "right"), [(16, 2, True), (16, 4, True), (16, 8, False), (32, 8, True), (64, 8, True)]
)
def test_each_depth_is_used_once(depth, width, right):
    assert (sorted(used_depths(depth, width)) == list(range(depth))) is right


def test_a_width_of_which_the_tile_has_too_few_depths(compiled):
    """Four-bit weights had it in tiles of 16, in releases up to 3.7.1."""
    faults, _ = judged(compiled("mma.sync").replace("kWidth = 2", "kWidth = 16"))
    assert "A in a layout of kWidth 16 has tiles of 32 depths: 16 are left out, others repeat" in faults[0]


def test_an_operand_of_another_product(compiled):
    text = compiled("mma.sync")
    name = alias(text, "nvidia_mma")
    other = re.search(rf"^{name} = (.*)warpsPerCTA = \[(\d), (\d)\](.*)$", text, re.M)
    line = f"#other = {other[1]}warpsPerCTA = [{other[3]}, {other[2]}]{other[4]}"
    assert other[2] == other[3] or line
    changed = text.replace(other[0], f"{other[0]}\n{line.replace('[2, 2]', '[4, 1]')}", 1)
    changed = changed.replace(f"opIdx = 0, parent = {name},", "opIdx = 0, parent = #other,")
    faults, _ = judged(changed)
    assert "which is no operand A of a product" in faults[0]


def test_warps_of_a_layout_in_another_order(compiled):
    """In the whole text nothing changes but who does what. At one end of an operation values change places."""
    text = compiled("mma.sync")
    pointers = re.search(r"tt\.load .*!tt\.ptr<\w+>, (#\w+)>|async_copy_global_to_local .*ptr<\w+>, (#\w+)>", text)
    name = pointers[1] or pointers[2]
    spread = re.search(rf"^{name} = .*warpsPerCTA = \[(\d), (\d)\]", text, re.M)
    there, back = f"[{spread[1]}, {spread[2]}]", f"[{spread[2]}, {spread[1]}]"
    everywhere = edited(text, name, re.escape(there), back)
    assert judged(everywhere) == ([], [])
    line = re.search(rf"^{name} = .*$", text, re.M)[0]
    aliases = f"{line}\n{line.replace(name, '#other', 1).replace(there, back)}"
    expanded = next(x for x in text.splitlines() if "tt.expand_dims" in x and f"parent = {name}}}" in x)
    ends = re.sub(rf"(-> tensor<.*, ){name}>", r"\1#other>", expanded)
    faults, _ = judged(text.replace(line, aliases, 1).replace(expanded, ends, 1))
    assert any("expand_dims" in fault and "differ in what a" in fault for fault in faults)


def test_another_swizzle_at_one_end(compiled):
    """The memory that a copy writes has one layout, and what the product reads is that memory transposed."""
    text = compiled("tma")
    turned = re.search(r"memdesc_trans.*-> !ttg\.memdesc<\w+, (#\w+),", text)
    width = re.search(rf"^{turned[1]} = .*swizzlingByteWidth = (\d+)", text, re.M)[1]
    faults, _ = judged(edited(text, turned[1], f"Width = {width}", f"Width = {32 if width != '32' else 64}"))
    assert any("memdesc_trans" in fault and "different places" in fault for fault in faults)
    faults, _ = judged(edited(text, turned[1], "transposed = true", "transposed = false"))
    assert any("memdesc_trans" in fault and "different places" in fault for fault in faults)


def test_a_descriptor_that_swizzles_otherwise(compiled):
    text = compiled("tma")
    if "swizzle_mode" not in text:
        pytest.skip("the installed Triton makes no descriptor here")
    mode = re.search(r"swizzle_mode = (\d)", text)[1]
    faults, _ = judged(text.replace(f"swizzle_mode = {mode}", f"swizzle_mode = {(int(mode) + 1) % 4}", 1))
    assert f"was written with swizzle_mode {(int(mode) + 1) % 4}" in faults[0]


def test_a_copy_into_memory_of_another_swizzle(compiled):
    text = compiled("tma")
    copy = next(line for line in text.splitlines() if "async_tma_copy_global_to_local" in line)
    name = re.search(r"-> !ttg\.memdesc<\w+, (#\w+),|, (#\w+), #smem, mutable(?:, \w+)?> loc", copy)
    name = name[1] or name[2]
    line = re.search(rf"^{name} = .*$", text, re.M)[0]
    other = line.replace(name, "#other", 1).replace("swizzlingByteWidth = 64", "swizzlingByteWidth = 32")
    changed = re.sub(rf"(tensordesc<[^#]*){name}", r"\1#other", text).replace(line, f"{line}\n{other}", 1)
    assert changed != text
    faults, _ = judged(changed)
    assert any("async_tma_copy" in fault and "different places" in fault for fault in faults)


def test_memory_of_eight_bits_in_an_order_that_wgmma_does_not_take(compiled):
    text = compiled("8 bits")
    product = re.search(r"warp_group_dot .*: !ttg\.memdesc<\w+, (#\w+),.* \* ", text)
    faults, _ = judged(edited(text, product[1], "transposed = false", "transposed = true"))
    assert any("A has elements of 8 bits, whose depths must be side by side" in fault for fault in faults)


def test_sixteen_bits_in_either_order_are_the_same_product(compiled):
    """By pointers every store and read of it goes by the one layout, and wgmma takes both orders."""
    text = compiled("wgmma")
    product = re.search(r"warp_group_dot .*: !ttg\.memdesc<\w+, (#\w+),.* \* ", text)
    assert judged(edited(text, product[1], "transposed = false", "transposed = true")) == ([], [])


def test_warps_that_read_tensor_memory_of_others(compiled):
    text = compiled("tcgen05")
    load = re.search(r"tmem_load .*-> tensor<\w+, (#\w+)>", text)
    layout = re.search(rf"^{load[1]} = (.*)$", text, re.M)[1]
    if "linear" in layout:
        changed = edited(text, load[1], r"warp = \[(\[.*?\]), (\[.*?\])\]", r"warp = [\2, \1]")
    else:
        changed = edited(text, load[1], r"warpsPerCTA = \[4, 1\]", "warpsPerCTA = [1, 4]")
    faults, _ = judged(changed)
    assert any("tmem" in fault and "another warp" in fault for fault in faults)


def test_lanes_in_an_order_that_no_load_of_tensor_memory_has(compiled):
    text = compiled("tcgen05")
    load = re.search(r"tmem_load .*-> tensor<\w+, (#\w+)>", text)
    layout = re.search(rf"^{load[1]} = (.*)$", text, re.M)[1]
    if "linear" not in layout:
        pytest.skip("the installed Triton loads tensor memory in a blocked layout")
    faults, unknown = judged(edited(text, load[1], r"lane = \[(\[.*?\]), (\[.*?\])", r"lane = [\2, \1"))
    assert faults == []
    assert "of tensor memory" in unknown[0]


@pytest.mark.parametrize("name", ["mma.sync", "mfma"])
def test_a_layout_of_more_warps_than_run(compiled, name):
    text = compiled(name)
    faults, _ = judged(text.replace('"ttg.num-warps" = 4', '"ttg.num-warps" = 2'))
    assert any("is in 4 warps, and 2 run" in fault for fault in faults)


def test_a_partition_has_its_own_warps(compiled):
    text = compiled("partitions")
    inside = next(m for m in re.finditer(r"num_warps\((\d+)\)", text) if m[1] != "4")
    faults, _ = judged(text.replace(inside[0], "num_warps(16)", 1))
    tensors = "tensor<" in text[inside.end() : text.find("ttg.warp_return", inside.end())]
    assert any("and 16 run" in fault for fault in faults) is tensors


def test_a_descriptor_of_elements_of_another_size(compiled):
    text = compiled("tma")
    name = re.search(r"tensordesc<.*?, (#\w+)>", text)[1]
    faults, _ = judged(edited(text, name, "elementBitWidth = 16", "elementBitWidth = 32"))
    assert any("has elements of 16 bits in" in fault for fault in faults)


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        (r"warpsPerCTA = \[4, 1\]", "warpsPerCTA = [2, 2]", "no group of four"),
        (r"instrShape = \[16, (\d+), 16\]", r"instrShape = [16, \1, 8]", "one instruction takes 16 depths"),
    ],
)
def test_a_result_of_wgmma_that_no_warp_group_has(compiled, old, new, fault):
    text = compiled("wgmma")
    faults, _ = judged(edited(text, alias(text, "nvidia_mma"), old, new))
    assert any(fault in text for text in faults)


@pytest.mark.parametrize("operation", ["tt.dot ", "ttg.async_copy_global_to_local", "ttg.local_load", "tt.load"])
def test_a_value_used_in_another_layout_than_it_was_made_in(compiled, operation):
    text = compiled("mma.sync")
    line = next((line for line in text.splitlines() if f" {operation}" in line), None)
    if line is None:
        pytest.skip(f"the installed Triton has no {operation.strip()} here")
    types = line.rindex(" : ")
    name = re.search(r"(#[a-z]+\d*)(?=[,>])(?!.*#mma)", line[types:].replace("#smem", "SMEM"))
    name = "#mma" if operation == "tt.dot " else name[1]
    other = {"#mma": MMA_OF_ONE_ROW}.get(name, OTHER_SHARED if "shared" in name else OTHER_BLOCKED)
    changed = line[:types] + line[types:].replace(name, "#other")
    assert changed != line
    faults, _ = judged(text.replace(line, changed, 1).replace("module ", f"#other = {other}\nmodule ", 1))
    assert any(" as " in fault or "differ in what a" in fault for fault in faults)


MMA_OF_ONE_ROW = "#ttg.nvidia_mma<{versionMajor = 2, versionMinor = 0, warpsPerCTA = [1, 4], instrShape = [16, 8]}>"
OTHER_SHARED = "#ttg.swizzled_shared<{vec = 2, perPhase = 4, maxPhase = 2, order = [1, 0]}>"
OTHER_BLOCKED = "#ttg.blocked<{sizePerThread = [2, 1], threadsPerWarp = [8, 4], warpsPerCTA = [1, 4], order = [0, 1]}>"


# Operations one by one

HEAD = """#row = #ttg.blocked<{sizePerThread = [1, 4], threadsPerWarp = [8, 4], warpsPerCTA = [4, 1], order = [1, 0]}>
#column = #ttg.blocked<{sizePerThread = [4, 1], threadsPerWarp = [4, 8], warpsPerCTA = [1, 4], order = [0, 1]}>
#pair = #ttg.blocked<{sizePerThread = [1, 4, 2], threadsPerWarp = [8, 4, 1], warpsPerCTA = [4, 1, 1], \
order = [2, 1, 0]}>
#far = #ttg.blocked<{sizePerThread = [1, 4, 1], threadsPerWarp = [4, 4, 2], warpsPerCTA = [4, 1, 1], \
order = [2, 1, 0]}>
#codes = #ttg.blocked<{sizePerThread = [1, 2], threadsPerWarp = [8, 4], warpsPerCTA = [4, 1], order = [1, 0]}>
#lacks = #ttg.linear<{register = [[0, 2]], lane = [[0, 4], [0, 8], [1, 0], [2, 0], [4, 0]], warp = [[8, 0], [8, 0]], \
block = []}>
#twice = #ttg.shared_linear<{offset = [[0, 1], [0, 2], [0, 4], [0, 8], [1, 0], [2, 0], [4, 0], [8, 0], [8, 0]]}, \
alignment = 16>
#straight = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [1, 0]}>
#turned = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0, 1]}>
#swizzled = #ttg.swizzled_shared<{vec = 4, perPhase = 1, maxPhase = 4, order = [0, 1]}>
#smem = #ttg.shared_memory
module attributes {"ttg.num-warps" = 4 : i32} {
  tt.func public @f(%x: tensor<32x16xf32, #row>, %y: tensor<32x16xf32, #row>, %m: !ttg.memdesc<16x16xf16, #straight, \
#smem>, %c: tensor<32x8xi8, #codes>) {
"""


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("%z = arith.addf %x, %y : tensor<32x16xf32, #row>", ""),
        ("%z = arith.addf %x, %y : tensor<32x16xf32, #column>", "differ in what a"),
        ("%z = tt.trans %x {order = array<i32: 1, 0>} : tensor<32x16xf32, #row> -> tensor<16x32xf32, #column>", ""),
        ("%z = tt.trans %x {order = array<i32: 1, 0>} : tensor<32x16xf32, #row> -> tensor<16x32xf32, #row>", "differ"),
        ("%z = tt.reshape %x : tensor<32x16xf32, #row> -> tensor<16x32xf32, #row>", "differ in what a"),
        ("%z = tt.reshape %x allow_reorder : tensor<32x16xf32, #row> -> tensor<16x32xf32, #row>", ""),
        ("%z = tt.join %x, %y : tensor<32x16xf32, #row> -> tensor<32x16x2xf32, #pair>", ""),
        ("%z = tt.join %x, %y : tensor<32x16xf32, #row> -> tensor<32x16x2xf32, #far>", "in different lanes"),
        ("%z = ttg.fp4_to_fp %c {axis = 1 : i32} : tensor<32x8xi8, #codes> -> tensor<32x16xbf16, #row>", ""),
        ("%z = ttg.fp4_to_fp %c {axis = 1 : i32} : tensor<32x8xi8, #codes> -> tensor<32x16xbf16, #codes>", "differ"),
        ("%z = ttg.convert_layout %x : tensor<32x16xf32, #row> -> tensor<32x16xf32, #column>", ""),
        ("%z = ttg.convert_layout %x : tensor<32x16xf32, #row> -> tensor<32x16xf32, #lacks>", "lacks elements"),
        ("%z = ttg.local_alloc %x : (tensor<32x16xf32, #row>) -> !ttg.memdesc<16x16xf32, #twice, #smem>", "one place"),
        ("%z = ttg.memdesc_trans %m {order = array<i32: 1, 0>} : !ttg.memdesc<16x16xf16, #straight, #smem> -> "
         "!ttg.memdesc<16x16xf16, #turned, #smem>", ""),
        ("%z = ttg.memdesc_trans %m {order = array<i32: 1, 0>} : !ttg.memdesc<16x16xf16, #straight, #smem> -> "
         "!ttg.memdesc<16x16xf16, #swizzled, #smem>", "different places"),
        ("ttg.local_store %x, %m : tensor<32x16xf32, #row> -> !ttg.memdesc<16x16xf16, #straight, #smem>", "sizes"),
    ],
)  # fmt: skip
def test_an_operation(line, fault):
    faults, unknown = judged(f"{HEAD}    {line}\n    tt.return\n  }}\n}}\n")
    assert not unknown
    assert (fault in faults[0]) if fault else not faults


def test_what_is_unknown_is_named():
    future = "%z = ttg.turn_around %x : tensor<32x16xf32, #row> -> tensor<32x16xf32, #row>"
    layout = "%z = ttg.convert_layout %x : tensor<32x16xf32, #row> -> tensor<32x16xf32, #ttg.spiral<{turns = 3}>>"
    form = "%z = tt.expand_dims %x, %y {axis = 0 : i32} : tensor<32x16xf32, #row> -> tensor<1x32x16xf32, #pair>"
    starts = "operation ttg.turn_around", "registers in spiral", "operation tt.expand_dims in the form %x, %y"
    for line, start in zip((future, layout, form), starts, strict=True):
        faults, unknown = judged(f"{HEAD}    {line}\n    tt.return\n  }}\n}}\n")
        assert faults == []
        assert unknown[0].startswith(start)


# Scaled products

MX = """#mma = #ttg.nvidia_mma<{versionMajor = 2, versionMinor = 0, warpsPerCTA = [1, 4], instrShape = [16, 8]}>
#rows = #ttg.linear<{register = [[0, 1], [16, 0]], lane = [[8, 0], [0, 0], [1, 0], [2, 0], [4, 0]], warp = [[0, 0], \
[0, 0]], block = []}>
#columns = #ttg.linear<{register = [[0, 1], [32, 0]], lane = [[0, 0], [0, 0], [1, 0], [2, 0], [4, 0]], warp = [[8, 0], \
[16, 0]], block = []}>
module {
  tt.func public @f(%sa: tensor<32x2xi8, #rows>, %sb: tensor<64x2xi8, #columns>, %c: tensor<32x64xf32, #mma>) {
    %a = ub.poison : A
    %b = ub.poison : B
    %d = tt.dot_scaled %a scale %sa, %b scale %sb, %c lhs = e2m1 rhs = e2m1 {fastMath = false} : \
A, tensor<32x2xi8, #rows> * B, tensor<64x2xi8, #columns> -> tensor<32x64xf32, #mma>
    tt.return
  }
}
"""
OPERANDS = {
    "A": "tensor<32x32xi8, #ttg.dot_op<{opIdx = 0, parent = #mma, kWidth = 4}>>",
    "B": "tensor<32x64xi8, #ttg.dot_op<{opIdx = 1, parent = #mma, kWidth = 4}>>",
}


def scaled(text=MX):
    for name, kind in OPERANDS.items():
        text = re.sub(rf"\b{name}\b", kind, text)
    return judged(text)


def test_a_scaled_product():
    assert scaled() == ([], [])


def test_codes_packed_along_the_rows_of_a_or_the_columns_of_b():
    """https://github.com/triton-lang/triton/issues/11733: wrong on sm_120 in releases up to 3.8."""
    faults, _ = scaled(MX.replace("fastMath = false", "fastMath = false, lhs_k_pack = false"))
    assert "A has two rows or columns in a byte, and the unit reads two depths from it" in faults[0]
    # 8-bit operands have nothing packed
    one_byte = MX.replace("rhs = e2m1 {fastMath = false", "rhs = e4m3 {fastMath = false, rhs_k_pack = false")
    assert scaled(one_byte) == ([], [])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("lane = [[8, 0], [0, 0]", "lane = [[0, 0], [8, 0]"),  # rows 8 to 15 in the third lane of four
        ("register = [[0, 1], [16, 0]]", "register = [[16, 0], [0, 1]]"),  # depths in another register
        ("warp = [[8, 0], [16, 0]]", "warp = [[16, 0], [8, 0]]"),  # columns in another warp
    ],
)
def test_scales_in_other_places_than_the_unit_reads(old, new):
    assert old in MX
    faults, _ = scaled(MX.replace(old, new))
    assert "differ in what a" in faults[0]


def copied_scales(*offset):
    """The faults of a copy of 256 x 8 scales to tensor memory, from shared memory with these bases."""
    shared = "#ttg.shared_linear<{offset = [" + ", ".join(map(str, map(list, offset))) + "]}, alignment = 128>"
    scales = "!ttg.memdesc<256x8xf8E4M3FN, {}, {}, mutable>"
    source = scales.format(shared, "#smem")
    target = scales.format("#ttng.tensor_memory_scales_encoding<>", "#ttng.tensor_memory")
    return judged(
        f"""module attributes {{"ttg.num-warps" = 4 : i32, "ttg.threads-per-warp" = 32 : i32}} {{
  tt.func public @copy() {{
    %scales = ttg.local_alloc : () -> {source}
    %copy = ttng.tmem_alloc : () -> {target}
    ttng.tmem_copy %scales, %copy : {source}, {target}
    tt.return
  }}
}}
"""
    )


#: The 512 bytes that one copy moves, and the blocks of further rows and of further depths.
BLOCK = ((0, 1), (0, 2), (32, 0), (64, 0), (1, 0), (2, 0), (4, 0), (8, 0), (16, 0))
ROWS, DEPTHS = (128, 0), (0, 4)


def test_scales_that_are_copied_to_tensor_memory():
    """A block may stand anywhere, because each is copied by an instruction with its own addresses. Within one, each
    lane reads 16 bytes that are side by side."""
    assert copied_scales(*BLOCK, ROWS, DEPTHS) == copied_scales(*BLOCK, DEPTHS, ROWS) == ([], [])
    first, second, *rest = BLOCK
    for places in ((second, first, *rest, DEPTHS, ROWS), (*BLOCK[:8], ROWS, BLOCK[8], DEPTHS)):
        faults, _ = copied_scales(*places)
        assert "have elements at different places" in faults[0]


#: The unit of a batch, as Triton 3.9 makes it for sm_120.
BATCH = "#ttg.nvidia_mma<{versionMajor = 2, versionMinor = 0, warpsPerCTA = [2, 1, 2], instrShape = [1, 16, 8]}>"


@pytest.mark.parametrize(
    ("unit", "index", "shape", "bases"),
    [
        (
            "#ttg.amd_mfma<{version = 4, warpsPerCTA = [2, 2], instrShape = [32, 32, 64], isTransposed = true}>", 1,
            (128, 4), (((0, 2), (64, 0)), ((1, 0), (2, 0), (4, 0), (8, 0), (16, 0), (0, 1)), ((32, 0), (0, 0))),
        ),
        (
            "#ttg.amd_wmma<{version = 3, isTranspose = true, ctaLayout = {warp = [[0, 1], [1, 0]]}, "
            "instrShape = [16, 16, 128]}>", 0,
            (128, 4), (((0, 1), (0, 2), (64, 0)), ((1, 0), (2, 0), (4, 0), (8, 0), (32, 0)), ((0, 0), (16, 0))),
        ),
        (
            BATCH, 0, (2, 64, 4),
            (
                ((0, 0, 1), (0, 0, 2), (0, 16, 0), (0, 32, 0)),
                ((0, 8, 0), (0, 0, 0), (0, 1, 0), (0, 2, 0), (0, 4, 0)), ((0, 0, 0), (1, 0, 0)),
            ),
        ),
        (
            BATCH, 1, (2, 64, 4),
            (
                ((0, 0, 1), (0, 0, 2), (0, 16, 0), (0, 32, 0)),
                ((0, 0, 0), (0, 0, 0), (0, 1, 0), (0, 2, 0), (0, 4, 0)), ((0, 8, 0), (1, 0, 0)),
            ),
        ),
    ],
    ids=["mfma", "wmma", "batch-A", "batch-B"],
)  # fmt: skip
def test_the_places_of_scales(unit, index, shape, bases):
    held = scales_map(layout_of(unit, {}), index, shape)
    assert tuple(held.of(holder) for holder in ("register", "lane", "warp")) == bases


# Tensor memory

TCGEN05 = """#a = #ttng.tensor_memory_encoding<blockM = 128, blockN = 64, colStride = 1>
#b = #ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = false, elementBitWidth = 16}>
#d = #ttng.tensor_memory_encoding<blockM = 128, blockN = 64, colStride = 1>
#smem = #ttg.shared_memory
module {
  tt.func public @f(%a: !ttg.memdesc<128x64xbf16, #a, #ttng.tensor_memory>, %b: !ttg.memdesc<64x64xbf16, #b, #smem>, \
%d: !ttg.memdesc<128x64xf32, #d, #ttng.tensor_memory, mutable>, %t: i1) {
    ttng.tc_gen5_mma %a, %b, %d, %t, %t : !ttg.memdesc<128x64xbf16, #a, #ttng.tensor_memory>, \
!ttg.memdesc<64x64xbf16, #b, #smem>, !ttg.memdesc<128x64xf32, #d, #ttng.tensor_memory, mutable>
    tt.return
  }
}
"""


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("", "", ""),
        ("#a = #ttng.tensor_memory_encoding<blockM = 128, blockN = 64, colStride = 1",
         "#a = #ttng.tensor_memory_encoding<blockM = 128, blockN = 64, colStride = 2", "A has its elements of 16"),
        ("#d = #ttng.tensor_memory_encoding<blockM = 128, blockN = 64, colStride = 1>",
         "#d = #ttng.tensor_memory_encoding<blockM = 128, blockN = 64, colStride = 2>", "the sum has 32 bits"),
        ("elementBitWidth = 16", "elementBitWidth = 8", "B has elements of 16 bits in"),
        ("transposed = false", "transposed = true", ""),  # tcgen05 takes 16 bits in either order
        ("64x64xbf16, #b", "64x64xf32, #b", "B has elements of 32 bits"),
    ],
)  # fmt: skip
def test_operands_of_tcgen05(old, new, fault):
    faults, unknown = judged(TCGEN05.replace(old, new) if old else TCGEN05)
    assert not unknown
    assert (fault in faults[0]) if fault else not faults
