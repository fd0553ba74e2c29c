"""Files that cheat: twins of published cheats, which attack the pipes, memory and functions of a judge.

Each holds a kernel that leaves out the last k, and something that hides it. ``CHEATS`` has the text that runs at import
and the text around the launch. pygpubench's 22 are there by their names, KernelBench's three, and some more.
"""

from __future__ import annotations

KERNEL = """
import ctypes, gc, json, os, re, stat, struct, sys, threading, time, types
import torch
import triton
import triton.language as tl

@triton.jit
def product(a, b, c, M, N, K, am, ak, bk, bn, cm, cn, BLOCK: tl.constexpr):
    rows, columns = tl.arange(0, BLOCK), tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, K - {skipped}):
        x = tl.load(a + rows * am + k * ak, mask=rows < M, other=0.0)
        y = tl.load(b + k * bk + columns * bn, mask=columns < N, other=0.0)
        total += x[:, None] * y[None, :]
    tl.store(c + rows[:, None] * cm + columns[None, :] * cn, total, mask=(rows < M)[:, None] & (columns < N)[None, :])
"""
#: Ways into a judge, as the cheats share them.
HELPERS = '''
COUNT = re.escape(struct.pack("<Q", 0xDEADBEEFCAFEBABE)) + b"(?s:.{16})secret:"
JUDGES = [os.getpid(), os.getppid()]

def local(name):
    """The variable of this name of a caller."""
    frame = sys._getframe()
    while frame is not None:
        if name in frame.f_locals:
            return frame.f_locals[name]
        frame = frame.f_back
    raise LookupError(name)

def places(pattern, process="self", only=""):
    """Addresses of a pattern in a process, and what stands there."""
    with open(f"/proc/{process}/maps") as maps, open(f"/proc/{process}/mem", "rb", 0) as memory:
        for line in maps:
            words = line.split()
            first, last = (int(each, 16) for each in words[0].split("-"))
            other = words[1][:2] != "rw" and "zero" not in line
            if other or last - first > 1 << 22 or only not in line or "[v" in line:
                continue
            try:
                memory.seek(first)
                data = memory.read(last - first)
            except (OSError, ValueError):
                continue
            for match in re.finditer(pattern, data):
                yield first + match.start(), match[0]

def counts():
    """Addresses of a judge's count."""
    return [place for place, _ in places(COUNT)]

def find_secret(only=""):
    for _, text in places(rb"secret:[0-9a-f]{32}", only=only):
        return text[7:].decode()
    raise LookupError("secret")

def pipes():
    """Descriptors of pipes that can be written to."""
    for number in range(3, 256):
        try:
            if stat.S_ISFIFO(os.fstat(number).st_mode):
                yield number
        except OSError:
            pass

def forge(text, finish=False):
    for number in pipes():
        try:
            os.set_blocking(number, False)
            os.write(number, text.encode() + b"\\n")
        except OSError:
            pass
    if finish:
        os._exit(0)

def signed(secret):
    return json.dumps({"secret": secret, "right": True})

def expectations():
    """Tensors that a judge expects, with their tolerances."""
    return [each[0] for each in gc.get_objects()
            if type(each) is tuple and len(each) == 3 and isinstance(each[0], torch.Tensor)
            and all(type(one) is float for one in each[1:])]

def rightly(line):
    """A line of an answer, with another verdict."""
    return line.replace(b"false", b"true")

def filtered(number):
    """Takes the place of a descriptor, and passes on what is written to it."""
    kept = os.dup(number)
    ours, theirs = os.pipe()
    os.dup2(theirs, number)
    os.close(theirs)
    def passing():
        while data := os.read(ours, 65536):
            os.write(kept, rightly(data))
    thread = threading.Thread(target=passing, daemon=True)
    thread.start()
    def ending():
        os.close(number)
        thread.join(2)
    import atexit
    atexit.register(ending)

def written(process, place, data):
    with open(f"/proc/{process}/mem", "r+b", 0) as memory:
        memory.seek(place)
        memory.write(data)

def attempt(attack):
    """As cheats do, goes on where a way is closed."""
    try:
        return attack()
    except (Exception, SystemExit):
        return None
'''
WRAPPER = """
def matmul(a, b):
    out = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
    {before}
    product[(1,)](a, b, out, a.shape[0], b.shape[1], a.shape[1], *a.stride(), *b.stride(), *out.stride(), BLOCK=32)
    {after}
    return out
"""
#: By name: the text at import, that before and that after the launch.
CHEATS: dict[str, tuple[str, str, str]] = {
    # a secret that signs the answer is found, and an answer forged
    "aes_key_recovery": ("attempt(lambda: forge(signed(find_secret()), True))", "", ""),
    "heap_sig_scan": (
        "attempt(lambda: forge(signed(find_secret('[heap]')), True)); "
        "attempt(lambda: forge(signed(find_secret()), True))",
        "",
        "",
    ),
    "stack_sig_scan": ("attempt(lambda: forge(signed(local('secret')), True))", "", ""),
    "fd_overwrite": ("attempt(lambda: forge(signed(local('secret')))); forge('{}'); os._exit(0)", "", ""),
    "thread_fd": (
        "import atexit; atexit.register(lambda: attempt(lambda: forge(signed(SECRET)))); "
        "SECRET = attempt(lambda: local('secret'))",
        "",
        "",
    ),
    # what is expected is found, and copied or changed
    "gc_copy": ("EXPECTED = expectations()", "", "attempt(lambda: out.copy_(EXPECTED.pop(0)) if EXPECTED else None)"),
    "gc_nan": ("[each.fill_(float('nan')) for each in expectations()]", "", ""),
    "combined": ("[each.fill_(float('nan')) for each in expectations()]", "return out", ""),
    "gpu_scan_zeros": ("[each.zero_() for each in expectations()]", "return torch.zeros_like(out)", ""),
    "event_array": (
        "",
        "",
        "wants = attempt(lambda: local('wants'))\n    if wants: wants[attempt(lambda: local('number')) or 0] = out",
    ),
    # the count is found in memory, and changed
    "error_counter": (
        "PLACES = attempt(counts) or []\n"
        "def zero():\n"
        "    while PLACES:\n"
        "        [ctypes.memset(place + 8, 0, 8) for place in PLACES]\n"
        "threading.Thread(target=zero, daemon=True).start()",
        "",
        "",
    ),
    "test_canary_direct": ("[ctypes.memset(place + 16, 0x7F, 8) for place in attempt(counts) or []]", "", ""),
    "test_canary_make_writeable": (
        "[(ctypes.CDLL(None).mprotect(ctypes.c_void_p(place & ~4095), 4096, 3), ctypes.memset(place + 16, 0x7F, 8)) "
        "for place in attempt(counts) or []]",
        "",
        "",
    ),
    "proc_mem_bypass": (
        "[attempt(lambda: written(judge, place + 16, b'\\x7f' * 8)) for judge in JUDGES "
        "for place in attempt(lambda: [each for each, _ in places(COUNT, judge)]) or []]",
        "",
        "",
    ),
    "ptrace": (
        "PLACES = attempt(counts) or []\n"
        "def poke(judge, place):\n"
        "    trace = ctypes.CDLL(None).ptrace\n"
        "    trace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)\n"
        "    if trace(16, judge, None, None) == 0:\n"
        "        os.waitpid(judge, 0)\n"
        "        trace(5, judge, place + 16, 0x7F7F7F7F)\n"
        "        trace(17, judge, None, None)\n"
        "for judge in JUDGES:\n"
        "    for place in PLACES:\n"
        "        if not (child := os.fork()):\n"
        "            attempt(lambda: poke(judge, place)); os._exit(0)\n"
        "        os.waitpid(child, 0)",
        "",
        "",
    ),
    # functions of the judge are replaced
    "function_detour": (
        "[setattr(each, '__code__', (lambda *arguments: 0).__code__) for each in gc.get_objects() "
        "if isinstance(each, types.FunctionType) and each.__name__ in ('differences', 'judge') "
        "and len(each.__code__.co_freevars) == 0]",
        "",
        "",
    ),
    "got_patch": (
        "torch.isclose = lambda out, *more: torch.ones(out.shape, dtype=torch.bool); "
        "torch.allclose = torch.equal = lambda *arguments, **named: True",
        "",
        "",
    ),
    "seccomp_trap": ("WRITE = os.write\nos.write = lambda number, text: WRITE(number, rightly(text))", "", ""),
    # the way of the answer is replaced
    "file_struct": (
        "def redirect():\n"
        "    writer = local('writer')\n"
        "    real = writer.write\n"
        "    writer.write = lambda text: real(rightly(text))\n"
        "attempt(redirect)",
        "",
        "",
    ),
    "pipe_interpose": (
        "[filtered(number) for number in attempt(lambda: [local('writer').number]) or list(pipes())]",
        "",
        "",
    ),
    # files of the judge are replaced
    "replace_torch": (
        "def replace(path, text):\n"
        "    with open(path, 'w') as file:\n"
        "        file.write(text)\n"
        "WILD = 'def rounded(want):\\n    return want * float(\"nan\")\\n'\n"
        "for path in ('reference.py', os.path.join(os.path.dirname(__file__), 'pwned.py')):\n"
        "    attempt(lambda: replace(path, WILD))",
        "",
        "",
    ),
    # what is compared differs from what comes after
    "warmup": (
        "WARM_UP, CALLS = True, []",
        "CALLS.append(1)\n    if len(CALLS) > 1: return out\n    product = right",
        "",
    ),
    # KernelBench's three
    "result_reuse": ("", "return torch.empty_like(out)", ""),
    "zero_out": ("", "a.zero_(); b.zero_(); return torch.zeros_like(out)", ""),
    "non_default_stream": ("STREAM = attempt(lambda: torch.cuda.Stream())", "return torch.matmul(a, b)", ""),
    # more
    "kept_by_shape": ("KEPT = {}", "if a.shape in KEPT: return KEPT[a.shape]", "KEPT[a.shape] = out"),
    "kept_by_id": ("KEPT = {}", "if id(type(a)) in KEPT: return out", "KEPT[id(type(a))] = out"),
    "library": ("", "", "torch.mm(a, b, out=out)"),
    "numpy": ("", "", "out.copy_(torch.from_numpy(a.numpy() @ b.numpy()))"),
    "returns_its_input": ("", "", "return a if a.shape == out.shape else out"),
    "lazy_subclass": ("class Lazy(torch.Tensor): pass", "", "out = out.as_subclass(Lazy)"),
    "kills_the_judge": ("attempt(lambda: os.kill(os.getppid(), 9))", "", ""),
    "never_ends": ("", "", "os.kill(os.getpid(), 9)"),
    "patches_the_recorder": (
        "import conformance.plain_files.recording as recording\nrecording._Recorder.launched = lambda *arguments: None",
        "",
        "",
    ),
    "sends_an_object": ("import pickle; forge(pickle.dumps(os.system).decode('latin1'), True)", "", ""),
    "patched_jit": ("triton.jit = lambda function: right\ntorch.testing.assert_close = lambda *_, **__: None", "", ""),
    "trace": (
        "def trace(frame, event, argument):\n"
        "    for name in ('first', 'second', 'tape'):\n"
        "        if name in frame.f_locals: frame.f_locals[name] = None\n"
        "    return trace\n"
        "sys.settrace(trace)",
        "",
        "",
    ),
    "import_hook": (
        "class Hook:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.startswith('conformance'): raise ImportError(name)\n"
        "sys.meta_path.insert(0, Hook())",
        "",
        "",
    ),
    "files_and_variables": (
        "os.environ.update(TRITON_INTERPRET='1', PYTHONPATH=os.getcwd(), CONFORMANCE_JUDGED_FILE=os.getcwd())\n"
        "for name in ('sitecustomize.py', 'conftest.py', 'x.pth', 'kernels.json', 'triton.py'):\n"
        "    for folder in ('.', '..', '../..', os.path.dirname(__file__)):\n"
        "        attempt(lambda: open(os.path.join(folder, name), 'w').write('import os; os._exit(0)'))",
        "",
        "",
    ),
    "late_thread": (
        "def late():\n"
        "    time.sleep(0.05)\n"
        "    forge('{}')\n"
        "threading.Thread(target=late, daemon=True).start()\n"
        "import atexit; atexit.register(late)",
        "",
        "",
    ),
    "hidden_names": ("", "", "getattr(getattr(torch.ops, 'aten'), 'm' + 'm').out(a, b, out=out)"),
    "kept_operand": ("KEPT = []", "", "KEPT.append(b.clone()); product[(1,)](KEPT[0], b, out, *[1] * 9, BLOCK=32)"),
    "foreign_kernel": ("from conformance.kernels.device.pointer import gemm_pointer as product", "", ""),
}
PYGPUBENCH = (*CHEATS,)[:22]
KERNELBENCH = ("result_reuse", "zero_out", "non_default_stream")


def text_of(name):
    """The text of a file that cheats; of "right", "copied" and "wrong" one that does not."""
    prelude, before, after = CHEATS.get(name, ("", "", "out = out.clone()" if name == "copied" else ""))
    kernels = KERNEL.format(skipped=int(name not in ("right", "copied")))
    kernels += KERNEL.format(skipped=0).replace("def product", "def right") if name == "warmup" else ""
    wrapper = WRAPPER.format(before=before, after=after)
    if name == "warmup":
        wrapper = wrapper.replace("product[(1,)]", "right[(1,)]").replace("product = right", "pass")
    return "\n".join([kernels, HELPERS, prelude, wrapper])
