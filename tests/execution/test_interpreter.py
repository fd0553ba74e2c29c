"""The corrected interpreter: right where Triton's is wrong, put back after each launch, honest about its grid."""

import json
import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import numpy as np
import pytest
import triton.language as tl

from conformance.execution.interpreter import savings as interpreter_savings

ROOT = Path(__file__).resolve().parents[2]

PRELUDE = """
import contextlib

import torch
import triton
import triton.language as tl
from triton.runtime import interpreter

from conformance.execution.interpreter.executor import InterpreterExecutor
from conformance.kernels.launch import Launch

@triton.jit
def double_dot(a, b, c, DTYPE: tl.constexpr):
    r = tl.arange(0, 16)
    at = r[:, None] * 16 + r[None, :]
    acc = tl.dot(tl.load(a + at), tl.load(b + at), out_dtype=tl.float32)
    tl.store(c + tl.program_id(0) * 256 + at, (acc * 2).to(c.dtype.element_ty))

def operands(dtype, out=None, programs=1):
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(16, 16, generator=generator) for _ in "ab")
    if dtype == torch.float32:  # whose sums depend on their order
        a, b = (a * 8).round(), (b * 8).round()
    a, b = a.to(dtype), b.to(dtype)
    return a, b, torch.full((programs, 16, 16), float("nan")).to(out or dtype)
"""


#: Imports once what every body needs, as TRITON_INTERPRET says, which is read at import. Each body runs in a copy of
#: the process, so that none sees what another has changed. Triton reads a kernel's source from its file.
SERVER = """
import json, os, runpy, sys, traceback
import conformance.execution.interpreter.executor, torch, triton, triton.language, triton.runtime.interpreter
for line in sys.stdin:
    folder = json.loads(line)
    child = os.fork()
    if not child:
        for descriptor, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT), descriptor)
        code = 1
        try:
            runpy.run_path(f"{folder}/interpreted.py", run_name="__main__")
            code = 0
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


_SERVERS: dict[str, subprocess.Popen[str]] = {}


def server(interpret: str) -> subprocess.Popen[str]:
    if interpret in _SERVERS:
        return _SERVERS[interpret]
    path = os.pathsep.join([str(ROOT), *sys.path])
    environment = {**os.environ, "TRITON_INTERPRET": interpret, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SERVER]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return _SERVERS.setdefault(interpret, subprocess.Popen(command, env=environment, **pipes))


@pytest.fixture(scope="module", autouse=True)
def _servers_end():
    yield
    for process in _SERVERS.values():
        process.communicate()
    _SERVERS.clear()


def run(body: str, interpret: str = "1") -> str:
    """Runs ``body`` after the prelude in a process of its own."""
    process = server(interpret)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "interpreted.py").write_text(PRELUDE + textwrap.dedent(body))
        process.stdin.write(json.dumps(folder) + "\n")
        process.stdin.flush()
        code = process.stdout.readline().strip()
        streams = [(path / name).read_text() if (path / name).exists() else "" for name in ("out", "err")]
    if "InterpreterUnsupported: no-interpreter (numpy)" in streams[1]:
        pytest.skip(streams[1].strip().rsplit("InterpreterUnsupported: ", 1)[1])
    assert code == "0", "".join(streams)
    return streams[0].strip()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float8_e4m3fn", "float8_e5m2"])
def test_dot_and_store_are_those_of_torch(dtype):
    run(f"""
        a, b, c = operands(torch.{dtype})
        ran = InterpreterExecutor().run(Launch(double_dot, (1,), dict(a=a, b=b, c=c, DTYPE=0)))
        wanted = (a.float() @ b.float() * 2).clamp(-57344, 57344)
        if torch.{dtype} == torch.float8_e4m3fn:
            wanted = wanted.clamp(-448, 448)
        assert torch.equal(c[0].float(), wanted.to(torch.{dtype}).float()), (c[0].float() - wanted).abs().max()
        assert ran.grid == (1,) and ran.programs == 1
    """)


def test_released_interpreter_is_wrong_where_it_is_corrected():
    """If this fails, Triton is right and the correction may go."""
    out = run("""
        a, b, c = operands(torch.bfloat16)
        double_dot[(1,)](a, b, c, 0)
        print(torch.equal(c[0].float(), (a.float() @ b.float() * 2).bfloat16().float()))
    """)
    assert out == "False"


def test_everything_is_put_back():
    run("""
        from conformance.execution.interpreter.savings import savings

        names = ["create_dot", "cast_impl", "create_fp_to_fp", "binary_op", "create_fma", "set_grid_dim"]
        replaced = [(interpreter.InterpreterBuilder, name) for name in [*names, "set_grid_idx"]]
        replaced += [(interpreter.GridExecutor, "_restore_args_dev"), (interpreter.ReduceOps, "sum")]
        replaced += [(owner, name) for owner, names in savings(interpreter) for name in names]
        had_constant = hasattr(interpreter.InterpreterBuilder, "get_bf16")
        before = [getattr(owner, name) for owner, name in replaced]
        a, b, c = operands(torch.bfloat16)
        InterpreterExecutor().run(Launch(double_dot, (1,), dict(a=a, b=b, c=c, DTYPE=0)))
        try:
            InterpreterExecutor().run(Launch(double_dot, (1,), dict(a=a, b=None, c=c, DTYPE=0)))
        except Exception:
            pass
        else:
            raise SystemExit("a kernel that fails must raise")
        assert before == [getattr(owner, name) for owner, name in replaced]
        assert hasattr(interpreter.InterpreterBuilder, "get_bf16") == had_constant
    """)


def test_part_of_a_grid():
    run("""
        a, b, c = operands(torch.float32, programs=5)
        ran = InterpreterExecutor().run(Launch(double_dot, (5,), dict(a=a, b=b, c=c, DTYPE=0)), programs=[1, 4])
        assert (ran.grid, ran.programs) == ((5,), 2)
        assert [bool(c[i].isnan().all()) for i in range(5)] == [True, False, True, True, False]
    """)


def test_empty_grid_runs_nothing():
    run("""
        ran = InterpreterExecutor().run(Launch(double_dot, (0,), {}))
        assert (ran.grid, ran.programs) == ((0,), 0)
    """)


def test_a_missing_name_is_a_typed_reason():
    run("""
        from conformance.execution.interpreter.executor import InterpreterUnsupported
        del interpreter.InterpreterBuilder.create_dot
        try:
            InterpreterExecutor()
        except InterpreterUnsupported as error:
            assert error.reason.code.value == "no-interpreter" and error.reason.subject == "create_dot"
        else:
            raise SystemExit("accepted")
    """)


def test_indices_do_not_depend_on_the_release_of_numpy():
    """Triton up to 3.6 makes an index in a way that NumPy refuses from 2.4 on, and warns of before. Planted here."""
    run("""
        original = interpreter._patch_lang_tensor
        def without_index(tensor, *scope):
            original(tensor, *scope)
            def index(self):
                raise TypeError("only 0-dimensional arrays can be converted to Python scalars")
            tensor.__index__ = index
        interpreter._patch_lang_tensor = without_index

        @triton.jit
        def counted(out, size, BLOCK: tl.constexpr):
            total = 0
            for _ in range(tl.cdiv(size, BLOCK)):
                total += 1
            tl.store(out, total)

        out = torch.zeros(1, dtype=torch.int32)
        InterpreterExecutor().run(Launch(counted, (1,), {"out": out, "size": 40, "BLOCK": 16}))
        assert out.item() == 3
    """)


def test_a_function_that_the_interpreter_does_not_replace_is_a_typed_reason():
    run("""
        from conformance.execution.interpreter.executor import InterpreterUnsupported
        @triton.jit
        def timed(out):
            tl.store(out, tl.extra.cuda.globaltimer())
        @triton.jit
        def wrong(out):
            raise_no_such_name()
        executor = InterpreterExecutor()
        try:
            executor.run(Launch(timed, (1,), {"out": torch.zeros(1, dtype=torch.int64)}))
        except InterpreterUnsupported as error:
            assert error.reason.subject == "globaltimer" and "it needs a device" in error.reason.detail, error.reason
        else:
            raise SystemExit("accepted")
        try:
            executor.run(Launch(wrong, (1,), {"out": torch.zeros(1, dtype=torch.int64)}))
        except interpreter.InterpreterError:
            pass
    """)


def test_builtins_that_are_imported_by_name_are_replaced_while_a_kernel_runs():
    run("""
        from triton.language import arange, cdiv, load
        from triton.language.math import exp2 as power, rsqrt
        compiled = arange, load, power, rsqrt
        class Lazy:
            def __getattr__(self, name):
                raise RuntimeError(f"{name} was asked for")
        lazy = Lazy()  # a name of the module that no kernel uses
        @triton.jit
        def inverse(x):
            return rsqrt(x)
        @triton.jit
        def sums(x, out, N: tl.constexpr):
            i = arange(0, N)
            tl.store(out + i, inverse(load(x + i)) + power(load(x + i)) + cdiv(N, 3))
        x, out = torch.tensor([1.0, 4.0]), torch.zeros(2)
        InterpreterExecutor().run(Launch(sums, (1,), dict(x=x, out=out, N=2)))
        assert torch.equal(out, 1 / x.sqrt() + torch.exp2(x) + 1), out
        assert (arange, load, power, rsqrt) == compiled
    """)


def test_needs_its_environment():
    run(
        """
        try:
            InterpreterExecutor()
        except RuntimeError as error:
            assert "TRITON_INTERPRET=1" in str(error)
        else:
            raise SystemExit("accepted")
        """,
        interpret="0",
    )


#: Every pair of an element type and a shape, made twice: as the original constructors make it, and under the savings.
#: Prints the number of pairs with another attribute.
COMPARED = """
    from conformance.execution.interpreter import savings as interpreter_savings

    def attributes(made):
        return {name: str(value) for name, value in vars(made).items()}

    def types_and_tensors():
        elements = [tl.int1, tl.int32, tl.int64, tl.float16, tl.bfloat16, tl.float32, tl.pointer_type(tl.float16)]
        types = [tl.block_type(element, shape) for element in elements for shape in ([16], [16, 32], [1, 16, 32])]
        types += [type.with_element_ty(element) for type in types for element in elements]
        types += [type.to_ir(interpreter.interpreter_builder) for type in types]
        return [attributes(made) for type in [*elements, *types] for made in (type, tl.tensor(None, type))]

    def under_savings():
        with contextlib.ExitStack() as replaced:
            for owner, names in interpreter_savings.savings(interpreter):
                for name, value in names.items():
                    replaced.callback(setattr, owner, name, getattr(owner, name))
                    setattr(owner, name, value)
            types_and_tensors()  # from here on, all is known
            return types_and_tensors()

    print(sum(ours != original for ours, original in zip(under_savings(), types_and_tensors(), strict=True)))
"""


def test_savings_make_the_same_types_and_tensors():
    assert run(COMPARED) == "0"


def planted(right, wrong):
    """Replaces ``right`` in the savings by ``wrong``."""
    return f"""
    import pathlib
    from conformance.execution.interpreter import savings as interpreter_savings
    source = pathlib.Path(interpreter_savings.__file__).read_text()
    assert {right!r} in source
    exec(compile(source.replace({right!r}, {wrong!r}), "savings", "exec"), vars(interpreter_savings))
    """


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("(id(element_ty), *", "(0, *"),
        ("of_shape.get((id(element_ty), id(shape)))", "of_shape.get(next(iter(of_shape), None))"),
        ("key = id(self.element_ty), id(self.shape)", "key = id(self.element_ty), 0"),
        ("handle=handle, type=type, dtype=type.scalar", "handle=handle, type=type"),
    ],
)
def test_savings_that_mix_up_types_are_seen(right, wrong):
    assert int(run(planted(right, wrong) + COMPARED)) > 0


#: Loads and stores of random blocks, the interpreter's own and ours over copies of the same memory. Prints in how many
#: of them a value, a byte of memory, a dtype or the order of the elements differs.
ACCESSED = """
    import numpy as np
    from conformance.execution.interpreter import savings as interpreter_savings

    native = interpreter._interpreter
    own = native.load, native.store
    ours = [interpreter_savings._memory_access(native)[name] for name in ("load", "store")]
    draw = np.random.default_rng(0)

    def accessed(functions, bytes, places, values, mask):
        bytes = bytes.copy()
        pointers = (np.uint64(bytes.ctypes.data) + places).astype(np.uint64)
        loaded = functions[0](pointers, mask, values, values.dtype)
        functions[1](pointers, values, mask)
        return loaded.tobytes(), loaded.dtype, loaded.shape, loaded.flags["C_CONTIGUOUS"], bytes.tobytes()

    different = 0
    for number in range(120):
        shape = [(40, 50), (700,), (1, 16, 32), (8, 8), (1, 600)][number % 5]
        dtype = np.dtype([np.uint16, np.float32, np.int8, np.float64, np.bool_, np.uint64][number % 6])
        values = np.frombuffer(draw.bytes(4000 * 8), dtype=np.uint8)[: int(np.prod(shape)) * dtype.itemsize]
        values = (values % 2 if dtype == np.bool_ else values).view(dtype).reshape(shape)
        places = draw.integers(0, 6000, shape) * dtype.itemsize + number % 7  # some of them twice
        places += number % 4 == 3 and draw.integers(0, 2, shape)  # not whole elements apart
        mask = draw.random(shape) < draw.choice([0, 0.5, 1.1])
        if number % 3 == 0:  # other orders in memory
            places, values, mask = (np.asfortranarray(array) for array in (places, values, mask))
        places = np.where(mask, places, 1 << 50)  # nothing lies there
        bytes = np.frombuffer(draw.bytes(60_000), dtype=np.uint8) % 2
        arguments = bytes, places.astype(np.uint64), values, memoryview(mask) if number % 5 == 1 else mask
        different += accessed(own, *arguments) != accessed(ours, *arguments)
    print(different)
"""


def test_savings_load_and_store_as_the_interpreter_does():
    assert run(ACCESSED) == "0"


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (" or (distances & np.uint64(dtype.itemsize - 1)).any()", ""),
        ("loaded[some] = memory[indices]", "loaded[some] = 0"),
        ("pointers = np.ascontiguousarray(pointers)", "pass"),
        ("pointers[some].ravel(), values[some].ravel()", "pointers[some].ravel(), values[some].ravel()[::-1]"),
        ("memory[indices] = stored", "memory[indices[::-1]] = stored[::-1]"),
    ],
)
def test_savings_that_load_or_store_otherwise_are_seen(right, wrong):
    assert int(run(planted(right, wrong) + ACCESSED)) > 0


#: What a binary operator makes of every pair of operands under every rule, or its error, by the interpreter and under
#: the savings. Prints how many differ.
OPERATED = """
    import itertools
    import numpy as np
    from conformance.execution.interpreter import savings as interpreter_savings

    def pairs_and_rules():
        names = "int1 uint8 int32 int64 float16 bfloat16 float32 float8e5".split()
        types = [*(getattr(tl, name) for name in names), tl.pointer_type(tl.float16)]
        shaped = [*itertools.product(types, ([], [4])), *itertools.product((tl.int32, tl.float16), ([2, 4], [1, 4]))]
        operands = [0, -1, True, 255, 2**31 - 1, 2**31, -2**63, 0.5, 1e300, None]
        for type, shape in shaped:
            handle = interpreter.TensorHandle(np.full(shape or [1], 3, interpreter._get_np_dtype(type)), type)
            operands.append(tl.tensor(handle, tl.block_type(type, shape) if shape else type))
        # pointers on the left, pointers on the right, arithmetic, a division
        rules = [(False, False, True, False), (True, True, True, False), (False, False, False, False)]
        return itertools.product(operands, operands, [*rules, (False, False, True, True)])

    def operated():
        for left, right, rule in pairs_and_rules():
            try:
                made = interpreter.interpreter_semantic.binary_op_type_checking_impl(left, right, *rule)
            except Exception as error:
                yield repr(error)
            else:
                yield [(str(one.type), str(one.dtype), one.handle.data.dtype, one.handle.data.tolist()) for one in made]

    def differing():
        with contextlib.ExitStack() as replaced, np.errstate(all="ignore"):
            for owner, names in interpreter_savings.savings(interpreter):
                for name, value in names.items():
                    replaced.callback(setattr, owner, name, getattr(owner, name))
                    setattr(owner, name, value)
            return sum(str(one) != str(other) for one, other in zip(operated(), original, strict=True))

    scope = interpreter._patch_lang(double_dot.fn)
    original = list(operated())
    print(differing())
"""

#: Faults of the savings: a text, and what stands in its place.
OPERATED_OTHERWISE = [
    ("if kind is rhs.dtype:", "if True:"),
    ("not div_or_mod and kind", "kind"),
    ("return least <= number <= most", "return True"),
    ("elif arithmetic_check and holds", "elif holds"),
    ("and allow_lhs_ptr and", "and"),
    ("and rhs.dtype.is_int()", ""),
    ("left.element_ty is right:", "True:"),
    ("right.element_ty is left:", "True:"),
]


def test_savings_make_the_same_operands_and_others_are_seen():
    faults = "".join(planted(*fault) + "\n    print(differing())\n" for fault in OPERATED_OTHERWISE)
    right, *wrong = map(int, run(OPERATED + faults).split())
    assert right == 0
    assert [fault for fault, seen in zip(OPERATED_OTHERWISE, wrong, strict=True) if not seen] == []


def test_what_is_patched_in_each_launch_is_what_the_interpreter_would_patch():
    run("""
        def language():
            owners = tl, tl.core, tl.math, tl.tensor, tl.dtype
            return {(owner.__name__, name): value for owner in owners for name, value in vars(owner).items()}

        executor = InterpreterExecutor()

        def launched():
            a, b, c = operands(torch.bfloat16)
            executor.run(Launch(double_dot, (1,), dict(a=a, b=b, c=c, DTYPE=0)))
            return c

        first, loads = launched(), []
        launched()  # the interpreter gives the functions of Triton's own library more names when it first calls them
        before = language()
        assert torch.equal(launched(), first) and language() == before

        original = tl.load
        @tl.core.builtin
        def load(*arguments, **options):
            loads.append(arguments)
            return original(*arguments, **options)
        tl.load = load  # is seen, although launches before had another
        assert torch.equal(launched(), first) and len(loads) == 2 and tl.load is load
    """)


def test_savings_change_no_result():
    """Least of all where the interpreter's check for overflow, which is left out, overflows itself."""
    numbers = run("""
        import conformance.execution.interpreter.executor as ours

        @triton.jit
        def multiply(out, factor):
            r = tl.arange(0, 16)
            tl.store(out + r, (r[:, None] * factor + r[None, :]).to(tl.float32).sum(1) + r * factor)

        for savings in (ours.savings, lambda interpreter: []):
            ours.savings = savings
            out = torch.zeros(16, dtype=torch.int64)
            InterpreterExecutor().run(Launch(multiply, (1,), {"out": out, "factor": 2**28}))
            print(out.tolist())
    """)
    ours, original = numbers.splitlines()
    assert ours == original
    assert len(set(json.loads(ours))) > 8


def test_a_body_that_fails_is_a_failure_and_changes_nothing_for_the_next():
    with pytest.raises(AssertionError, match="the fault of this body"):
        run("""
            InterpreterExecutor.run = None
            raise ValueError("the fault of this body")
        """)
    run("assert InterpreterExecutor.run is not None")


NARROW = """
@triton.jit
def constants(x, o, r, SUM: tl.constexpr):
    i = tl.arange(0, 16)
    v = tl.load(x + i)
    leaky = tl.where(v >= 0, v, 0.01 * v) + tl.full((16,), 0.5, v.dtype)
    tl.store(o + i, tl.fma(leaky, v, v))
    tl.store(r + i, v + (tl.sum(v, 0) if SUM else tl.cumsum(v, 0)))

def narrow(dtype, SUM, run):
    x = ((torch.arange(16) - 6) / 4).to(dtype)
    o, r = torch.zeros_like(x), torch.zeros_like(x)
    run(dict(x=x, o=o, r=r, SUM=SUM))
    return o.float(), r.float()
"""


def test_constants_and_reductions_of_narrow_floats_are_right():
    """Small numbers that bf16 holds exactly, so that fp32 gives the same: constants, fma, sums and running sums."""
    run(
        NARROW
        + textwrap.dedent("""
        ours = InterpreterExecutor()
        def by_ours(arguments):
            ours.run(Launch(constants, (1,), arguments))
        for SUM in (True, False):
            o, r = narrow(torch.bfloat16, SUM, by_ours)
            wanted_o, wanted_r = narrow(torch.float32, SUM, by_ours)
            assert torch.allclose(o, wanted_o, rtol=2**-6, atol=2**-8), (o, wanted_o)
            assert torch.equal(r, wanted_r), (r, wanted_r)
        """)
    )


def test_released_interpreter_has_no_constant_of_bf16():
    """Up to Triton 3.8. If this fails there, Triton is right and the correction may go."""
    out = run(
        NARROW
        + textwrap.dedent("""
        if hasattr(interpreter.InterpreterBuilder, "get_bf16"):
            print(True)
        else:
            try:
                narrow(torch.bfloat16, True, lambda arguments: constants[(1,)](**arguments))
            except interpreter.InterpreterError as error:
                print("get_bf16" in str(error))
        """)
    )
    assert out == "True"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("tl.store(c + r, tl.load(a + r).to(tl.float8e5) + tl.load(a + r).to(tl.float8e5))", "add of fp8e5"),
        ("tl.store(c + r, tl.load(a + r).to(tl.float8e4b15, bitcast=False))", "a conversion from bf16 to fp8e4b15"),
        ("tl.inline_asm_elementwise('mov.b32 $0, $1;', '=r,r', [r], tl.int32, True, 1)", "create_inline_asm"),
        # past the largest number of the format
        ("tl.store(c + r, (tl.load(a + r) * 0 + 241).to(tl.float8e4b8).to(c.dtype.element_ty))", "a conversion from"),
        ("tl.store(c + r, tl.trans(tl.load(a + r[None, :])).reshape((32,)))", "<lambda>"),  # planted below
        # faults of the kernel
        ("tl.store(c + r, None + tl.load(a + r))", None),
        ("tl.store(c + r, tl.load(a + r).reshape((5,)))", None),
        ("tl.static_assert(False, 'unsupported shape')", None),
        ("tl.assume(tl.program_id(0) > 0)", None),
        ("tl.store(c + r, tl.gather(tl.load(a + r), r + 8, 0))", None),
        ("raise NotImplementedError('unsupported')", None),
    ],
)
def test_what_the_interpreter_cannot_do_is_no_fault_of_the_kernel(line, reason):
    out = run(f"""
        from conformance.execution.interpreter.executor import InterpreterUnsupported

        interpreter.InterpreterBuilder.create_trans = eval(
            compile("lambda self, *arguments: dict()['planted']", interpreter.__file__, "eval"), vars(interpreter)
        )

        @triton.jit
        def kernel(a, c):
            r = tl.arange(0, 32)
            {line}
        try:
            a, _, c = operands(torch.bfloat16)
            InterpreterExecutor().run(Launch(kernel, (1,), dict(a=a, c=c)))
        except InterpreterUnsupported as error:
            print(error.reason.code.value, error.reason.subject)
        except interpreter.InterpreterError:
            print("fault")
    """)
    if reason is None:
        assert out == "fault"
    else:
        assert out.startswith(f"no-interpreter {reason}")


def test_null_pointers_are_left_to_the_interpreter():
    """They end the process there, and the case is a crash; NumPy would only raise."""
    pointers = 4 * np.arange(600, dtype=np.uint64)
    assert interpreter_savings._elements(pointers, np.dtype(np.float32)) is None
    buffer = np.arange(600, dtype=np.float32)
    memory, indices = interpreter_savings._elements(pointers + np.uint64(buffer.ctypes.data), buffer.dtype)
    assert np.array_equal(memory[indices], buffer)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e5m2", "float16"])
def test_elements_outside_the_bounds_are_nan_where_that_was_asked_for(dtype):
    if not hasattr(tl, "advance"):
        pytest.skip("this release of Triton has no block pointers")
    run(f"""
        @triton.jit
        def padded(x, o):
            block = tl.make_block_ptr(x, (12,), (1,), (0,), (16,), (0,))
            tl.store(o + tl.arange(0, 16), tl.load(block, boundary_check=(0,), padding_option="nan"))

        x, o = torch.ones(16).to(torch.{dtype}), torch.zeros(16).to(torch.{dtype})
        InterpreterExecutor().run(Launch(padded, (1,), dict(x=x, o=o)))
        assert o.float()[:12].eq(1).all() and o.float()[12:].isnan().all(), o
    """)
