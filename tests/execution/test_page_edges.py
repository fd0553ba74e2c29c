"""Operands at the edges of mapped memory: where they lie, which memory they take, and what a trial makes of them."""

import itertools
from types import SimpleNamespace

import pytest
import torch

from conformance.execution.device import page_edges as page_edges_module
from conformance.execution.device.page_edges import ALIGNMENT, Edge, NoEdge, PageEdges, Unmappable, slack, start
from conformance.execution.trial.trial import fills_at_edges, trial
from conformance.families.gemm.problem import bmm, mm
from conformance.kernels.launch import workspace
from conformance.numerics.rounding import bits
from conformance.problems import DTYPES, Layout, Operand
from tests.execution.protected_memory import GRANULE, EdgeExecutor, ProtectedMemory
from tests.execution.test_trial import KERNEL, PLAN, PROBLEM

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
        assert torch.equal(bits(view), bits(filled[operand.name]))
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


def test_the_second_run_of_two_fills_is_at_the_edges():
    executor = EdgeExecutor()
    judged = trial(KERNEL, PLAN, executor, compare=True)
    assert judged.passed
    assert judged.at_edges == "transparent, wide-A"
    assert len(executor.starts) == 2 * 6, "no launch is added"
    regions = executor.page_edges._memory.regions
    begins, ends = {region.begin for region in regions}, {region.begin + region.size for region in regions}
    for argument, name in (("a_ptr", "a"), ("b_ptr", "b"), ("c_ptr", "out")):
        operand = PROBLEM.operand(name)
        starts = [started[argument] for started in executor.starts]
        assert [number for number, address in enumerate(starts) if address in begins] == [3]
        lasts = [address + 2 * operand.span + slack(operand, Edge.END) for address in starts]
        assert [number for number, address in enumerate(lasts) if address in ends] == [1]


def test_a_fill_alone_runs_at_the_end():
    executor = EdgeExecutor()
    judged = trial(KERNEL, PLAN, executor, names=("randn",), compare=True)
    assert (judged.passed, judged.at_edges) == (True, "randn")
    assert fills_at_edges([SimpleNamespace(method="bounded")]) == {0: Edge.END}
    methods = [SimpleNamespace(method=method) for method in ("bounded", "bounded", "exact")]
    assert fills_at_edges(methods) == {2: Edge.END, 0: Edge.BEGIN}


def test_a_trial_without_an_edge_says_why():
    judged = trial(KERNEL, PLAN, EdgeExecutor(memory=ProtectedMemory(most=0)), compare=True)
    assert judged.passed
    assert judged.at_edges == "none: cuMemCreate gave the driver's error 2"
    executor = EdgeExecutor()
    executor.page_edges = NoEdge("nothing is known of how to map pages of a device of type xpu")
    assert trial(KERNEL, PLAN, executor, compare=True).at_edges.startswith("none: nothing is known")
    too_large = trial(KERNEL, PLAN, EdgeExecutor(), names=("randn",))
    assert too_large.at_edges == "none: the operands are too large for fills to run together"


class WithWorkspace:
    """The kernel, which also takes a workspace of this dtype."""

    contract = staticmethod(KERNEL.contract)

    def __init__(self, dtype):
        self.dtype, self.workspaces = dtype, []

    def launch(self, plan, tensors):
        self.workspaces.append(workspace((40,), self.dtype, tensors["a"]))
        return KERNEL.launch(plan, tensors)


def test_workspaces_lie_at_the_edges_too_or_the_trial_says_why():
    kernel, executor = WithWorkspace(torch.float32), EdgeExecutor()
    assert trial(kernel, PLAN, executor, compare=True).at_edges == "transparent, wide-A"
    regions = executor.page_edges._memory.regions
    at = [
        number
        for number, one in enumerate(kernel.workspaces)
        if any(region.begin <= one.data_ptr() < region.begin + region.size for region in regions)
    ]
    assert at == [1, 3]
    assert all(one.isnan().all() for one in kernel.workspaces)
    judged = trial(WithWorkspace(torch.int64), PLAN, EdgeExecutor(), compare=True)
    assert (judged.passed, judged.at_edges) == (
        True,
        "none of a workspace: a workspace is of torch.int64, which no operand is",
    )


@pytest.mark.parametrize("runs", [2, 4], ids=["end", "begin"])
def test_wrong_numbers_at_an_edge_are_seen(runs):
    """A kernel that computes something else where its operands lie at an edge."""

    def wrong_at_edge(executor, a, out):
        if executor.runs == runs:
            out.zero_()

    judged = trial(KERNEL, PLAN, EdgeExecutor(fault=wrong_at_edge), compare=True)
    fill = {2: "transparent", 4: "wide-A"}[runs]
    assert {verdict.check for verdict in judged.verdicts if not verdict.passed} == {
        f"numerics/{fill}",
        f"repeat/{fill}",
    }
