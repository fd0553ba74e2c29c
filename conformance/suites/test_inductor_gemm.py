"""The products that Inductor writes with tensor descriptors: what is generated, compiled and computed, choice by
choice.

The scenarios are those of PyTorch's max-autotune tests. Here the operands have their strides when they reach the
compiled function (there, ``repeat`` inside it packs them again). Every choice is pinned and not only the fastest, and
counts are exact. Stores that were not asked for are forbidden, and numbers are judged by our own bounds.
"""

from conformance.cases.generated_cases import Thin, generated
from conformance.codegen_checks import MFMA, POINTER_STORE, TCGEN05, TMA_LOAD, TMA_STORE, WARP_SPECIALIZED, WMMA
from conformance.families.gemm.problem import addmm, mm, scaled_mm
from conformance.inductor.compile.observation import known
from conformance.inductor.source import spellings
from conformance.inductor.topics.gemm import check_descriptors, check_host_descriptors, graph_of
from conformance.inductor.topics.operations import check_recompiles
from conformance.inductor.topics.selection import check_launches
from conformance.judging.inductor_judge import PINNED_SETTINGS
from conformance.kernels import carveout
from conformance.problems import Layout
from conformance.records import Reason, ReasonCode

ORDERS = [("row", "row"), ("row", "col"), ("col", "row"), ("col", "col")]
TMA = {"triton.enable_persistent_tma_matmul": True}

#: alpha and beta are 1: others make Inductor's template refuse a descriptor store.
PLAIN = {"alpha": 1.0, "beta": 1.0}


def settings(store):
    return {**TMA, "triton.enable_template_tma_store": store}


def operands(order, pad=0):
    """Layouts of A and B; ``pad`` elements after each row or column."""
    first, second = order
    return {"layout_a": Layout(first, pad=pad), "layout_b": Layout(second, pad=pad)}


def persistent(inductor, target):
    """The name of the persistent template that Inductor offers for ``target``: on Blackwell the warp-specialised one
    takes the place of the other."""
    return inductor.template("Blackwell" if target.capability("tcgen05").available else "persistent TMA")


def check_persistent(inductor, target, template, problem, name, *, store, requires=(), **fields):
    """Judges choices of the persistent ``template`` for ``problem``. The kernel's name must contain ``name``, its
    code must have the features ``requires``."""
    for run in inductor.pinned(problem, target, template, persistent=True, settings=settings(store), **fields):
        run.filecheck("kernel", f"CHECK: def triton_tem_fused_{name}")
        check_descriptors(run, template, store=store)
        if requires:
            run.code(requires=requires)


@generated(needs=("tma", "wgmma"), order=ORDERS, dynamic=[False, True], store=[False, True])
def test_mm_persistent_tma(inductor, target, order, dynamic, store):
    """A persistent product of every order, with each kind of store. Inductor fixes dynamic sizes for a descriptor."""
    template = inductor.template("persistent TMA")
    problem = mm(168, 248, 88, "fp16", **operands(order))
    check_persistent(inductor, target, template, problem, "mm", dynamic=dynamic, store=store)


@generated(needs=("tma",), order=ORDERS, dynamic=[False, True])
def test_mm_persistent_tma_padded(inductor, target, order, dynamic):
    """Rows, or columns, that are eight elements longer than the operand. PyTorch's test gives B the stride of A, which
    overlaps in one case, and packs the operands again inside the function."""
    template = persistent(inductor, target)
    problem = mm(168, 248, 88, "fp16", **operands(order, pad=8))
    check_persistent(inductor, target, template, problem, "mm", dynamic=dynamic, store=False)


@generated(needs=("tma", "wgmma"), order=ORDERS, dynamic=[False, True], store=[False, True])
def test_addmm_persistent_tma(inductor, target, order, dynamic, store):
    """The same with a bias for each column."""
    template = inductor.template("persistent TMA")
    problem = addmm(168, 248, 88, "fp16", **operands(order), **PLAIN)
    check_persistent(inductor, target, template, problem, "addmm", dynamic=dynamic, store=store)


@generated(sampled=True, vendors=("amd",), operation=["mm", "addmm"], order=ORDERS, dynamic=[False, True])
def test_persistent_by_pointers(inductor, target, operation, order, dynamic):
    """Inductor offers other choices for AMD where it would offer a persistent TMA product for NVIDIA. PyTorch has no
    test of it."""
    template = inductor.template("persistent pointers")
    make, fields = (mm, {}) if operation == "mm" else (addmm, PLAIN)
    problem = make(168, 248, 88, "fp16", **operands(order), **fields)
    unit = MFMA if target.capability("mfma").available else WMMA
    units = target.limits.multiprocessors
    for run in inductor.pinned(problem, target, template, persistent=True, dynamic=dynamic, settings=TMA):
        run.filecheck("kernel", f"CHECK: def triton_tem_fused_{operation}")
        run.exactly(1, "NUM_SMS", rf"NUM_SMS : tl\.constexpr = {units}\b")
        run.exactly(0, "descriptors", r"\w*desc\w*\.(?:load|store)\(|make_tensor_descriptor\(")
        run.code(requires=[unit])


@generated(sampled=True, vendors=("amd",), needs=("tdm",), operation=["mm", "addmm"], order=ORDERS)
def test_persistent_tdm(inductor, target, operation, order):
    """The persistent product by descriptors for AMD's tensor data mover. torch takes only operands of which each row,
    or column, begins at a multiple of 128 bytes."""
    template = inductor.template("persistent TDM")
    make, fields = (mm, {}) if operation == "mm" else (addmm, PLAIN)
    problem = make(192, 256, 128, "fp16", **operands(order), **fields)
    for run in inductor.pinned(problem, target, template, persistent=True, settings=TMA):
        run.filecheck("kernel", f"CHECK: def triton_tem_fused_{operation}")
        check_descriptors(run, template, store=False)
        run.code(requires=[WMMA])


def check_blackwell(inductor, target, problem, name, **fields):
    """Judges choices of the warp-specialised template for ``problem``, whose kernel has ``name`` in its own."""
    fields["requires"] = [TCGEN05, WARP_SPECIALIZED]
    check_persistent(inductor, target, inductor.template("Blackwell"), problem, name, **fields)


def subtiled(subtile):
    """The expression for descriptions of choices that write the output in ``subtile`` parts."""
    return rf"\bEPILOGUE_SUBTILE={subtile}\b"


@generated(needs=("tcgen05", "tma"), order=ORDERS, dynamic=[False, True], store=[False, True], subtile=[1, 2, 4])
def test_mm_blackwell(inductor, target, order, dynamic, store, subtile):
    """The warp-specialised product; PyTorch's test knows subtiles of 1 and 2 and counts at least, not exactly."""
    problem = mm(256, 128, 384, "fp16", **operands(order))
    check_blackwell(inductor, target, problem, "mm", dynamic=dynamic, store=store, descriptions=subtiled(subtile))


@generated(needs=("tcgen05", "tma"), order=ORDERS, dynamic=[False, True], store=[False, True], subtile=[1, 2, 4])
def test_addmm_blackwell(inductor, target, order, dynamic, store, subtile):
    """The same with a bias for each column."""
    problem = addmm(256, 128, 384, "fp16", **operands(order), **PLAIN)
    check_blackwell(inductor, target, problem, "addmm", dynamic=dynamic, store=store, descriptions=subtiled(subtile))


HOST = "triton.enable_host_side_tma"


@generated(sampled=True, needs=("tcgen05", "tma"), operation=Thin(["mm", "addmm"]), order=Thin(ORDERS))
def test_blackwell_host_descriptors(inductor, target, operation, order):
    """The same where the host makes the descriptors of A and B and passes them to the kernel, which makes none."""
    inductor.need_option(HOST)
    template = inductor.template("Blackwell")
    if "make_tensor_descriptor" in spellings.text_of(template):  # up to torch 2.14, whatever the option says
        detail = f"the template {template} of the installed torch makes its descriptors itself"
        inductor.recorder.not_applicable(Reason(ReasonCode.CAPABILITY, HOST, detail))
    make, fields = (mm, {}) if operation == "mm" else (addmm, PLAIN)
    problem = make(256, 128, 384, "fp16", **operands(order), **fields)
    for run in inductor.pinned(problem, target, template, persistent=True, settings={**TMA, HOST: True}):
        check_host_descriptors(run, template)
        run.code(requires=[TMA_LOAD, TCGEN05, WARP_SPECIALIZED])


@generated(needs=("tcgen05", "tma"), scaling=["tensor", "row"], dynamic=[False, True], store=[False, True])
def test_scaled_mm_blackwell(inductor, target, scaling, dynamic, store):
    """fp8 products with scales per tensor and per row. PyTorch's test multiplies by the scale that it divided by, so
    that most results overflow; here every scale is exact and no result does."""
    problem = scaled_mm(256, 128, 384, "e4m3", scaling=scaling, fast_accum=True)
    check_blackwell(inductor, target, problem, "_scaled_mm", dynamic=dynamic, store=store)


@generated(needs=("tma", "wgmma"), scaling=["tensor", "row"], fast=[False, True], dynamic=[False, True])
def test_scaled_mm_persistent_tma(inductor, target, scaling, fast, dynamic):
    """The same on Hopper, with sums that are rounded between blocks of k and without."""
    template = inductor.template("scaled persistent TMA")
    problem = scaled_mm(256, 128, 384, "e4m3", scaling=scaling, fast_accum=fast)
    for run in inductor.pinned(problem, target, template, persistent=True, dynamic=dynamic, settings=TMA):
        run.filecheck("kernel", "CHECK: def triton_tem_fused__scaled_mm")
        run.exactly(2, "descriptors", spellings.dialect(template).created)
        run.exactly(2, "descriptor loads", spellings.dialect(template).load)
        run.code(requires=[TMA_LOAD, POINTER_STORE], forbids=[TMA_STORE])


FALLBACK = "autotune_fallback_to_aten"


@generated(needs=("tma",), operation=["mm", "addmm"], dynamic=[False, True], to_aten=[False, True])
def test_misaligned_operands_have_no_choice(inductor, target, operation, dynamic, to_aten):
    """Rows of A of 22 bytes, or rows of B of 62: no descriptor can be made, and there is no choice. Inductor raises an
    error, or takes ATen's product if that was asked for. The reason is proven: with rows of a multiple of 16 bytes, and
    nothing else changed, there is a choice."""
    template = persistent(inductor, target)
    make, fields = (mm, {}) if operation == "mm" else (addmm, PLAIN)
    settings = {**TMA, **known({FALLBACK: to_aten})}
    if to_aten:
        inductor.need_option(FALLBACK)
    for N, K in ((31, 11), (32, 11), (31, 16)):
        problem = make(21, N, K, "fp16", **fields)
        if to_aten:
            graph, arguments = graph_of(problem)
            program = {"settings": {**PINNED_SETTINGS, **settings}, "arguments": arguments, "dynamic": dynamic}
            compiled = inductor.exact(graph, problem.operands, target, templates=spellings.only(template), **program)
            inductor.record(check_launches(compiled.generated, templates=0, extern=[operation]))
        else:
            inductor.refused(problem, target, template, "NoValidChoicesError", dynamic=dynamic, settings=settings)
    aligned = make(21, 32, 16, "fp16", **fields)
    for run in inductor.pinned(aligned, target, template, persistent=True, dynamic=dynamic, settings=TMA, choices=1):
        check_descriptors(run, template, store=False)


@generated(needs=("tma",), dynamic=[False, True])
def test_misaligned_output_has_no_descriptor_store(inductor, target, dynamic):
    """Rows of 62 bytes in the output alone: there is no choice with a descriptor store. The reason is proven: without
    the store, and with rows of 64 bytes, there is one. The comment in PyTorch's test speaks of the operands' strides;
    those are aligned in all three."""
    template = persistent(inductor, target)
    fields = {"layout_a": Layout("row"), "layout_b": Layout("col")}
    fixed = {"dynamic": dynamic, "out": True}
    packed, aligned = mm(21, 31, 32, "fp16", **fields), mm(21, 32, 32, "fp16", **fields)
    inductor.refused(packed, target, template, "NoValidChoicesError", settings=settings(True), **fixed)
    for problem, store in ((packed, False), (aligned, True)):
        runs = inductor.pinned(problem, target, template, persistent=True, settings=settings(store), choices=1, **fixed)
        for run in runs:
            check_descriptors(run, template, store=store)


@generated(needs=("tma",), operation=["mm", "addmm"])
def test_dynamic_rows(inductor, target, operation):
    """The rows of A are marked dynamic: three numbers of them are served by one compilation. PyTorch's test calls the
    function once."""
    template = persistent(inductor, target)
    make, fields = (mm, {}) if operation == "mm" else (addmm, PLAIN)
    problem, *also = (make(rows, 248, 88, "fp16", **fields) for rows in (168, 40, 328))
    calls = {"dynamic": None, "marked": (("a", 0),), "also": also}
    for run in inductor.pinned(problem, target, template, persistent=True, settings=TMA, **calls):
        check_recompiles(run)
        check_descriptors(run, template, store=False)


@generated(needs=("tma",), operation=["mm", "scaled_mm"], reserve=[None, 0, 27])
def test_sm_carveout(inductor, target, operation, reserve):
    """The kernel is told, and launched on, the SMs that torch's carveout leaves; the carveout is then what it was. On a
    device the product is PyTorch's, elsewhere it has as few k as there can be. PyTorch's test leaves the carveout set,
    and checks no numbers."""
    m, n, k = inductor.sized((2560, 2560, 2560), (1536, 1536, 64))
    if operation == "mm":
        template = persistent(inductor, target)
        problem = mm(m, n, k, "bf16", layout_b=Layout("col"))
    else:
        blackwell = target.capability("tcgen05").available
        template = inductor.template("Blackwell" if blackwell else "scaled persistent TMA")
        problem = scaled_mm(m, n, k, "e4m3", scaling="tensor")
    left = (target.limits.multiprocessors or 0) - (reserve or 0)
    before = carveout.current()
    fields = {"persistent": True, "carveout": reserve, "settings": TMA, "fills": ("transparent",)}
    for run in inductor.pinned(problem, target, template, **fields):
        run.exactly(1, "NUM_SMS", rf"NUM_SMS : tl\.constexpr = {left}\b")
    inductor.recorder.verdict("restored", carveout.current() == before, f"carveout {carveout.current()}")
