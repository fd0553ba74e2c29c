"""Single templates, checks that only templates are launched, and of what is generated for Intel's GPUs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from conformance.inductor.compile.program import Generated
from conformance.inductor.source.source_checks import exactly, extern_calls, in_source, launched
from conformance.records import Verdict

#: The gradients that a convolution has, in the order of ``aten.convolution_backward``.
GRADIENTS = ("input", "weight", "bias")


def convolution_gradients(
    upstream: Tensor,
    x: Tensor,
    w: Tensor,
    *,
    names: Sequence[str],
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
) -> tuple[Tensor, ...]:
    """Returns the gradients ``names`` of a convolution (of :data:`GRADIENTS`) for that of its result,
    ``upstream``."""
    mask = [name in names for name in GRADIENTS]
    gradients = torch.ops.aten.convolution_backward(
        upstream, x, w, [w.shape[0]], stride, padding, dilation, False, [0] * len(stride), groups, mask
    )
    return tuple(gradient for gradient, asked in zip(gradients, mask, strict=True) if asked)


def depthwise_convolution(x: Tensor, w: Tensor, *, stride: int = 1, padding: int = 0) -> Tensor:
    """Returns a convolution in one dimension in which every channel has a filter of its own."""
    return torch.nn.functional.conv1d(x, w, None, stride, padding, 1, x.shape[1])


def bmm_of_one_matrix(a: Tensor, b: Tensor) -> Tensor:
    """The matrix ``a`` times each of the batch ``b``."""
    return torch.bmm(a.expand(b.shape[0], -1, -1), b)


def scaled_grouped_mm(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, offsets: Tensor | None = None, *, fast: bool
) -> Tensor:
    """One product per group of fp8 operands, each row of A and each column of B of a group with a scale, in bf16."""
    return torch._scaled_grouped_mm(a, b, scale_a, scale_b, offsets, out_dtype=torch.bfloat16, use_fast_accum=fast)


def scaled_grouped_product(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, offsets: Tensor | None = None, *, fast: bool
) -> Tensor:
    """Returns the right result of :func:`scaled_grouped_mm`, group by group, in the operands' dtype."""
    if offsets is None:
        return (a * scale_a[..., None]) @ (b * scale_b[:, None, :])
    groups = list(enumerate(itertools.pairwise([0, *offsets.tolist()])))
    if a.dim() == 2 and b.dim() == 2:  # split along k: the scales of one group after those of another
        rows, columns = scale_a.view(len(groups), -1, 1), scale_b.view(len(groups), 1, -1)
        return torch.stack([(a[:, i:j] * rows[g]) @ (b[i:j] * columns[g]) for g, (i, j) in groups])
    if a.dim() == 2:
        return torch.cat([(a[i:j] * scale_a[i:j, None]) @ (b[g] * scale_b[g]) for g, (i, j) in groups])
    return torch.cat([(a[g] * scale_a[g, :, None]) @ (b[:, i:j] * scale_b[i:j]) for g, (i, j) in groups], 1)


def templates_alone(generated: Generated, count: int) -> list[Verdict]:
    """``count`` kernels of templates are launched, each once, and nothing of ATen's is called."""
    templates = [kernel.name for kernel in generated.kernels if kernel.kind == "template"]
    launches = [name for name in launched(*generated.modules) if name.startswith("triton_tem_")]
    calls = extern_calls(*generated.modules)
    return [
        Verdict("templates", len(templates) == count, f"{', '.join(templates)}: {count} required"),
        Verdict("one launch of each", sorted(launches) == sorted(templates), ", ".join(launches)),
        Verdict("no extern kernel", not calls, ", ".join(calls)),
    ]


def check_source(generated: Generated, *, descriptors: bool) -> list[Verdict]:
    """One module for an xpu, which guards that device, allocates on it and launches one kernel of a template; the
    kernel is for an xpu, multiplies, and loads by ``descriptors`` or by pointers."""
    module = generated.modules[-1]
    kernels = [kernel for kernel in generated.kernels if kernel.kind == "template"]
    source = "\n".join(kernel.source for kernel in kernels)
    return [
        Verdict("modules", len(generated.modules) == 1, f"{len(generated.modules)}, 1 required"),
        Verdict("templates", len(kernels) == 1, f"{[kernel.name for kernel in generated.kernels]}, one required"),
        Verdict("library", not extern_calls(module), f"{extern_calls(module)}, none allowed"),
        in_source("guard", exactly(1, r"with torch\.xpu\._DeviceGuard\(0\)"), module),
        in_source("allocation", "CHECK: = empty_strided_xpu(", module),
        in_source("launch", exactly(1, r"triton_tem_\w+\.run\("), module),
        in_source("device", exactly(1, r"DeviceProperties\(type='xpu'"), source),
        in_source("product", "CHECK: tl.dot(", source),
        in_source("loads", exactly(2 if descriptors else 0, r"make_tensor_descriptor\("), source),
    ]
