"""Every statement of the attention kernels runs in a case of the quick tier: what no case runs, no case judges."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ("attention", "attention_backward", "attention_decode")


def test_every_statement_of_attention_is_reached(tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "-1", "HIP_VISIBLE_DEVICES": "-1"}
    command = [sys.executable, "-m", "conformance", "mutants", "--no-gpu", "--unreached", f"--folder={tmp_path}"]
    chosen = [f"--kernel={name}" for name in KERNELS]
    ran = subprocess.run([*command, *chosen], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr
