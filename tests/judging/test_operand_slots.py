"""A loop that overwrites a tile which a running wgmma reads is named, and one that does not is not."""

import pytest

from conformance.judging.code_faults import Overwritten, overwritten_operands

TILE = "64x64xbf16, #shared, #smem, mutable>"
COPY = "ttg.async_copy_global_to_local %pointers, {} : tensor<64x64x!tt.ptr<bf16>, #blocked> -> <64x64xbf16>"
PRODUCT = (
    "%acc = ttng.warp_group_dot {}, {}, %sum {{inputPrecision = 0 : i32, isAsync = true}} : !ttg.memdesc<64x64xbf16>"
)
WAIT = "%acc_1:3 = ttng.warp_group_dot_wait %acc {{pendings = {} : i32}} : tensor<64x64xf32, #mma>"


def allocated(name, slots):
    return f"{name} = ttg.local_alloc : () -> !ttg.memdesc<{slots}x{TILE} loc(#loc)"


def view(name, allocation):
    return f"{name} = ttg.memdesc_index {allocation}[%i] : !ttg.memdesc<2x{TILE} -> !ttg.memdesc<{TILE}"


def loop(before, body):
    return "\n".join(["tt.func @k() {", *before, "%r = scf.for %k = %a to %b step %c -> (i32) {", *body, "}", "}"])


def pipelined(slots_a, slots_b, pendings, ahead=1, copies_first=False):
    """A loop that copies tiles of A and B ``ahead`` iterations before it multiplies them."""
    before = [allocated("%a", slots_a), allocated("%b", slots_b)]
    for operand in ("%a", "%b"):
        for _ in range(ahead):
            before += [view(f"{operand}_into", operand), f"%t = {COPY.format(f'{operand}_into')}"]
    multiply = [view("%a_k", "%a"), view("%b_k", "%b"), PRODUCT.format("%a_k", "%b_k"), WAIT.format(pendings)]
    copy = []
    for operand in ("%a", "%b"):
        copy += [view(f"{operand}_next", operand), f"%t = {COPY.format(f'{operand}_next')}"]
    return loop(before, [*copy, *multiply] if copies_first else [*multiply, *copy])


@pytest.mark.parametrize("ahead", [1, 2, 3])
@pytest.mark.parametrize("pendings", [0, 1, 2])
@pytest.mark.parametrize("copies_first", [False, True])
def test_a_ring_needs_a_slot_for_each_tile_that_is_copied_or_read(ahead, pendings, copies_first):
    """Tiles that are ahead need a slot each, products that run on one each; a copy before its product one more."""
    needed = ahead + pendings + copies_first
    for slots in range(1, needed + 2):
        overwritten = overwritten_operands(pipelined(slots, needed, pendings, ahead, copies_first))
        assert overwritten == ({Overwritten("%a", slots)} if slots < needed else set())
        overwritten = overwritten_operands(pipelined(needed, slots, pendings, ahead, copies_first))
        assert overwritten == ({Overwritten("%b", slots)} if slots < needed else set())


def test_a_copy_by_tma_overwrites_as_well():
    text = pipelined(1, 2, 1).replace("ttg.async_copy_global_to_local %pointers,", "ttng.async_tma_copy %d[%x, %y]")
    tma = text.replace("ttng.async_tma_copy %d", "ttng.async_tma_copy_global_to_local %d")
    assert overwritten_operands(tma) == {Overwritten("%a", 1)}
    assert not overwritten_operands(text)  # an operation of another name is no copy


def test_a_product_that_is_waited_for_at_once_reads_nothing_later():
    assert not overwritten_operands(pipelined(1, 1, 0))
    synchronous = pipelined(1, 1, 1).replace(", isAsync = true", "")
    assert not overwritten_operands(synchronous)


def test_a_loop_within_a_branch_of_a_loop_is_judged():
    inner = pipelined(1, 2, 1).splitlines()[1:-1]
    text = "\n".join(["tt.func @k() {", "scf.for %t = %a to %b step %c {", "scf.if %q {", *inner, "}", "}", "}"])
    assert overwritten_operands(text) == {Overwritten("%a", 1)}


def test_what_is_copied_in_another_loop_is_not_judged():
    """Partitions of specialised warps wait for each other by barriers, which this does not follow."""
    before = [allocated("%a", 1), view("%a_into", "%a")]
    copies = loop(before, [f"%t = {COPY.format('%a_into')}"])
    products = loop([view("%a_k", "%a")], [PRODUCT.format("%a_k", "%a_k"), WAIT.format(1)])
    assert not overwritten_operands(copies + "\n" + products)


def test_two_slots_that_one_iteration_reads_are_not_judged():
    text = pipelined(1, 2, 1).replace("\n}\n}", f"\n{view('%a_j', '%a')}\n{PRODUCT.format('%a_j', '%b_k')}\n}}\n}}")
    assert not overwritten_operands(text)
