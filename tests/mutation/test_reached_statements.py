"""Every statement of the device functions has a case of the quick tier that runs it."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
from pathlib import Path

import pytest
from triton.runtime.jit import JITFunction

from tests.forked_python import executable

ROOT = Path(__file__).resolve().parents[2]

#: Modules of ``conformance.kernels.device``, and kernels whose cases reach all of their statements.
MODULES = (
    *("attention_backward", "attention_decode", "attention_forward", "attention_tiles", "conv", "descriptors"),
    *("fused_mm", "grouped_mm", "linear_attention", "microscaled_mm_batch", "persistent_tma", "pointer"),
    *("product_loops", "scaled_mm_blockwise", "split_k", "tiles"),
)
KERNELS = (
    *("baddbmm", "contiguous_addmm", "conv2d", "conv3d", "decompose_k_mm", "fused_mm", "grouped_mm", "int_mm"),
    *("conv2d_depthwise", "conv2d_input_gradient", "conv2d_weight_gradient", "conv_transpose2d"),
    *("mm_persistent", "mm_atomic_split_k", "mm_stream_k"),
    *("grouped_mm_descriptors", "scaled_grouped_mm_descriptors"),
    *("mm_plus_mm", "scaled_mm_blockwise", "scaled_mm_blockwise_descriptors", "mm_persistent_tma"),
    *("addmm_persistent_tma", "scaled_mm_blackwell_ws"),
    *("attention_backward", "attention_decode", "attention_descriptors", "attention_fp8_descriptors"),
    *("attention_packed", "attention_paged"),
    *("gated_linear_attention", "linear_attention_transposed"),
    *("microscaled_mm_batch_descriptors", "microscaled_mm_batch_scales_descriptors"),
    *("mm_scaled_k", "mm_reduce_split_k"),
    *("mm_chained", "mm_plus_mm_one_loop", "mm_fp16_acc", "dual_mm", "mm_with_sums"),
)
#: Statements that releases of Triton refuse: see the expected failure "triton-int8-dot-out-dtype".
REFUSED = {"tiles.accumulate: acc = tl.dot(a, converted, acc, input_precision=PRECISION)"}
#: Statements that larger tiers run.
LARGER_TIERS = {
    "conv.conv_depthwise: acc += tl.load(bias_ptr + ro, mask=in_columns)[None, :]",
    "split_k.gemm_stream_k: pass",
}


@pytest.fixture(scope="module")
def statements(tmp_path_factory):
    """The names of the device functions that ran, and a line for each statement that no case runs."""
    folder = tmp_path_factory.mktemp("statements")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "-1", "HIP_VISIBLE_DEVICES": "-1"}
    words = ["--no-gpu", "--unreached", f"--folder={folder}", *(f"--kernel={name}" for name in KERNELS)]
    command = [executable(), "-m", "conformance", "mutants", *words]
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode in (0, 1), ran.stderr
    baselines = map(json.loads, (folder / "baselines.jsonl").read_text().splitlines())
    return {name for each in baselines for name in each["lines"] or ()}, ran.stdout.split("\n")


@pytest.mark.long(55)
@pytest.mark.parametrize("module", MODULES)
def test_each_statement_has_a_case_that_runs_it(statements, module):
    functions, unreached = statements
    device = importlib.import_module(f"conformance.kernels.device.{module}")
    own = {
        f"{module}.{name}"
        for name, value in vars(device).items()
        if isinstance(value, JITFunction) and value.fn.__module__ == device.__name__
    }
    assert own
    assert own <= functions
    missed = {line for line in unreached if line.startswith(f"{module}.")}
    assert missed <= REFUSED | LARGER_TIERS
