"""Operands at the edges of mapped memory: where they lie, which memory they take, and what a trial makes of them."""

import itertools

import pytest
import torch

from conformance.execution import page_edges as page_edges_module
from conformance.execution.page_edges import ALIGNMENT, Edge, NoEdge, PageEdges, slack, start
from conformance.execution.trial import trial
from conformance.execution.virtual_memory import Unmappable
from conformance.numerics.rounding import bits
from conformance.problems import DTYPES, Layout, Operand, bmm, mm
from tests.execution.protected_memory import GRANULE, EdgeExecutor, ProtectedMemory
from tests.execution.test_trial import KERNEL, PLAN, PROBLEM, one_element_off

BEGIN, END = 4 * GRANULE, 6 * GRANULE
OPERANDS = [
    Operand("x", (extent,), (step,), dtype, offset)
    for extent, step, dtype, offset in itertools.product((1, 3, 64, 67), (1, 2), DTYPES, (0, 1, 5))
]


@pytest.mark.parametrize("edge", Edge)
def test_an_operand_lies_at_the_edge_as_near_as_its_alignment_allows(edge):
    for operand in OPERANDS:
        size = DTYPES[operand.dtype].itemsize
        first = start(operand, BEGIN, END, edge)
        behind = first + operand.span * size
        assert first >= BEGIN
        assert behind <= END
        assert first % ALIGNMENT == operand.offset * size % ALIGNMENT
        distance = END - behind if edge is Edge.END else first - BEGIN
        assert distance == slack(operand, edge) < ALIGNMENT


def test_an_operand_of_whole_16_bytes_touches_both_edges():
    operand = Operand("x", (4, 8), (8, 1), "fp16")
    assert [slack(operand, edge) for edge in Edge] == [0, 0]
    assert slack(Operand("x", (67,), (1,), "fp32"), Edge.END) == 4
    assert slack(Operand("x", (67,), (1,), "fp32", offset=3), Edge.BEGIN) == 12


def placed(problem, edges, edge):
    filled = {
        operand.name: torch.randn(operand.span).to(DTYPES[operand.dtype]).as_strided(operand.shape, operand.strides)
        for operand in problem.tensors
    }
    return filled, edges.views(problem, filled, edge)


@pytest.mark.parametrize("edge", Edge)
@pytest.mark.parametrize(
    "problem",
    [
        PROBLEM,
        mm(3, 5, 7, "bf16", layout_a=Layout("col", offset=3)),
        bmm(4, 5, 6, "fp32", batch=3, layout_b=Layout(batch="zero")),
    ],
    ids=lambda problem: problem.id,
)
def test_operands_have_their_values_strides_and_alignment(problem, edge):
    memory = ProtectedMemory()
    filled, views = placed(problem, PageEdges(memory), edge)
    for operand in problem.tensors:
        view = views[operand.name]
        assert (view.shape, view.stride(), view.dtype) == (
            operand.shape,
            filled[operand.name].stride(),
            DTYPES[operand.dtype],
        )
        assert view.data_ptr() % ALIGNMENT == operand.offset * view.element_size() % ALIGNMENT
        if operand in problem.operands:
            assert torch.equal(bits(view), bits(filled[operand.name]))
        else:
            assert not torch.equal(bits(view), bits(filled[operand.name])), "an output that is not written shows"
    assert len(memory.regions) == len(problem.tensors), "each operand has a region of its own"


def test_regions_are_used_again():
    memory = ProtectedMemory()
    edges = PageEdges(memory)
    for edge in Edge:
        placed(PROBLEM, edges, edge)
    placed(mm(8, 8, 8, "fp16"), edges, Edge.END)
    assert len(memory.regions) == 3
    placed(mm(80, 80, 80, "fp32"), edges, Edge.END)
    assert len(memory.regions) == 6, "larger operands get regions of their own"


def test_operands_that_need_too_much_have_no_edge():
    with pytest.raises(NoEdge, match=r"a spans \d+ bytes: 100 bytes are mapped at most, 0 are"):
        placed(PROBLEM, PageEdges(ProtectedMemory(), limit=100), Edge.END)
    with pytest.raises(NoEdge, match="cuMemCreate gave the driver's error 2"):
        placed(PROBLEM, PageEdges(ProtectedMemory(most=2)), Edge.END)


def test_a_device_that_maps_no_pages_says_so(monkeypatch):
    with pytest.raises(NoEdge, match="of type xpu"):
        PageEdges.of(torch.device("xpu", 0))

    def unmappable(device):
        raise Unmappable("no library")

    monkeypatch.setattr(page_edges_module, "VirtualMemory", unmappable)
    page_edges_module.page_edges.cache_clear()
    assert str(page_edges_module.page_edges(torch.device("cuda", 0))) == "no library"
    page_edges_module.page_edges.cache_clear()


def test_workspaces_lie_at_edges_beside_the_operands():
    memory = ProtectedMemory()
    edges = PageEdges(memory)
    _, views = placed(PROBLEM, edges, Edge.END)
    first, second = (edges.workspace((3, 5), torch.float32, Edge.END) for _ in range(2))
    assert first.shape == (3, 5)
    assert first.is_contiguous()
    addresses = {tensor.data_ptr() // GRANULE for tensor in (*views.values(), first, second)}
    assert len(addresses) == len(memory.regions) == 5
    placed(PROBLEM, edges, Edge.BEGIN)
    edges.workspace((5, 3), torch.float32, Edge.BEGIN)
    assert len(memory.regions) == 5
    with pytest.raises(NoEdge, match=r"a workspace is of torch\.int64, which no operand is"):
        edges.workspace((3,), torch.int64, Edge.END)


# In a trial


def test_one_fill_of_a_trial_runs_at_both_edges():
    executor = EdgeExecutor()
    judged = trial(KERNEL, PLAN, executor, compare=True)
    assert judged.passed
    assert judged.at_edges == "transparent"
    *guarded, at_end, at_begin = executor.starts
    assert len(guarded) == 2 * 6
    edges = {
        name: {address for region in executor.page_edges._memory.regions for address in (region.begin,)}
        for name in at_begin
    }
    assert all(at_begin[name] in edges[name] for name in at_begin)
    ends = {region.begin + region.size for region in executor.page_edges._memory.regions}
    for name, operand in (("a_ptr", "a"), ("b_ptr", "b"), ("c_ptr", "out")):
        size = DTYPES["fp16"].itemsize
        one = PROBLEM.operand(operand)
        assert at_end[name] + one.span * size + slack(one, Edge.END) in ends


def test_a_trial_without_an_edge_says_why():
    judged = trial(KERNEL, PLAN, EdgeExecutor(memory=ProtectedMemory(most=0)), compare=True)
    assert judged.passed
    assert judged.at_edges == "none: cuMemCreate gave the driver's error 2"
    executor = EdgeExecutor()
    executor.page_edges = NoEdge("nothing is known of how to map pages of a device of type xpu")
    assert trial(KERNEL, PLAN, executor, compare=True).at_edges.startswith("none: nothing is known")
    too_large = trial(KERNEL, PLAN, EdgeExecutor(), names=("randn",))
    assert too_large.at_edges == "none: the operands are too large for fills to run together"


def test_other_bits_at_an_edge_are_seen():
    """A kernel that computes something else where its operands lie at an edge."""

    def wrong_at_edge(executor, a, out):
        if executor.runs > 2 * 6:
            one_element_off(executor, a, out)

    judged = trial(KERNEL, PLAN, EdgeExecutor(fault=wrong_at_edge), compare=True)
    (wrong,) = [verdict for verdict in judged.verdicts if not verdict.passed]
    assert wrong.check == "repeat/transparent"
    assert "operands at unmapped pages has other bits than in guarded memory" in wrong.text
