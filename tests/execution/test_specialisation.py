"""Our account of what a launch specialises on, against Triton's own keys."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime import driver
from triton.tools.tensor_descriptor import TensorDescriptor

from conformance.execution.compile.compile_worker import StubDriver
from conformance.execution.compile.specialisation import Specialisation, parameters, specialisation
from conformance.kernels.launch import Launch
from conformance.targets import Target
from tests.forked_python import ROOT, executable

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") == "1", reason="compares with compiled kernels, which this process has not"
)

SM90 = Target("cuda", 90, 32)
GFX942 = Target("hip", "gfx942", 64)


@triton.jit
def free(x, y, C: tl.constexpr):
    pass


@triton.jit(do_not_specialize=["x"], do_not_specialize_on_alignment=["y"])
def marked(x, y, C: tl.constexpr):
    pass


@triton.jit
def annotated(x: tl.int64, y: tl.float32, C: tl.constexpr):
    pass


def tensor(dtype: torch.dtype = torch.bfloat16, offset: int = 0, numel: int = 4096) -> torch.Tensor:
    return torch.empty(numel + offset, dtype=dtype, device="meta").as_strided((64, 64), (64, 1), offset)


def described(dtype: torch.dtype, block: list[int], size: int = 64) -> TensorDescriptor:
    return TensorDescriptor(tensor(dtype), [size, 64], [64, 1], block)


INTEGERS = [0, 1, 2, -1, 15, 16, 17, -16, 32, 2**31 - 1, 2**31, 2**31 + 1, -(2**31), -(2**31) - 1, 2**40, 2**63 - 1]
VALUES: list[Any] = [
    *INTEGERS,
    2**63,
    2**64 - 1,
    True,
    False,
    None,
    0.0,
    1.0,
    2.5,
    tensor(),
    tensor(offset=1),
    tensor(offset=8),
    tensor(torch.float16),
    tensor(torch.float8_e4m3fn),
    tensor(torch.float8_e4m3fn, offset=8),
    tensor(numel=2**30),
    described(torch.bfloat16, [64, 64]),
    described(torch.bfloat16, [64, 64], size=63),
    described(torch.bfloat16, [64, 32]),
    described(torch.float16, [64, 64]),
    (1, 16, 3),
    (1, 32, 5),
    (1, 16, 16),
]


@pytest.fixture
def triton_key(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Launch, Target], str]]:
    """Triton's own key of a launch, taken where it is about to compile. Each call is on a device index of its own,
    because Triton's look-up by Python equality would give True the key of 1."""
    indices = itertools.count(1000)
    seen: list[str] = []

    def hook(**event: Any) -> bool:
        seen.append(event["compile"]["key"])
        return True  # do not compile

    monkeypatch.setattr(triton.knobs.runtime, "jit_cache_hook", hook)

    def key(launch: Launch, target: Target, index: int | None = None) -> str:
        gpu = triton.backends.compiler.GPUTarget(target.backend, target.arch, target.warp_size)
        monkeypatch.setattr(driver, "_active", StubDriver(gpu, next(indices) if index is None else index))
        launch.function.warmup(**launch.arguments, grid=(1,), **launch.options)
        return seen[-1]

    yield key
    for kernel in (free, marked, annotated):
        kernel.device_caches.clear()


@pytest.mark.parametrize("target", [SM90, GFX942], ids=lambda target: target.id)
@pytest.mark.parametrize(
    ("kernel", "x_values", "y_values"),
    [
        pytest.param(free, VALUES, [3], id="every-class"),
        pytest.param(marked, INTEGERS, INTEGERS, id="do-not-specialize"),
        pytest.param(annotated, INTEGERS, [0.0, 1.0, 2], id="annotated"),
    ],
)
def test_two_launches_are_one_specialisation_where_triton_compiles_once(
    triton_key: Callable[[Launch, Target], str], target: Target, kernel: Any, x_values: list[Any], y_values: list[Any]
) -> None:
    theirs: dict[str, set[Specialisation]] = {}
    ours: dict[Specialisation, set[str]] = {}
    for x, y in itertools.product(x_values, y_values):
        launch = Launch(kernel, (1,), {"x": x, "y": y, "C": 8}, {"num_warps": 4})
        specialised, their = specialisation(launch, target), triton_key(launch, target)
        theirs.setdefault(their, set()).add(specialised)
        ours.setdefault(specialised, set()).add(their)
    assert [keys for keys in ours.values() if len(keys) > 1] == []  # one of ours, several compilations
    assert [classes for classes in theirs.values() if len(classes) > 1] == []  # one compilation, several of ours
    assert len(ours) > 1
    assert len({specialised.key for specialised in ours}) == len(ours)


def test_readable_classes() -> None:
    arguments = {"x": tensor(), "y": 2**31, "C": torch.float16}
    specialised = specialisation(Launch(free, (7,), arguments, {"num_stages": 3, "num_warps": 4}), SM90)
    assert specialised.arguments == (("x", "*bfloat16:16"), ("y", "i64:16"), ("C", "=torch.float16"))
    assert str(specialised) == "free(x: *bfloat16:16, y: i64:16, C: =torch.float16, num_stages=3, num_warps=4) on sm_90"
    on_amd = specialisation(Launch(free, (7,), arguments, {}), GFX942)
    assert on_amd.arguments[0] == ("x", "*bfloat16:16:2GiB")


def test_what_keeps_two_launches_apart() -> None:
    def of(x: int, target: Target = SM90, **options: int) -> Specialisation:
        return specialisation(Launch(free, (1,), {"x": x, "y": 1, "C": 8}, options), target)

    assert of(32, num_warps=4) == of(48, num_warps=4)
    assert of(32, num_warps=4).key == of(48, num_warps=4).key
    assert of(32, num_warps=4).differences(of(48, num_warps=4)) == []
    assert of(32, num_warps=4).differences(of(33, num_warps=8)) == ["x: i32:16 / i32", "num_warps: 4 / 8"]
    assert of(32).differences(of(32, GFX942)) == ["target: sm_90 / gfx942"]
    assert of(32).key != of(32, GFX942).key


def test_the_grid_is_no_part_of_it_and_the_source_is() -> None:
    arguments = {"x": 2, "y": 3, "C": 8}
    assert specialisation(Launch(free, (1,), arguments), SM90) == specialisation(Launch(free, (9, 9), arguments), SM90)
    assert specialisation(Launch(free, (1,), arguments), SM90) != specialisation(Launch(marked, (1,), arguments), SM90)


def test_equal_constants_of_different_types_are_told_apart_though_triton_mixes_them_up(
    triton_key: Callable[..., str],
) -> None:
    def launch(constant: object) -> Launch:
        return Launch(free, (1,), {"x": 2, "y": 3, "C": constant}, {})

    assert len({specialisation(launch(constant), SM90) for constant in (1, True, 1.0)}) == 3
    assert len({triton_key(launch(constant), SM90) for constant in (1, True, 1.0)}) == 3
    assert len({triton_key(launch(constant), SM90, index=999) for constant in (1, True, 1.0)}) == 1


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"x": 2**64, "y": 1, "C": 1}, OverflowError, "does not fit in 64 bits"),
        ({"x": -(2**63) - 1, "y": 1, "C": 1}, OverflowError, "does not fit in 64 bits"),
        ({"x": "text", "y": 1, "C": 1}, TypeError, "is no kernel argument"),
        ({"x": 1, "z": 1, "C": 1}, ValueError, r"unknown arguments \['z'\], missing arguments \['y'\]"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        specialisation(Launch(free, (1,), arguments), SM90)


def test_an_interpreting_process_says_the_same() -> None:
    script = (
        "import json; from tests.execution.test_specialisation import *; "
        "print(json.dumps([specialisation(Launch(k, (1,), {'x': x, 'y': 16, 'C': 8}), SM90).arguments "
        "for k in (free, marked, annotated) for x in INTEGERS]))"
    )
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([executable(), "-c", script], env=environment, capture_output=True, text=True, check=True)
    interpreted = json.loads(done.stdout.splitlines()[-1])
    compiled = [
        specialisation(Launch(kernel, (1,), {"x": x, "y": 16, "C": 8}), SM90).arguments
        for kernel in (free, marked, annotated)
        for x in INTEGERS
    ]
    assert interpreted == json.loads(json.dumps(compiled))


@pytest.mark.parametrize("place", ["function", "rewriter"])
def test_where_an_interpreted_function_keeps_its_options(place):
    """Triton 3.4 has them in the rewriter alone."""
    options = SimpleNamespace(kwargs={"do_not_specialize": ["second"]})
    own = options.__dict__ if place == "function" else {}
    kernel = SimpleNamespace(fn=lambda first, second: None, rewriter=options, **own)
    assert [parameter.do_not_specialize for parameter in parameters(kernel)] == [False, True]
