"""A case is judged without pytest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

CODE = """
import sys
sys.modules["pytest"] = None  # an import of it raises
from conformance.cases.scenarios import ragged
from conformance.user_files.expected_failures import read_expected_failures
from conformance.judging.case_recorder import CaseEnded, CaseRecorder
from conformance.judging.conform import conform
from conformance.judging.harness import Harness
from conformance.judging.settings import Settings
from conformance.kernels.catalogue import get
from conformance.machine.gpus import Gpus

settings = Settings("quick", ("sm_80", "sm_90"), (), (), 0, None, Gpus(), None, 60.0, (), read_expected_failures())
harness, kernel = Harness(settings), get("mm")
config = kernel.configs[0]
recorder = CaseRecorder("mine::mm")
problem = kernel.problem("bf16", *ragged(kernel, config, "bf16", aligned=False))
run = conform(harness, recorder, kernel, problem, config=config, target=harness.targets[0])
assert run.trial is not None and run.artefact is not None
assert recorder.objection() is None
record = recorder.record()
print(record.status.value, record.kernel, record.target, record.executor)
try:
    target = harness.targets[0]
    conform(harness, CaseRecorder("mine::none"), kernel, problem, config=config, target=target, tma_store=True)
except CaseEnded as end:
    print(end.status.value, end.reason.code.value)
persistent, loops = get("mm_persistent_tma"), CaseRecorder("mine::loops")
problem = persistent.problem("bf16", *ragged(persistent, persistent.configs[0], "bf16", aligned=True))
conform(harness, loops, persistent, problem, config=persistent.configs[0], target=harness.targets[1])
print([one.record().observed.get("persistent") for one in (recorder, loops)])
harness.pool.close()
"""


def test_a_case_is_planned_compiled_run_and_judged():
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "-1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", CODE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert lines[0] == "pass mm sm_80 ttgir"
    assert lines[1].startswith("not-applicable ")
    assert lines[2] == "[None, True]"
