"""Generated modules run in the interpreter: right, every launch seen, faults shown, nothing left behind."""

import textwrap

import pytest

from tests.inductor.planted_code import in_kept_process

#: A module as Inductor shapes them, with a template in two parts, a workspace, a pointwise kernel and an extern kernel.
#: It computes p = relu(x @ w) for x of (rows, 64) and w of (64, 32), and p @ v for v of (32, 8).
PRELUDE = """
import linecache

import torch

from conformance.execution.interpreter.executor import InterpreterExecutor
import conformance.inductor.replay.replay as module
from conformance.inductor.replay.replay import ReplayUnsupported, replay

KERNEL_IMPORTS = '''
import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
from torch._inductor.runtime.hints import DeviceProperties
triton_helpers.set_driver_to_gpu()

H100 = DeviceProperties(type='cuda', index=0, multi_processor_count=132, cc=90, major=9, warp_size=32,
    regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048)
'''

WRAPPER_IMPORTS = '''
import torch
from torch import device
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.select_algorithm import extern_kernels
from torch._C import _cuda_getCurrentRawStream as get_raw_stream
assert_size_stride = torch._C._dynamo.guards.assert_size_stride
empty_strided_cuda = torch._C._dynamo.guards._empty_strided_cuda
async_compile = AsyncCompile()
'''

PRODUCT = KERNEL_IMPORTS + '''
@triton_heuristics.template(
    num_stages=2, num_warps=4,
    triton_meta={'signature': {'x': '*fp16', 'w': '*fp16', 'partial': '*fp32', 'ks0': 'i32'}, 'device': H100,
        'constants': {}},
    inductor_meta={'kernel_name': 'product', 'grid_type': 'FixedGrid', 'fixed_grid': ['_grid_0', '_grid_1', '_grid_2'],
        'extra_launcher_args': ['_grid_0', '_grid_1', '_grid_2']},
)
@triton.jit
def product(x, w, partial, ks0):
    BLOCK : tl.constexpr = 16
    part = tl.program_id(1)
    rm = (tl.program_id(0) // 2) * BLOCK + tl.arange(0, BLOCK)
    rn = (tl.program_id(0) % 2) * BLOCK + tl.arange(0, BLOCK)
    valid = (rm[:, None] < ks0) & (part < 2)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for rk in tl.range(0, 32, BLOCK, flatten=True, warp_specialize=False):
        at = part * 32 + rk.to(tl.int32) + tl.arange(0, BLOCK)
        a = tl.load(x + rm[:, None] * 64 + at[None, :], mask=valid, other=0.0)
        b = tl.load(w + at[:, None] * 32 + rn[None, :])
        acc += tl.dot(a, b)
    tl.store(partial + part * ks0 * 32 + rm[:, None] * 32 + rn[None, :], acc, mask=valid)
'''

POSITIVE = KERNEL_IMPORTS + '''
@triton_heuristics.pointwise(
    size_hints={'x': 2048}, filename=__file__,
    triton_meta={'signature': {'partial': '*fp32', 'out': '*fp16', 'xnumel': 'i32', 'XBLOCK': 'constexpr'},
        'device': H100, 'constants': {}},
    inductor_meta={'kernel_name': 'positive', 'grid_type': 'Grid1D', 'autotune_hints': set()},
)
@triton.jit
def positive(partial, out, xnumel, XBLOCK : tl.constexpr):
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    both = tl.load(partial + xindex, xmask) + tl.load(partial + xindex + xnumel, xmask)
    tl.store(out + xindex, triton_helpers.maximum(0, both), xmask)
'''

def kernel(name, source):
    return f"{name} = async_compile.triton({name!r}, {source!r}, device_str='cuda')\\n"

MODULE = WRAPPER_IMPORTS + kernel("product", PRODUCT) + kernel("positive", POSITIVE) + '''
async_compile.wait(globals())
del async_compile

def call(args):
    rows_in, x, w, v = args
    args.clear()
    rows = rows_in
    assert_size_stride(x, (rows, 64), (64, 1))
    assert_size_stride(w, (64, 32), (32, 1))
    with torch.cuda._DeviceGuard(0):
        torch.cuda.set_device(0)
        stream0 = get_raw_stream(0)
        workspace = empty_strided_cuda((2, rows, 32), (rows * 32, 32, 1), torch.float32)
        product.run(x, w, workspace, rows, ((15 + rows) // 16) * 2, 2, 1, stream=stream0)
        p = empty_strided_cuda((rows, 32), (32, 1), torch.float16)
        positive.run(workspace, p, 32 * rows, stream=stream0)
        q = empty_strided_cuda((rows, 8), (8, 1), torch.float16)
        extern_kernels.mm(p, v, out=q)
    return (p, q)
'''

def integers(*shape, dtype=torch.float16, seed=0):
    return torch.randint(-2, 3, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)

x, w, v = integers(40, 64), integers(64, 32, seed=1), integers(32, 8, seed=2)
relu = (x.double() @ w.double()).relu()
executor = InterpreterExecutor()

def changed(old, new):
    assert MODULE.count(old) == 1, MODULE.count(old)
    return MODULE.replace(old, new)

def agree(output, wanted):
    return torch.equal(output.double(), wanted)

def error(kind, function, *arguments):
    try:
        function(*arguments)
    except kind as raised:
        return raised
    raise AssertionError("nothing was raised")

def reason(source, *arguments):
    return error(ReplayUnsupported, replay, source, arguments, executor).reason.subject
"""


def replayed(body: str) -> None:
    """Runs ``body`` after the prelude."""
    in_kept_process(PRELUDE + textwrap.dedent(body))


def test_a_module_replays_exactly_and_every_launch_is_recorded() -> None:
    replayed("""
        (positive, product), launches = replay(MODULE, [40, x, w, v], executor)
        assert agree(positive, relu) and agree(product, relu @ v.double())
        assert launches[0] == ("product", (6, 2, 1)), launches
        assert [name for name, _ in launches] == ["product", "positive"]
        assert launches[1][1][0] >= 1 and launches[1][1][1:] == (1, 1)

        (positive, _), launches = replay(MODULE, [17, x[:17], w, v], executor)
        assert agree(positive, relu[:17]) and launches[0] == ("product", (4, 2, 1))
    """)


def test_faults_of_a_module_show() -> None:
    replayed("""
        source = changed("rm[:, None] * 32 + rn[None, :], acc, mask=valid)", "rm[:, None] * 32 + rn[None, :], acc, "
            "mask=valid & (rm[:, None] != 7))")
        output = replay(source, [40, x, w, v], executor)[0][0]
        # the pointwise kernel takes the larger of zero and NaN, which is NaN in Inductor's sense
        assert output[7].isnan().all() and agree(output[8:], relu[8:]), output

        source = changed("((15 + rows) // 16) * 2, 2, 1", "((15 + rows) // 16) * 2 - 1, 2, 1")
        (output, _), launches = replay(source, [40, x, w, v], executor)
        assert launches[0] == ("product", (5, 2, 1))
        assert output[32:, 16:].isnan().all() and agree(output[:32], relu[:32])

        source = changed("at[:, None] * 32 + rn[None, :]", "rn[None, :] * 64 + at[:, None]")
        output = replay(source, [40, x, w, v], executor)[0][0]
        assert not output.isnan().any() and not agree(output, relu)

        run = module._Replay(executor)
        unwritten = [run.allocate((3, 2), (2, 1), dtype) for dtype in (
            torch.float64, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.int32, torch.int8, torch.bool)]
        assert all(memory.float().isnan().all() for memory in unwritten[:4])
        assert unwritten[4].unique().item() < -(2**30) and unwritten[5].unique().item() == -128 and unwritten[6].all()
    """)


def test_what_is_written_around_an_allocation_shows() -> None:
    replayed("""
        source = changed("positive.run(workspace, p, 32 * rows,", "positive.run(workspace, p, 32 * rows + 64,")
        text = str(error(AssertionError, replay, source, [40, x, w, v], executor))
        assert "were written behind allocation 1" in text, text

        run = module._Replay(executor)
        inner = run.allocate((4, 8), (8, 1), torch.float16)
        inner.fill_(1)
        run.check_surroundings()
        inner.as_strided((1,), (1,), inner.storage_offset() - 1).fill_(1)
        text = str(error(AssertionError, run.check_surroundings))
        assert "2 bytes were written before allocation 0" in text, text
    """)


def test_what_cannot_be_replayed_has_a_reason() -> None:
    replayed("""
        tensors = [40, x, w, v]
        assert reason(changed("extern_kernels.mm(", "extern_kernels.other("), *tensors) == "extern_kernels.other"
        assert reason(changed("set_device(0)", "graph_pool_handle()"), *tensors) == "torch.cuda.graph_pool_handle"
        assert reason("from torch._inductor.hooks import not_there", 1) == "module"
        assert reason("import torch\\nguard = torch._C._dynamo.guards.not_there", 1) == "module"
        assert reason("x = 1", 1) == "call"
        assert reason(changed("stream0 = ", "stream0 = _tensor_constant0 and "), *tensors) == "_tensor_constant0"
        assert reason(WRAPPER_IMPORTS + "async_compile.cpp_pybinding([], '')", 1) == "async_compile.cpp_pybinding"
        assert reason(WRAPPER_IMPORTS + kernel("none", KERNEL_IMPORTS + "none = 1"), 1) == "none"
        cooperative = POSITIVE.replace("triton_heuristics.pointwise", "triton_heuristics.cooperative_reduction")
        assert reason(WRAPPER_IMPORTS + kernel("positive", cooperative), 1) == "cooperative_reduction"
        assert reason(changed("triton_helpers.maximum(0, both)", "libdevice.j0(both)"), *tensors) == "libdevice.j0"
        asm = "tl.inline_asm_elementwise('', '=r,r', [both], dtype=tl.float32, is_pure=True, pack=1)"
        assert reason(changed("triton_helpers.maximum(0, both)", asm), *tensors) == "positive"
    """)


def test_bad_input_is_an_error() -> None:
    replayed("""
        def message(kind, source, *arguments):
            return str(error(kind, replay, source, arguments, executor))

        assert "cpu" in message(ValueError, MODULE, 40, x.to("meta"), w, v).lower()
        assert "'a'" in message(ValueError, MODULE, "a")
        assert "64" in message(AssertionError, MODULE, 40, x[:, :32], w, v)
        fewer = changed("* 2, 2, 1, stream", "* 2, stream")
        assert "takes x, w, partial, ks0, _grid_0" in message(TypeError, fewer, 40, x, w, v)
        wrong = changed("both = tl.load", "both = missing_name + tl.load")
        assert "missing_name" in message(executor._interpreter.InterpreterError, wrong, 40, x, w, v)
    """)


def test_nothing_global_stays_changed() -> None:
    replayed("""
        import sys
        import torch._inductor.runtime.triton_helpers as helpers
        import torch._inductor.runtime.triton_heuristics as heuristics
        from triton.runtime.interpreter import InterpreterBuilder

        def state():
            return (dict(InterpreterBuilder.__dict__), helpers.libdevice, heuristics.cached_autotune, torch.cuda,
                torch.device, helpers.set_driver_to_gpu, [name for name in linecache.cache if "replay" in name])

        linecache.clearcache()  # the lines of what other tests printed
        replay(MODULE, [40, x, w, v], executor)
        before = state()
        replay(MODULE, [40, x, w, v], executor)
        for fault in (changed("(rows, 64)", "(rows, 63)"), changed("both = tl.load", "both = none + tl.load")):
            error((AssertionError, executor._interpreter.InterpreterError), replay, fault, [40, x, w, v], executor)
        assert state() == before and before[-1] == []
    """)


def test_host_descriptors_replay() -> None:
    pytest.importorskip("triton.tools.tensor_descriptor", reason="this Triton has no host tensor descriptors")
    replayed("""
        doubled = KERNEL_IMPORTS + '''
        @triton_heuristics.template(
            num_stages=2, num_warps=4, triton_meta={'signature': {}, 'device': H100, 'constants': {}},
            inductor_meta={'kernel_name': 'doubled', 'grid_type': 'FixedGrid', 'fixed_grid': ['_grid_0', '1', '1'],
                'extra_launcher_args': ['_grid_0']},
        )
        @triton.jit
        def doubled(source, target):
            for row in range(tl.program_id(0) * 16, 40, 32):
                target.store([row.to(tl.int32), 0], source.load([row.to(tl.int32), 0]) * 2)
        '''
        source = WRAPPER_IMPORTS + kernel("doubled", doubled) + '''
        from triton.tools.tensor_descriptor import TensorDescriptor
        def call(args):
            x, = args
            out = empty_strided_cuda((40, 64), (64, 1), torch.float16)
            source, target = (TensorDescriptor.from_tensor(tensor, [16, 64]) for tensor in (x, out))
            doubled.run(source, target, 2, stream=0)
            return (out,)
        '''
        (output,), launches = replay(source, [x], executor)
        assert agree(output, x.double() * 2) and launches == (("doubled", (2, 1, 1)),)
    """)


def test_stand_ins_compute_what_they_stand_for() -> None:
    replayed("""
        extern = module._ExternKernels()
        a, b, bias = integers(5, 64), integers(64, 8, seed=3), integers(8, seed=4)
        wanted = a.double() @ b.double()
        out = torch.empty(5, 8, dtype=torch.float16)
        assert extern.addmm(bias, a, b, alpha=2, beta=3, out=out) is out and agree(out, 3 * bias.double() + 2 * wanted)
        assert agree(extern.addmm(bias * torch.nan, a, b, beta=0), wanted)  # beta 0: the bias is not read
        pairs = a.expand(3, 5, 64), b.expand(3, 64, 8)
        assert agree(extern.bmm(*pairs), wanted.expand(3, 5, 8))
        wide = extern.bmm_dtype(*pairs, out_dtype=torch.float32)
        assert wide.dtype == torch.float32 and agree(wide, wanted.expand(3, 5, 8))
        assert agree(extern._int_mm(a.to(torch.int8), b.to(torch.int8)), wanted)
        fp8 = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn)
        rows, columns = torch.full((5, 1), 2.0), torch.full((1, 8), 0.5)
        for scales in ((rows, columns), (torch.tensor(2.0), torch.tensor(0.5))):
            assert agree(extern._scaled_mm(*fp8, *scales, bias, out_dtype=torch.bfloat16), wanted + bias.double())
        error(ReplayUnsupported, extern._scaled_mm, *fp8, torch.ones(5, 2), columns)
        image, filters = integers(2, 4, 9, 9), integers(8, 4, 3, 3, seed=5)
        pairs = dict.fromkeys(("stride", "padding", "dilation"), (1, 1)) | {"output_padding": (0, 0)}
        options = {**pairs, "transposed": False, "groups": 1}
        wanted = torch.nn.functional.conv2d(image.double(), filters.double(), padding=1)
        assert agree(extern.convolution(image, filters, bias=None, **options), wanted)

        for name in ("tanh", "erf", "exp"):
            source = changed("triton_helpers.maximum(0, both)", f"libdevice.{name}(both * 0.125)")
            output = replay(source, [40, x, w, v], executor)[0][0]
            wanted = getattr(torch, name)((x.float() @ w.float()) * 0.125).half()
            assert torch.equal(output, wanted), name
    """)
