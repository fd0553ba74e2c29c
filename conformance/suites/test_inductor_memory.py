"""The memory that Inductor allocates for the kernels that it selects, who shares it, and how it lies.

PyTorch has no test of workspaces. Its tests of layouts see that nothing fails and that numbers are near ATen's.
"""

import importlib.util

import torch

from conformance.cases.generated_cases import Thin, generated
from conformance.inductor.compile.program import Decision, dense, program_of
from conformance.inductor.topics import memory as checks
from conformance.judging.inductor_judge import PINNED_SETTINGS
from conformance.records import Reason, ReasonCode

GRAPHS = "conformance.inductor.topics.memory"
SETTINGS = {**PINNED_SETTINGS, "triton.enable_persistent_tma_matmul": True}
SIZE = 64
#: Graph -> its products.
PRODUCTS = {"in_a_row": 3, "side_by_side": 3, "with_steps": 3}


def square():
    """Four square operands of fp16."""
    return [dense(name, SIZE, SIZE, dtype="fp16") for name in "abcd"]


def moved(seed):
    """A matrix that moves columns and changes signs, so that a product with it is as exact as its other operand."""
    generator = torch.Generator().manual_seed(seed)
    signs = torch.randint(0, 2, (SIZE, 1), generator=generator) * 2 - 1
    return (torch.eye(SIZE)[torch.randperm(SIZE, generator=generator)] * signs).half()


@generated(sampled=True, needs=("tma", "wgmma"), graph=Thin(list(PRODUCTS)), carveout=Thin([None, 27]))
def test_workspace_of_descriptors(inductor, target, graph, carveout):
    """One allocation serves all persistent products of a module in turn: 128 bytes for each of two descriptors of each
    program. No kernel gets it as anything else, and the numbers are exact."""
    template = inductor.choices_of("persistent TMA")
    fields = {"templates": template, "pick": 0, "carveout": carveout, "settings": SETTINGS}
    values = {"c": moved(1), "d": moved(2)}
    compiled = inductor.exact(f"{GRAPHS}:{graph}", square(), target, values=values, **fields)
    programs = target.limits.multiprocessors - (carveout or 0)
    module = compiled.generated.modules[-1]
    inductor.record(checks.check_workspaces(module, launches=PRODUCTS[graph], programs=programs, descriptors=2))


@generated(needs=("tma", "wgmma"))
def test_workspaces_of_streams(inductor, target):
    """Kernels on two streams may run at the same time, so they share no workspace. torch's planner of memory says that
    it never reuses an allocation on another stream."""
    if importlib.util.find_spec("torch._inductor.stream_constants") is None:
        detail = f"torch {torch.__version__} has no streams in what it generates"
        inductor.recorder.not_applicable(Reason(ReasonCode.CAPABILITY, "streams", detail))
    if target.is_device:  # the marks of the graph name no streams that exist
        detail = "the wrapper is read and not run: without a device it is generated"
        inductor.recorder.not_run(Reason(ReasonCode.CAPABILITY, "streams", detail))
    fields = {"templates": inductor.choices_of("persistent TMA"), "pick": 0}
    compiled = inductor.compiled(program_of(f"{GRAPHS}:on_two_streams", square(), SETTINGS, **fields), target)
    inductor.record(checks.check_streams(compiled.generated.modules[-1], ["stream1", "stream2"]))


# --- layouts of what is computed for a product ------------------------------------------------------------------------

ORDERS = {"row": (None, (64, 1)), "col": (0, (1, 40))}


@generated(
    sampled=True,
    vendors=("nvidia",),
    order=Thin(list(ORDERS)),
    library=Thin([True, False]),
    epilogue=Thin([True, False]),
)
def test_layout_of_computed_operand(inductor, target, order, library, epilogue):
    """A template is written for an operand by rows whose layout is not fixed yet. Where a library could serve, it is
    fixed when the scheduler orders its loops: by columns if what it is computed of lies so. The template would then
    read it wrongly, and the library's kernel is taken although it is slower. Without a library it is fixed for the
    template at once."""
    last, strides = ORDERS[order]
    served = library and order == "col"
    operands = [
        dense("a", 40, 64, dtype="fp16", last=last),
        dense("b", 64, 48, dtype="fp16"),
        dense("c", 40, 64, dtype="fp16", last=last),
    ]
    backends = "ATEN,TRITON" if library else "TRITON"
    settings = {**PINNED_SETTINGS, "max_autotune_gemm_backends": backends, "prologue_fusion": False}
    graph = f"{GRAPHS}:sum_mm{'_relu' if epilogue else ''}"
    fields = {"settings": settings, "decision": Decision.LAYOUTS_ARE_WATCHED}
    compiled = inductor.exact(graph, operands, target, **fields)
    expected = strides if served else ORDERS["row"][1]
    generated = compiled.generated
    inductor.record(checks.check_layout(generated, strides=expected, library=served, epilogue=epilogue))
