"""Products, convolutions and what surrounds them, as Inductor's templates compute them.

The scenarios are those of PyTorch's max-autotune tests. Here a choice is pinned and not the fastest taken, and counts
are exact. Numbers are judged by our own bounds or are exact integers (so ``cos`` is a negation). Without a device the
shapes are smaller, for the interpreter runs them.
"""

import tempfile
import zipfile

import pytest
import torch

from conformance.cases.generated_cases import Thin, generated
from conformance.families.conv import problem as conv
from conformance.families.gemm import problem as gemm
from conformance.inductor.compile.observation import configured, known
from conformance.inductor.compile.program import Decision, dense, program_of
from conformance.inductor.replay.exact import small_integers
from conformance.inductor.source.source_checks import extern_calls, launched
from conformance.inductor.topics import operations as checks
from conformance.inductor.topics.choices import compiled_verdict
from conformance.inductor.topics.gemm import graph_of
from conformance.inductor.tuning import child_process, tuning_processes
from conformance.judging.inductor_judge import PINNED_SETTINGS
from conformance.problems import Layout
from conformance.records import Reason, ReasonCode

GRAPHS, PRODUCTS = checks.__name__, "conformance.inductor.topics.gemm"

#: Two or more tiles of each extent for most configs, in no extent a whole number of them.
SIZES = (168, 136, 88)
#: The same for the smaller configs, and quicker where nothing but the interpreter runs them.
QUICK_SIZES = (104, 72, 56)
SEARCH_SPACES = ["DEFAULT", "EXHAUSTIVE"]
BOTH = {"max_autotune_gemm_backends": "ATEN,TRITON", "max_autotune_conv_backends": "ATEN,TRITON"}
TRITON = {"max_autotune_gemm_backends": "TRITON", "max_autotune_conv_backends": "TRITON"}
#: Where every choice is timed: the first configs of a template alone, of small blocks. Each must be compiled, and fp32
#: products of large blocks take Triton minutes.
FEW = {"test_configs.max_mm_configs": 2}
#: Blocks of fp32 products below the full tier on a device, for the same reason.
SMALL_BLOCKS = r"\bBLOCK_K=(16|32), BLOCK_M=(32|64), BLOCK_N=(32|64)\b"


def searching(space):
    """Settings for a search space. The exhaustive one is cut to its first 16 configs."""
    limit = {"test_configs.max_mm_configs": 16} if space == "EXHAUSTIVE" else {}
    return {**TRITON, "max_autotune_gemm_search_space": space, **limit}


def product(inductor, make, dtype, **fields):
    """A problem of the usual sizes."""
    rows, columns, k = QUICK_SIZES if is_quick(inductor) else SIZES
    return make(rows, columns, k, dtype, **fields)


def is_quick(inductor):
    """Returns True if few programs are to be interpreted."""
    return inductor.harness.settings.tier == "quick" and not inductor.harness.settings.has_gpu


def pinned_choice(inductor, graph, operands, target, *, settings, pick=0, **fields):
    """Judges ``graph`` exactly. One choice of each lowering is left: number ``pick`` of those that ``templates``
    leaves."""
    settings = {**PINNED_SETTINGS, **settings}
    return inductor.exact(f"{GRAPHS}:{graph}", operands, target, settings=settings, pick=pick, **fields)


# --- products ---------------------------------------------------------------------------------------------------------


@generated(space=SEARCH_SPACES)
def test_mm_plus_mm(inductor, target, space):
    """The sum of two products in one kernel with one store."""
    problem = product(inductor, gemm.mm_plus_mm, "fp16")
    for run in inductor.pinned(problem, target, inductor.template("mm_plus_mm"), settings=searching(space)):
        run.record(checks.alone(run.generated))


@generated()
@pytest.mark.proves_at_most("nothing", "what Inductor offers is judged, and no kernel is run")
def test_mm_plus_mm_dynamic_has_no_template(inductor, target):
    """With a K that may change only ATen's two products are offered, and no choice where these are not allowed.
    PyTorch's test checks that nothing is raised."""
    problem = gemm.mm_plus_mm(*SIZES, "fp16")
    name = inductor.template("mm_plus_mm")
    inductor.refused(problem, target, name, "NoValidChoicesError", dynamic=True)
    program = program_of(f"{PRODUCTS}:mm_plus_mm", problem.operands, {**PINNED_SETTINGS, **BOTH}, dynamic=True)
    generated = inductor.compile(program, target).generated
    kinds = {choice.kind for choice in generated.offered}
    inductor.recorder.verdict("offered", kinds == {"extern"}, ", ".join(choice.name for choice in generated.offered))
    inductor.record([compiled_verdict(generated)])


@generated(space=SEARCH_SPACES)
def test_baddbmm(inductor, target, space):
    """A bias of one row per matrix, which the template's kernel adds."""
    small = (2, 72, 40, 24) if is_quick(inductor) else (3, 136, 72, 40)
    batch, rows, columns, k = inductor.sized((8, 264, 192, 64), small)
    problem = gemm.baddbmm(rows, columns, k, "fp16", batch=batch, bias=gemm.Bias("b1n"), alpha=1.0, beta=1.0)
    fills = inductor.sized(("transparent", "randn"), None)
    for run in inductor.pinned(problem, target, inductor.template("bmm"), fills=fills, settings=searching(space)):
        run.filecheck("kernel", "CHECK: def triton_tem_fused_baddbmm")
        run.record(checks.alone(run.generated))


@generated()
def test_int_mm(inductor, target):
    """int8 operands: the sums are int32 from the first product to the store."""
    for run in inductor.pinned(product(inductor, gemm.int_mm, "int8"), target, inductor.template("mm")):
        run.exactly(1, "accumulator", r"ACC_TYPE : tl\.constexpr = tl\.int32$")
        run.record(checks.alone(run.generated))


#: Sizes for which the same code is called again.
FURTHER_SIZES = [(40, 264, 136), (296, 72, 24)]


@generated(operation=["mm", "addmm"])
def test_dynamic_sizes(inductor, target, operation):
    """All sizes may change: the kernel takes them as arguments, and one compilation serves three shapes."""
    make = gemm.mm if operation == "mm" else gemm.addmm
    problem = product(inductor, make, "fp16")
    also = [make(*extents, "fp16") for extents in FURTHER_SIZES]
    for run in inductor.pinned(problem, target, inductor.template("mm"), dynamic=True, also=also):
        checks.check_dynamic(run)


# --- operands that are not contiguous ---------------------------------------------------------------------------------


def template_kind(operation):
    """The kind of template that computes ``operation``. Some releases of torch make an mm of a bmm of one batch."""
    if operation != "bmm":
        return "mm_plus_mm" if operation == "mm_plus_mm" else "mm"
    from torch._inductor.fx_passes import joint_graph  # takes seconds

    return "mm" if hasattr(joint_graph, "bmm_to_mm") else "bmm"


@pytest.mark.slow(10)
@generated(operation=["mm", "addmm", "bmm", "mm_plus_mm"])
def test_non_contiguous_input(inductor, target, operation):
    """Column-major operands with a gap after each column, on a device in the full tier as large as in PyTorch's test.
    That takes the strides from its own padding; this test sets them on every machine. mm_plus_mm is in fp32."""
    products = {
        "mm": (gemm.mm, "bf16", {}),
        "addmm": (gemm.addmm, "bf16", {"alpha": 1.0, "beta": 1.0}),
        "bmm": (gemm.bmm, "bf16", {"batch": 1}),
        "mm_plus_mm": (gemm.mm_plus_mm, "fp32", {}),
    }
    make, dtype, arguments = products[operation]
    small, tier = (145, 72, 88), inductor.harness.settings.tier
    whole = (50257, 768, 2048) if tier in ("full", "exhaustive") else small
    rows, columns, k = inductor.sized(whole, small)
    # the columns of A are 47 elements further apart than it has rows: 50304
    problem = make(rows, columns, k, dtype, layout_a=Layout("col", pad=47), **arguments)
    fields = inductor.sized({"fills": ("transparent", "randn"), "choices": 1}, {})
    for run in inductor.pinned(problem, target, inductor.template(template_kind(operation)), **fields):
        checks.check_strides(run, problem)


# --- epilogues --------------------------------------------------------------------------------------------------------

EPILOGUES = {
    "relu": ("relu",),
    "bias-relu": ("bias", "relu"),
    "residual": ("residual",),
    "dropout": ("dropout",),
    "all": ("bias", "relu", "residual", "dropout"),
}


@generated(epilogue=list(EPILOGUES), dynamic=[False, True], dtype=["fp32", "fp16"])
def test_epilogue_fusion(inductor, target, epilogue, dynamic, dtype):
    """Everything behind the product is in the template's kernel: one launch, one store, one load per further operand.
    PyTorch measures whether to fuse, but always fuses if there is a single choice. A graph
    of fp16 may round the product before the fused steps or not: releases differ in that."""
    steps = EPILOGUES[epilogue]
    bias = gemm.Bias() if "bias" in steps else None
    problem = product(inductor, gemm.fused_mm, dtype, fusion=gemm.Fusion(epilogue=steps), bias=bias)
    # folding constants, torch makes the zeros of a dropout on the device
    fields = {"dynamic": dynamic, "settings": inductor.sized({}, {"joint_graph_constant_folding": False})}
    if dtype == "fp32":
        if inductor.harness.settings.tier == "default":
            fields["descriptions"] = inductor.sized(SMALL_BLOCKS, None)
        for run in inductor.pinned(problem, target, inductor.template("mm"), **fields):
            run.record(checks.epilogue_in_template(run.generated, steps))
        return
    graph, fields["arguments"] = graph_of(problem)
    fields["settings"] = {**PINNED_SETTINGS, **fields["settings"]}
    fields |= {"templates": inductor.choices_of("mm"), "pick": len(epilogue)}
    compiled = inductor.exact(graph, problem.operands, target, **fields)
    inductor.record(checks.epilogue_in_template(compiled.generated, steps))


# --- dropout of its own random numbers --------------------------------------------------------------------------------


@generated(p=[0.5, 0.1], fallback=[True, False])
def test_matmul_dropout(inductor, target, p, fallback):
    """The right elements become 0, and the others get the exact factor. The random numbers are ATen's for a seed
    (``fallback``), or those that the kernel draws in its epilogue. PyTorch's test compares a gradient with itself."""
    rows, columns, k = QUICK_SIZES if is_quick(inductor) else SIZES
    operands = [dense("a", rows, k), dense("b", k, columns)]
    settings = {**PINNED_SETTINGS, "fallback_random": fallback}
    fields = {"arguments": (("p", p),), "templates": inductor.choices_of("mm"), "pick": 0}
    compiled = inductor.compiled(program_of(f"{GRAPHS}:dropout_of_mm", operands, settings, **fields), target)
    kernels = [kernel.kind for kernel in compiled.generated.kernels]
    inductor.recorder.verdict("one kernel", kernels == ["template"], ", ".join(kernels))
    executor = inductor.executor()

    def run(tensors):
        return compiled.call(tensors, executor, observe=False)[0][0]

    seed = inductor.harness.settings.seed
    values = [small_integers(operand, seed, number) for number, operand in enumerate(operands)]
    mask = checks.eager_mask if fallback else checks.drawn_mask
    inductor.record(checks.dropout_verdicts(run, values, p, mask, executor.device))


@generated(p=[0.5, 0.1])
def test_matmul_dropout_backward(inductor, target, p):
    """Gradients of a weighted sum of what dropout left, against fp64 with the mask of the same seed. PyTorch's test
    compares a tensor with itself."""
    inductor.need_device("gradients, which are compiled on a device only", target)
    inductor.recorder.set(kernel="inductor/dropout_of_mm", target=target, executor="device")
    shapes = {"a": (128, 128), "b": (128, 128), "weight": (128, 128)}
    a, b, weight = (
        small_integers(dense(name, *shape), inductor.harness.settings.seed, number).cuda()
        for number, (name, shape) in enumerate(shapes.items())
    )
    settings = {"max_autotune_gemm": True, "fallback_random": True, **known(FEW)}
    with torch.random.fork_rng(), configured(settings):
        torch._dynamo.reset()
        compiled = torch.compile(checks.dropout_of_mm)
        leaves = [a.clone().requires_grad_(), b.clone().requires_grad_()]
        compiled(*leaves, p=p)
        torch.manual_seed(17)
        survivors = torch.ops.aten.native_dropout(torch.ones_like(a @ b), p, True)[1]
        torch.manual_seed(17)
        (compiled(*leaves, p=p) * weight).sum().backward()
    upstream = torch.where(survivors, weight.double() / (1 - p), 0.0)
    references = [upstream @ b.double().T, a.double().T @ upstream]
    for name, operand, reference in zip("ab", leaves, references, strict=True):
        assert operand.grad is not None
        error = (operand.grad.double() - reference).abs().max().item()
        # each of 128 summands, and their factor, is rounded; for p = 1/2 nothing is
        limit = 0.0 if p == 0.5 else 2.0**-24 * 130 * 16 / (1 - p) * 128
        inductor.recorder.verdict(f"numerics/grad_{name}", error <= limit, f"error {error:.3g}, {limit:.3g} allowed")


# --- convolutions -----------------------------------------------------------------------------------------------------

LAST = {"order_x": "channels-last", "order_w": "channels-last", "order_out": "channels-last"}


@generated(space=SEARCH_SPACES)
def test_conv1x1(inductor, target, space):
    """A 1x1 convolution of channels-last tensors is a product by a template, and no extern convolution is called."""
    size = inductor.sized(32, 9)
    operands = [dense("x", 4, 3, size, size, last=1), dense("w", 16, 3, 1, 1, last=1), dense("bias", 16)]
    settings = {**PINNED_SETTINGS, **searching(space)}
    compiled = inductor.exact(f"{PRODUCTS}:convolution", operands, target, settings=settings, pick=0)
    inductor.record(checks.no_extern_convolution(compiled.generated))


@generated(order=["contiguous", "channels-last"])
def test_conv1x1_dynamic_size(inductor, target, order):
    """A 1x1 convolution of three sizes by one compilation, for which H and W are symbols."""
    orders = LAST if order == "channels-last" else {}
    problem, *also = (conv.conv2d(2, 24, size, 40, 1, "fp16", **orders) for size in ((11, 13), (5, 16), (17, 3)))
    fields = {"dynamic": None, "marked": (("x", 2), ("x", 3)), "also": also, "settings": TRITON}
    for run in inductor.pinned(problem, target, inductor.template("convolution 2d"), **fields):
        checks.check_recompiles(run)
        run.filecheck("size is an argument", "CHECK: {{def triton_tem_fused_.*\\bks0\\b}}")


@generated()
def test_conv1x1_with_free_symbols(inductor, target):
    """H and W are counts of non-zero elements, which only a device knows. Two pairs of counts are used: the second
    makes them symbols. PyTorch's test checks that nothing is raised."""
    inductor.need_device("sizes that depend on data", target)
    inductor.recorder.set(kernel="inductor/conv1x1_of_counts", target=target, executor="device")
    operands = dense("x", 4, 3, 224, 224, last=1), dense("w", 64, 3, 1, 1, last=1)
    x, w = (small_integers(operand, inductor.harness.settings.seed, number) for number, operand in enumerate(operands))
    with configured({"max_autotune": True, **known(FEW)}):
        torch._dynamo.reset()
        compiled = torch.compile(checks.conv1x1_of_counts)
        for counts in ((201, 197), (203, 190)):
            rows, columns = ((torch.arange(224) < count).float() for count in counts)
            placed = x.cuda().to(memory_format=torch.channels_last)
            result = compiled(placed, w.cuda(), rows.cuda(), columns.cuda())
            expected = checks.conv1x1_of_counts(x.double(), w.double(), rows, columns)
            same = torch.equal(result.cpu().double(), expected)
            inductor.recorder.verdict(f"numerics/{counts}", same, "exact" if same else "differs from fp64")


@generated(order=["contiguous", "channels-last"], space=SEARCH_SPACES)
def test_conv2d(inductor, target, order, space):
    """The convolution of the following test by itself."""
    orders = LAST if order == "channels-last" else {}
    batch, size = inductor.sized((4, 33), (2, 9))
    problem = conv.conv2d(batch, 3, size, 64, 3, "fp32", padding=1, **orders)
    fills = inductor.sized(("transparent", "randn"), None)
    kind = inductor.template("convolution 2d")
    for run in inductor.pinned(problem, target, kind, fills=fills, settings=searching(space)):
        run.filecheck("kernel", "CHECK: def triton_tem_fused_convolution")


@generated(space=SEARCH_SPACES)
def test_conv_cat(inductor, target, space):
    """Pointwise kernels add 1 to a convolution and join both results: one kernel does it all, or in some releases one
    for each part. PyTorch's test compares the compiled module with itself."""
    batch, size = inductor.sized((4, 33), (2, 9))
    operands = [dense("x", batch, 3, size, size), dense("w", 64, 3, 3, 3)]
    fields = {"templates": inductor.choices_of("convolution 2d"), "settings": searching(space)}
    compiled = pinned_choice(inductor, "conv_cat", operands, target, **fields)
    inductor.record(checks.one_cat(compiled.generated))


@generated(space=SEARCH_SPACES)
def test_conv3d(inductor, target, space):
    """A template's 3d convolution, smaller without a device. PyTorch's test is on the CPU, which has no template."""
    size, kernel = inductor.sized(((8, 16, 32), 7), ((5, 6, 7), 3))
    problem = conv.conv3d(1, 3, size, 3, kernel, "fp32")
    kind = inductor.template("convolution 3d")
    for run in inductor.pinned(problem, target, kind, settings=searching(space)):
        run.filecheck("kernel", "CHECK: def triton_tem_fused_convolution")


# --- products among other operations ----------------------------------------------------------------------------------


@generated(size=[4, 72], pick=Thin([0, 3, 7]))
def test_cat_addmm(inductor, target, size, pick):
    """Two products with an addend, side by side in one result."""
    operands = [dense(name, size, size) for name in "abc"]
    fields = {"templates": inductor.choices_of("mm"), "pick": pick, "settings": TRITON}
    compiled = pinned_choice(inductor, "cat_addmm", operands, target, **fields)
    names = launched(*compiled.generated.modules)
    products = [name for name in names if name.startswith("triton_tem_fused_addmm")]
    inductor.recorder.verdict("launches", len(products) == 2, ", ".join(names))


def written_in_place(inductor, target, operands):
    """Returns True if the installed torch writes each part of what is joined to its place if something else reads one.
    Asked of a function without a product."""
    generated = inductor.compile(program_of(f"{GRAPHS}:cat_of_shared", operands, {}), target).generated
    inductor.record([compiled_verdict(generated)], "without a product/")
    inductor.conclude()
    return checks.written_in_place(generated)


@generated(graph=["cat_mm", "cat_mm_and_sum", "cat_mm_twice"], choice=["extern", "triton"])
def test_cat_max_autotune(inductor, target, graph, choice):
    """A product that is joined to something else, by ATen and by a template: how many kernels are launched. The number
    depends on how torch joins parts that something else reads; PyTorch's tests have another in each release, and count
    no launches of the third graph."""
    operands = [dense("x", 40, 40), dense("y", 40, 40)]
    in_place = written_in_place(inductor, target, operands)
    templates = "^mm$" if choice == "extern" else inductor.choices_of("mm")
    compiled = pinned_choice(inductor, graph, operands, target, templates=templates, settings=BOTH)
    inductor.record(checks.cat_launches(compiled.generated, graph, choice, in_place=in_place))


#: The option by which ATen's kernel is taken of several choices when everything is fused.
EXTERN_IN_THE_END = "test_configs.force_extern_kernel_in_multi_template"


@generated(size=[3, 40])
def test_mutation_rename(inductor, target, size):
    """In-place writes before and after a product by ATen that competed with templates. Everything waits for what was
    written before it, before the scheduler fuses and after, and reads that. PyTorch's test looks for a buffer's name in
    a line of the scheduler's log."""
    inductor.need_option(EXTERN_IN_THE_END)
    operands = [*(dense(name, size, size) for name in "xyz"), dense("other", size)]
    # with several choices left, the product is scheduled before one of them is taken
    names = ("benchmark_epilogue_fusion", "benchmark_template_fusion")  # the second is the later one
    measured = known(dict.fromkeys(names, target.is_device))
    settings, decision = {**BOTH, **measured, EXTERN_IN_THE_END: True}, Decision.SCHEDULE_IS_NOTED
    fields = {"pick": None, "settings": settings, "decision": decision}
    compiled = pinned_choice(inductor, "mm_after_diagonal_write", operands, target, **fields)
    inductor.record(checks.check_renames(compiled.generated.notes))
    calls = extern_calls(*compiled.generated.modules)
    inductor.recorder.verdict("one extern product", calls == ["mm"], ", ".join(calls))


@pytest.mark.slow(12)
@generated(build=["jit", "aot"])
def test_jit_fusion_matches_aot_fusion(inductor, target, build):
    """At most two operations are fused, around a number that the host reads. "jit" judges the numbers. "aot" builds a
    package and does not judge what it computes; PyTorch's test only builds."""
    settings = {**PINNED_SETTINGS, **TRITON, "max_fusion_size": 2}
    size, number = inductor.sized(256, 72), torch.tensor(3, dtype=torch.int32)
    operands = [dense("x", size, size), dense("number", dtype="int32")]
    if build == "jit":
        fields = {"templates": inductor.choices_of("mm"), "settings": settings, "values": {"number": number}}
        pinned_choice(inductor, "many_of_one_in_a_graph", operands, target, **fields)
        return
    inductor.need_device("building a package", target)
    inductor.recorder.set(kernel="inductor/many_of_one", target=target, executor="device")
    x = small_integers(operands[0], inductor.harness.settings.seed, 0)

    class Module(torch.nn.Module):
        def forward(self, x, number):
            return checks.many_of_one(x, number)

    # For one package, headers are not worth compiling ahead, and its wrapper is not worth optimising. Which vector
    # instructions the processor has is found by compiling a program for each, and the wrapper has no use for any.
    once = {
        "aot_inductor.precompile_headers": False,
        "aot_inductor.compile_wrapper_opt_level": "O0",
        "cpp.vec_isa_ok": False,
    }
    settings = {**settings, **known({**FEW, **once})}
    exported = torch.export.export(Module(), (x.cuda(), number.cuda()))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        path = f"{folder}/many_of_one.pt2"
        package = torch._inductor.aoti_compile_and_package(exported, package_path=path, inductor_configs=settings)
        with zipfile.ZipFile(package) as archive:
            code = [name for name in archive.namelist() if name.endswith((".so", ".cubin"))]
    inductor.recorder.verdict("package", bool(code), ", ".join(code) or "no compiled code is in the package")


# --- on devices -------------------------------------------------------------------------------------------------------


@pytest.mark.slow(15)
@generated()
def test_autotune_device_guard(inductor, target):
    """Operands on the second device while the first is current: tuned and run there, and the first still current. A
    worker sees one device, so the test starts a process that sees two."""
    inductor.need_device("operands on another device than the current one", target)
    devices = inductor.harness.settings.gpus.entries
    if len(devices) < 2:
        detail = f"operands on another device than the current one: two devices are needed, {len(devices)} are there"
        inductor.recorder.not_run(Reason(ReasonCode.NO_DEVICE, "second device", detail))
    inductor.recorder.set(kernel="inductor/mm", target=target, executor="device")
    x = small_integers(dense("x", 256, 256), inductor.harness.settings.seed, 0)
    with child_process.environment(**{tuning_processes.VISIBLE_DEVICES: ",".join(devices[:2])}):
        code, sent = child_process.spawned(child_process.square_on_second_device, x)
    device, current, numbers = sent or (None, None, None)
    inductor.recorder.verdict("process", code == 0, f"exit code {code}")
    inductor.recorder.verdict("device", device == "cuda:1", str(device))
    inductor.recorder.verdict("current device", current == 0, str(current))
    same = numbers is not None and torch.equal(torch.tensor(numbers, dtype=torch.float64), x.double() @ x.double())
    inductor.recorder.verdict("numerics", same, "exact" if same else "differs from fp64")


#: Norm of the error over the norm of the gradient: products of bf16 are rounded to it a few times.
GRADIENT_ERROR = 2.0**-6


@generated(padding=[False, True])
def test_linear_and_cel(inductor, target, padding):
    """A language model's last layer and its loss: loss and gradients, with operands padded before a product or not.
    1024 rows, a thirty-second of PyTorch's; judged against fp64 and not against eager."""
    inductor.need_device("gradients, which are compiled on a device only", target)
    inductor.recorder.set(kernel="inductor/linear_loss", target=target, executor="device")
    generator = torch.Generator().manual_seed(inductor.harness.settings.seed)
    rows, features, classes = 1024, 768, 50257
    x = torch.randn(rows, features, generator=generator)
    w = torch.randn(classes, features, generator=generator) / features**0.5
    bias = torch.randn(classes, generator=generator) / features**0.5
    labels = torch.randint(classes, [rows], generator=generator).cuda()
    leaves = tuple(value.cuda().bfloat16().requires_grad_() for value in (x, w, bias))
    references = tuple(value.detach().double().requires_grad_() for value in leaves)
    with configured({"force_shape_pad": padding}):
        torch._dynamo.reset()
        loss = torch.compile(checks.linear_loss)(labels, *leaves)
        loss.backward()
    reference = checks.linear_loss(labels, *references)
    reference.backward()
    error = abs(loss.item() - reference.item()) / reference.item()
    inductor.recorder.verdict("numerics/loss", error <= GRADIENT_ERROR, f"relative error {error:.3g}")
    for name, value, exact in zip(("x", "w", "bias"), leaves, references, strict=True):
        assert value.grad is not None
        assert exact.grad is not None
        error = float((value.grad.double() - exact.grad).norm() / exact.grad.norm())
        text = f"relative error {error:.3g}, {GRADIENT_ERROR:.3g} allowed"
        inductor.recorder.verdict(f"numerics/grad_{name}", error <= GRADIENT_ERROR, text)
