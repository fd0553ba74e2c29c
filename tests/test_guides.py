"""Every command of README.md and of docs/ is run, and what these pages name is there.

A page is followed like a reader would: its commands run in one shell, in order, in a folder that looks like a checkout.
``COMMANDS`` says of every command how. One that it does not have fails the test, so a new command needs a line here.
``SAMPLES`` are the answers that pages show. With ``EXPECTTEST_ACCEPT=1`` the pages get those of this run.
"""

from __future__ import annotations

import difflib
import itertools
import os
import re
import shlex
import shutil
import subprocess
import textwrap
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import pytest
import triton

from tests.forked_python import executable
from tests.releases import EARLIER, RELEASES

ROOT = Path(__file__).resolve().parents[1]
#: Those whose commands take longest first.
PAGES = [*sorted((ROOT / "docs").glob("*.md"), key=lambda page: page.stem != "failure"), ROOT / "README.md"]
#: What fenced blocks may be. Those of ``text`` and of ``toml`` have no commands.
LANGUAGES = ("sh", "yaml", "python", "toml", "text")
LARGEST_PICTURE = 150_000  # bytes
#: The one run that several pages begin with. It is run once; its folder is copied to where a page wants it.
SMALL = "conformance run --no-gpu --suite config_space --kernel int_mm"
#: Words that every run of the vendor's kernel begins with.
VENDOR = "conformance run --no-gpu --suite transposition --kernel vendor_mm --target sm_86"
#: Options that narrow a comparison of two Tritons to the cases of IN_TWO_MINUTES: its kept runs serve all others.
ITS_CASES = (
    "--no-gpu --tier default --target sm_90 --target gfx950 "
    "--suite config_space --kernel mm -k 'fp32 and many-k-blocks'"
)
IN_TWO_MINUTES = f"conformance gate --candidate 'triton==3.9.0' {ITS_CASES} --output"
ON_A_GPU = "pytest -n auto --pyargs conformance.suites"
GATE_IN_CI = "conformance gate --candidate 'triton==3.9.0'"
#: The case of docs/blame.md.
BLAMED = "test_microscaling.py::test_formats[microscaled_mm-32x64x64-s2-w4-formats=mxfp4.mxfp4.mn-out=bf16-sm_120]"
#: Options that leave one case, which is compiled soon.
ONE_CASE = "--no-gpu --suite config_space --kernel int_mm --config 64x32x32-s5-w8"
#: And one in the full tier.
ONE_FULL_CASE = "--no-gpu --target sm_90 --suite config_space --kernel int_mm -k '32x64x32-s5-w8 and several-tiles'"
#: The stack for which the installed Triton stands on pages that upgrade from the one in EARLIER.
NEWEST_NAME = f"triton=={list(RELEASES)[-1]}"
#: What a page's reader has before the first command.
PREPARED = {
    "ci.md": "cp -r conformance/data/mustpass lists",
    "scale.md": 'mkdir -p reports && cp -r "$SMALL" reports/last-week',
}


class Why(Enum):
    """The reasons why a command is not run word for word."""

    LONG = "it takes minutes"
    DOWNLOADS = "it needs a package index"
    CHANGES = "it changes the environment that the tests run in"
    ELSEWHERE = "it is run for another page, which expects the same of it"
    STANDS = "a word of it, such as CASE, stands for what the reader has"


@dataclass(frozen=True)
class Run:
    """It is run word for word and ends with ``status``; its output has the text ``says``."""

    status: int = 0
    says: str = ""


@dataclass(frozen=True)
class Copied:
    """It is SMALL for another folder: what SMALL left is copied there. Words that SMALL does not have are read."""


@dataclass(frozen=True)
class Instead:
    """``command`` is run in its place."""

    command: str
    why: Why
    says: str = ""


@dataclass(frozen=True)
class Beside:
    """It is run as if the Triton in EARLIER were installed, which also takes the place of 3.8.0. The pinned one takes
    the place of Triton 3.9.0 from an index. It asks no older releases and has the further options ``narrowed``. It ends
    with ``status`` and prints ``says``."""

    narrowed: str = ""
    status: int = 0
    says: str = ""


@dataclass(frozen=True)
class Read:
    """The command reads its words, checks them, and ends before its work."""

    why: Why


Way = Run | Copied | Instead | Beside | Read

#: In place of a whole run of a tier: SMALL, whose environment says that nothing narrowed it.
WHOLE = (
    'mkdir -p reports && cp -r "$SMALL" {0} && '
    "sed -i -E 's/\"(--suite|config_space|--kernel|int_mm)\",? *//g' {0}/environment.json"
)
PIP = "pip install --quiet --no-index --no-deps --no-build-isolation"
NEEDS_GPU = Run(2, "needs a GPU")
REQUIRES_GPU = Run(75, "--require device: no GPU was found")


@dataclass(frozen=True)
class Sample:
    """The first block of ``text`` of a page that the reader does not save. It has lines of the output of ``command``,
    from the one that begins with ``first``. The block ends before ``end``, or with the output. ``held`` is a pattern of
    the lines that must be those of each run. The others are of the last run that was accepted.
    """

    command: str
    first: str
    end: str = "\n"
    held: str = ""


COMMANDS: dict[str, dict[str, Way]] = {
    "README.md": {
        "make conformance": Read(Why.LONG),
        "make test": Read(Why.LONG),
        "conformance gate --candidate 'triton==3.9.0'": Read(Why.ELSEWHERE),
    },
    "index.md": {
        "make conformance": Read(Why.LONG),
        ". .venv/bin/activate": Run(),
        "conformance -h": Run(says="gate"),
    },
    "run.md": {
        "pip install .": Instead(f"{PIP} --dry-run .", Why.CHANGES),
        "pytest -n auto": Read(Why.LONG),
        "pytest --pyargs conformance.suites -n auto": Read(Why.LONG),
        "conformance run -n auto": Read(Why.LONG),
        f"{SMALL} --run-dir reports/first": Copied(),
        "conformance precompile --target sm_90 --out kernels": Instead(
            "conformance precompile --target sm_90 --out kernels --suite zero_size --kernel int_mm", Why.LONG, "kernels"
        ),
        "pytest -n auto --compiled=kernels --require device": REQUIRES_GPU,
        "conformance run -n auto --suite stress --tier full --require device": REQUIRES_GPU,
    },
    "scale.md": {
        "conformance run --no-gpu --tier quick --shard 3/8 --run-dir reports/shard-3": Read(Why.LONG),
        "conformance run --no-gpu --tier quick --shard auto --run-dir reports/shard": Instead(
            "CI_NODE_INDEX=1 CI_NODE_TOTAL=8 conformance run --no-gpu --tier quick --shard auto --collect-only -q "
            "--suite zero_size --kernel int_mm",
            Why.LONG,
        ),
        "conformance list --no-gpu --tier quick --shard 3/8": Read(Why.LONG),
        "conformance run --no-gpu --tier quick --shard 3/8 --durations-from reports/last-week --run-dir "
        "reports/shard-3": Read(Why.LONG),
        "conformance durations reports/last-week --output durations.json": Instead(
            'conformance durations "$SMALL" --output durations.json', Why.STANDS, "durations.json"
        ),
        "conformance run --no-gpu --tier quick --shard 3/8 --resume reports/shard-3": Instead(
            "conformance run --no-gpu --tier quick --shard 3/8 --resume reports/shard-3 || test $? = 4", Why.STANDS
        ),
        "pip install 'triton-conformance[ray]'": Instead(
            f"! {PIP} --dry-run '.[ray]' 2>&1 | grep 'does not provide the extra'", Why.CHANGES
        ),
        "conformance run --ray auto --run-dir reports/on-ray": Instead(
            "conformance run -h | grep -e '--ray ADDRESS'", Why.STANDS
        ),
        "ray job submit --working-dir . -- python -m conformance run --ray auto --run-dir /reports/on-ray": Instead(
            "conformance run -h | grep -e '--ray ADDRESS'", Why.ELSEWHERE
        ),
        "conformance verify shard-1.zip shard-2.zip --key public.pem": Read(Why.STANDS),
        "conformance merge reports/shard-* --output reports/whole": Read(Why.LONG),
        "conformance mustpass check reports/whole": Read(Why.LONG),
        "job=$(sbatch --parsable shard.sbatch)": Instead("sbatch() { echo 7; }; job=$(sbatch)", Why.ELSEWHERE),
        "sbatch --dependency=afterany:$job merge.sbatch": Instead('test "$job" = 7', Why.ELSEWHERE),
    },
    "judging.md": {
        "conformance list --fills": Run(says="| transparent |"),
        "conformance calibrate": NEEDS_GPU,
    },
    "mutants.md": {
        "conformance mutants --no-gpu --kernel int_mm --count 20": Read(Why.LONG),
        "conformance mutants --no-gpu --kernel int_mm --list": Read(Why.LONG),
        "conformance mutants --no-gpu --kernel int_mm --unreached": Read(Why.LONG),
    },
    "selftest.md": {
        "conformance selftest": Read(Why.LONG),
        "conformance selftest --no-gpu --output reports/test": Read(Why.LONG),
        "conformance selftest --fault wrong-tile": Read(Why.LONG),
        "conformance selftest --list": Run(says="wrong-tile"),
    },
    "watch.md": {
        "conformance watch -- pytest test_scale.py": Read(Why.ELSEWHERE),
        "conformance watch --target gfx942 --run-dir reports/amd -- pytest test_scale.py": Run(
            1, "reads 28 elements out of bounds, the first 1 elements behind the end of 'x_ptr'"
        ),
        "conformance watch --run-dir reports/before -- pytest test_scale.py": Run(1, "FAILED: 1 of 2 judged cases"),
        "conformance watch --run-dir reports/after -- pytest test_scale.py": Instead(
            "cp -r reports/before reports/after", Why.ELSEWHERE
        ),
        "conformance compare reports/before reports/after": Run(says="SAFE for 2 cases"),
        "conformance gate --candidate 'triton==3.9.0' --watch 'pytest test_scale.py'": Beside(says="SAFE for 2 cases"),
    },
    "screen.md": {
        "conformance screen": NEEDS_GPU,
        "conformance screen --seconds 480 --json screen.json": NEEDS_GPU,
        "conformance screen --gpus 4 --health-event event.json": Instead(
            "conformance screen --gpus 4 || test $? = 2", Why.STANDS
        ),
        "python -m conformance.screening.injection --count 1000 --seed 0": NEEDS_GPU,
    },
    "records.md": {
        f"{SMALL} --run-dir reports/before": Copied(),
        "conformance records reports/before": Run(says='{"schema":4,"case":"'),
        f"{SMALL} --seed 1 --run-dir reports/after": Copied(),
        "conformance report reports/after": Run(says="reports/after/report.html"),
        "conformance report reports/after --baseline reports/before": Run(says="reports/after/report.html"),
        "conformance compare reports/before reports/after": Run(says="SAFE"),
    },
    "failure.md": {
        "export PYTHONPATH=tests/bring_your_own": Run(),
        f"{VENDOR} -k row.row --run-dir reports/good": Run(says="2 passed"),
        "export VENDOR_SKIPPED_BLOCKS=1": Run(),
        f"{VENDOR} -k row.row --run-dir reports/bad": Run(1, "2 failed"),
        "conformance show 'row.row-static=False' --run reports/bad": Run(says="CAUSE the last k is dropped"),
        "conformance report reports/bad --baseline reports/good": Run(says="reports/bad/report.html"),
        "conformance reproduce 'row.row-static=False' --run reports/bad --output fault.py": Run(says="fault.py"),
        "python fault.py": Run(1, "FAULT: 2585 of 2585"),
        f"{VENDOR} -k row.row --run-dir reports/known --expected-failures known.toml": Run(says="2 xfailed"),
    },
    "gate.md": {
        f"{IN_TWO_MINUTES} reports/upgrade": Beside(status=1, says="NOT SAFE"),
        "conformance gate --candidate 'triton==3.9.0'": Beside(f"{ITS_CASES} --reproducers 0", 1, "NOT SAFE"),
        "conformance gate --baseline 'triton==3.8.0' --candidate 'triton==3.9.0' --tier full": Beside(
            ONE_FULL_CASE, says="SAFE for "
        ),
        "conformance gate --candidate 'triton==3.9.0' --kernel mm --config 64x64x32-s2-w4 -k ragged": Beside(
            "--no-gpu --suite config_space", says="SAFE for "
        ),
        "conformance gate --candidate 'triton==3.9.0' --no-gpu --cases cases.txt --repeats 20": Beside(
            "--repeats 2", says="SAFE for "
        ),
        "conformance gate --baseline 'ptxas==12.9' --candidate 'ptxas==13.0' --target sm_90 --target sm_100": Instead(
            f"conformance gate --candidate ptxas=newest/triton/backends/nvidia/bin/ptxas {ONE_CASE} --no-age",
            Why.DOWNLOADS,
            "SAFE for ",
        ),
        "conformance gate --baseline 'triton==3.9.0' --candidate 'triton==3.9.0 preview=fp-fusion-off'": Beside(
            ONE_CASE, says="SAFE for "
        ),
        f"{SMALL} --run-dir reports/monday": Copied(),
        f"{SMALL} --run-dir reports/tuesday": Copied(),
        "conformance compare reports/monday reports/tuesday": Run(says="SAFE"),
        "conformance compare reports/monday reports/tuesday --thresholds thresholds.toml": Run(says="SAFE"),
        "conformance compare reports/monday reports/tuesday --json reports/answer.json": Run(),
        "conformance compare reports/monday reports/tuesday --known reports/answer.json --issues reports/issues": Run(
            says="SAFE"
        ),
        "conformance gate --candidate 'triton==3.9.0' --known reports/answer.json --baseline-runs 5": Instead(
            "conformance gate --candidate site=newest --known reports/answer.json --baseline-runs 2 "
            f"{ONE_CASE} --no-age",
            Why.LONG,
            "SAFE for 1",
        ),
        f"{IN_TWO_MINUTES} reports/waived --waivers waivers.toml": Beside(says="3 regressions waived"),
        "conformance matrix stacks.toml": Instead(
            "sed -i 's/triton==3.8.0/current/; s/triton==3.9.0/site=newest/' stacks.toml && "
            f"conformance matrix stacks.toml {ONE_CASE} --no-age",
            Why.DOWNLOADS,
            "SAFE for 1",
        ),
        "conformance compare reports/monday reports/tuesday --html reports/change.html": Run(),
        "conformance reproduce CASE --run RUN --baseline RUN": Read(Why.STANDS),
    },
    "blame.md": {
        "conformance blame CASE --good current --bad 'triton==3.9.0'": Instead(
            f"conformance blame '{BLAMED}' --good current --bad site=newest", Why.DOWNLOADS, "feature SCALED_MMA"
        ),
    },
    "kernel.md": {
        "mkdir my-kernels": Run(),
        "cp tests/bring_your_own/vendor_kernels/__init__.py my-kernels/my_kernels.py": Run(),
        "pip install --no-deps ./my-kernels": Instead(
            f"{PIP} --target site ./my-kernels && export PYTHONPATH=$PWD/site", Why.CHANGES
        ),
        "conformance check-kernel vendor_mm --target sm_86": Run(says="of my-kernels 1.0"),
        f"{VENDOR} --run-dir reports/vendor": Run(says="8 passed"),
        "conformance show 'row.row-static=False' --run reports/vendor": Run(says="numerics/transparent"),
        "export PYTHONPATH=tests/bring_your_own": Run(),
        "conformance check-kernel scaled_rows --target sm_86": Run(says="config_space"),
    },
    "judge.md": {
        "cp tests/plain_files/files/matmul.py matmul.py": Run(),
        "conformance judge matmul.py": Run(says="matmul.py: 11 pass, 4 not-applicable"),
        "conformance judge matmul.py --operation mm --call 'matmul(a, b)' --target sm_86": Read(Why.LONG),
        "cp tests/plain_files/files/product.py tests/plain_files/files/product.conformance.toml .": Run(),
        "conformance judge product.py": Run(says="product.py: 7 pass"),
    },
    "device.md": {
        "conformance targets": Run(says="gfx942"),
        "conformance targets sm_90": Run(says="lacks tcgen05"),
        "export PYTHONPATH=tests/bring_your_own": Run(),
        "conformance targets sm_86": Run(says="Vendor board"),
        "conformance list --no-gpu --tier quick --suite transposition --kernel mm --target sm_86": Run(says="sm_86]"),
        "PYTHONPATH=tests/third_family conformance targets": Run(says="absent_1"),
        "conformance calibrate --output device.json": NEEDS_GPU,
    },
    "evidence.md": {
        "conformance run --no-gpu --tier quick --run-dir reports/whole -n auto": Instead(
            WHOLE.format("reports/whole"), Why.LONG
        ),
        "conformance mustpass write reports/whole --to lists": Run(says="quick-gfx1250-executed.txt: 2 cases"),
        "conformance mustpass check reports/whole --mustpass lists": Run(
            1, "claim: sm_90: int8 proven at level executed: 1 case"
        ),  # the other claims are not proven: SMALL has one kernel,
        "pip install 'triton-conformance[evidence]'": Instead(
            f"! {PIP} --dry-run '.[evidence]' 2>&1 | grep 'does not provide the extra'", Why.CHANGES
        ),
        "conformance keygen private.pem public.pem": Run(says="public.pem"),
        f"{SMALL} --run-dir reports/signed": Copied(),
        "conformance bundle reports/signed --key private.pem --output run.zip": Run(says="run.zip"),
        "conformance verify run.zip --key public.pem --allow-partial": Run(says="VERIFIED"),
        "conformance selftest --output reports/test": Read(Why.LONG),
        "conformance bundle reports/signed --key private.pem --selftest reports/test/selftest.json "
        "--output both.zip": Read(Why.LONG),
    },
    "ci.md": {
        "make conformance": Read(Why.LONG),
        "pip install .": Instead(f"{PIP} --dry-run .", Why.CHANGES),
        "conformance run --no-gpu --tier quick -n auto --run-dir reports/ci": Instead(
            WHOLE.format("reports/ci"), Why.LONG
        ),
        'cat reports/*/summary.md >> "$GITHUB_STEP_SUMMARY"': Run(),
        "make conformance-with TRITON=3.8.0": Read(Why.LONG),
        "make conformance-releases": Read(Why.LONG),
        f"{GATE_IN_CI} --waivers waivers.toml --mustpass lists --output reports/gate": Beside(
            f"{ITS_CASES} --reproducers 0", 1, "3 regressions waived"
        ),  # and no list holds for these two targets alone
        f"{ON_A_GPU} --tier default --require device --run-dir reports/gpu": REQUIRES_GPU,
        "conformance mustpass check reports/gpu": Read(Why.LONG),
        "conformance precompile --target sm_90 --out kernels": Instead(
            "conformance precompile --target sm_90 --out kernels --suite zero_size --kernel int_mm", Why.LONG, "kernels"
        ),
        f"{ON_A_GPU} --require device --compiled=kernels": REQUIRES_GPU,
        "pip install '.[stack]'": Instead(f"{PIP} --dry-run .", Why.CHANGES),
        "conformance run --no-gpu --tier quick -n auto --shard auto --run-dir reports/shard": Instead(
            "CONFORMANCE_SHARD_INDEX=0 CONFORMANCE_SHARD_COUNT=8 conformance run --no-gpu --tier quick --shard auto "
            "--collect-only -q --suite zero_size --kernel int_mm",
            Why.LONG,
        ),
        "conformance merge shards/* --output reports/whole": Read(Why.LONG),
        "conformance mustpass check reports/whole": Read(Why.LONG),
        "conformance run -n auto --tier full --require device --run-dir reports/release": REQUIRES_GPU,
        "conformance mustpass check reports/release --mustpass lists": Read(Why.LONG),
        "conformance bundle reports/release --key private.pem --mustpass lists --output release.zip": Read(Why.LONG),
        ".ci/run": Instead("bash -n .ci/run && test -x .ci/run", Why.LONG),
    },
    "configs.md": {
        f"{SMALL} --run-dir reports/sweep": Copied(),
        "conformance sweep reports/sweep": Run(says="| int_mm | sm_90 | 1 | 1 |"),
        "conformance sweep reports/sweep --spills": Run(),
        "conformance run --no-gpu --suite live_tables --run-dir reports/tables": Run(says="5 passed"),
        "conformance show 'test_tables[cuda]' --run reports/tables --json": Run(says='"since_july_2025"'),
        "pytest -n auto --suite config_space --tier full": Read(Why.LONG),
        "pytest -n auto --suite config_space --tier full --compile-only --target sm_90 --target gfx942": Read(Why.LONG),
        "pytest -n auto --suite random_problems --tier full": Read(Why.LONG),
        "conformance list --tier quick --suite transposition --kernel mm --left-out": Run(says="tier (quick)"),
        "conformance list --tier quick --why 'test_split_k.py::test_splits[decompose_k_mm-bf16-32x32x16-s1-w2-splits=2-"
        "order=row.row-sm_90]'": Run(says="not in the quick tier: decompose_k_mm has weight 1"),
    },
    "inductor.md": {
        "pytest -n auto --suite inductor_gemm --suite inductor_operations --require device": REQUIRES_GPU,
        "pytest -n auto --suite inductor_gemm --no-gpu --target sm_100": Read(Why.LONG),
        "pytest -n auto --suite inductor_gemm --no-gpu --target gfx942": Read(Why.LONG),
    },
    "commands.md": {
        f"{SMALL} --run-dir reports/first": Copied(),
        "conformance show CASE": Instead("conformance show 64x32x32-s5", Why.STANDS, "numerics/"),
        "conformance show CASE --json": Instead("conformance show 64x32x32-s5 --json", Why.STANDS, '"status": "pass"'),
        "conformance records reports/first": Run(says='{"schema":4,"case":"'),
        "conformance report reports/first": Run(says="reports/first/report.html"),
        "conformance reproduce CASE": Read(Why.STANDS),
        "conformance judge FILE": Read(Why.STANDS),
        "conformance list -k tma": Run(says="mm_persistent_tma"),
        "conformance list --tier quick --left-out": Read(Why.LONG),
        "conformance list --fills": Read(Why.ELSEWHERE),
        "conformance kernels": Run(says="mm_persistent_tma"),
        "conformance kernels --markdown": Read(Why.ELSEWHERE),
        "conformance targets": Read(Why.ELSEWHERE),
        "conformance targets sm_90": Read(Why.ELSEWHERE),
        "conformance check-kernel mm": Run(says="transposition"),
        "conformance watch -- pytest tests/kernels": Read(Why.ELSEWHERE),
        "conformance gate --candidate 'triton==3.9.0'": Read(Why.ELSEWHERE),
        "conformance blame CASE --good current --bad current": Read(Why.STANDS),
        "conformance compare reports/monday reports/tuesday": Read(Why.STANDS),
        "conformance matrix stacks.toml": Read(Why.ELSEWHERE),
        "conformance mustpass check reports/first": Run(1, "missing"),
        "conformance mustpass write reports/first --to lists": Run(2, "was narrowed by"),
        "conformance merge reports/shard-1 reports/shard-2 --output reports/whole": Instead(
            "conformance merge reports/first --output reports/whole || test $? = 2", Why.STANDS
        ),
        "conformance durations reports/first --output d.json": Run(says="d.json"),
        "conformance precompile --target sm_90 --out kernels": Read(Why.LONG),
        "conformance sweep reports/first": Run(says="int_mm"),
        "conformance calibrate --output device.json": NEEDS_GPU,
        "conformance benchmark": NEEDS_GPU,
        "conformance mutants --count 100": Read(Why.LONG),
        "conformance screen --gpus 1": Instead("conformance screen || test $? = 2", Why.STANDS),
        "conformance selftest --no-gpu": Read(Why.LONG),
        "conformance keygen private.pem public.pem": Run(),
        "conformance bundle reports/first --key private.pem --output run.zip": Run(),
        "conformance verify run.zip --key public.pem --allow-partial": Run(says="VERIFIED"),
    },
}

SAMPLES = {
    "gate.md": Sample(
        f"{IN_TWO_MINUTES} reports/upgrade",
        "NOT SAFE",
        "  MORE_SHARED_MEMORY",
        r"NOT SAFE|Regressions|Warnings|  [A-Z]+(_[A-Z]+)+  ",
    ),
    "failure.md": Sample(
        "conformance show 'row.row-static=False' --run reports/bad", "    FAIL exact/transparent", end="    tiles"
    ),
    "blame.md": Sample(
        "conformance blame CASE --good current --bad 'triton==3.9.0'",
        "feature SCALED_MMA yes",
        "not swapped",
        "feature|  both",
    ),
}

#: Reads the words of a command line as the command does, with all of its checks, and ends before the work begins.
READER = """
import importlib, sys
import pytest
from conformance import cli
from conformance.commands.shared import gate_runs

class Stop:
    @pytest.hookimpl(trylast=True)
    def pytest_configure(self):
        pytest.exit("understood", returncode=0)

main, (program, *words) = pytest.main, sys.argv[1:]
pytest.main = lambda words, plugins=None: main(words, plugins=[*(plugins or ()), Stop()])
gate_runs.runs = lambda *arguments: sys.exit(0)
if program == "pytest":
    sys.exit(pytest.main(words))
if words[0] not in ("run", "list", "gate", "matrix") and words[0] in cli.COMMANDS:
    importlib.import_module("conformance.commands." + words[0].replace("-", "_")).run = lambda arguments: 0
sys.exit(cli.main(words))
"""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page. ``language``: the word after the fence; ``file``: where the reader saves it, or ''."""

    language: str
    text: str
    file: str


def blocks(text: str) -> list[Block]:
    fenced = re.finditer(
        r"(?:[Ss]ave\s+this\s+as\s+`([^`]+)`:\n\n)?^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL
    )
    return [Block(match[2], match[3], match[1] or "") for match in fenced]


def commands(block: Block) -> list[str]:
    """The commands of a block, each on one line and without its comment: of a workflow those that it runs. A block that
    the reader saves has none: it is used on another machine."""
    if block.file:
        return []
    text = block.text.replace("\\\n", " ")
    if block.language == "yaml":
        lines = re.findall(r"^[ -]*run: (.+)$", text, re.MULTILINE)
    else:
        lines = text.splitlines() if block.language == "sh" else []
    stripped = (re.sub(r"(^|\s+)#\s.*$", "", line).strip() for line in lines)
    return [re.sub(r"\s+", " ", line) for line in stripped if line]


def all_commands(text: str) -> list[str]:
    return [command for block in blocks(text) for command in commands(block)]


def wrong_table(text: str, ways: dict[str, Way]) -> list[str]:
    """Returns the commands that only the page ``text`` or its part of COMMANDS has, and blocks in which a command may
    hide."""
    written = all_commands(text)
    wrong = [
        f"a block is {each.language!r}, not of {LANGUAGES}" for each in blocks(text) if each.language not in LANGUAGES
    ]
    wrong += [f"COMMANDS does not know: {command}" for command in written if command not in ways]
    return wrong + [f"the page does not have: {command}" for command in ways if command not in written]


def sample_of(text: str) -> str:
    """The sample answer that a page shows."""
    return next(block.text for block in blocks(text) if block.language == "text" and not block.file)


def answered(output: str, sample: Sample) -> str:
    """The part of ``output`` that a page shows of it, without what indents all its lines; "" if it has no such part."""
    lines = output.splitlines(keepends=True)
    first = next((number for number, line in enumerate(lines) if line.startswith(sample.first)), len(lines))
    shown = itertools.takewhile(lambda line: not line.startswith(sample.end), lines[first + 1 :])
    return textwrap.dedent("".join(lines[first : first + 1] + list(shown))).rstrip("\n") + "\n"


def wrong_sample(shown: str, answer: str, sample: Sample) -> list[str]:
    """Lines that a page shows and this run did not print, and the reverse; of those that ``sample`` holds."""
    held = [[line for line in text.splitlines() if re.match(sample.held, line)] for text in (shown, answer)]
    return [line for line in difflib.ndiff(*held) if line[0] in "+-"] if held[0] != held[1] else []


def wrong_links(page: Path, text: str) -> list[str]:
    """Links of a page to files that are not there, and pictures without a description or too large."""
    wrong = []
    for picture, words, target in re.findall(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)", text):
        path = page.parent / target.partition("#")[0]
        if "://" in target:
            continue
        if not path.exists():
            wrong.append(f"{target}: there is no such file")
        elif picture and (len(words) < 40 or path.stat().st_size > LARGEST_PICTURE):
            wrong.append(f"{target}: a picture has at most {LARGEST_PICTURE} bytes and is described by some words")
    return wrong


class Follower:
    """Follows pages in ``folder``, which looks like a checkout with the harness installed. With ``upgrades`` the Triton
    in EARLIER seems to be installed, and the folder ``newest`` has the pinned one. All pages share the ``newest`` next
    to ``small``, so that a page finds the runs that another one kept."""

    def __init__(self, folder: Path, small: Path | None, *, upgrades: bool = False) -> None:
        self.folder = folder
        for name in ("Makefile", "pyproject.toml", "conftest.py", "constraints.txt", "README.md", "LICENSE", ".ci"):
            (folder / name).symlink_to(ROOT / name)
        for name in ("conformance", "tests"):
            (folder / name).symlink_to(ROOT / name)
        if small is None:
            (folder / "newest").mkdir()
            for path in Path(triton.__file__).parents[1].glob("triton*"):
                (folder / "newest" / path.name).symlink_to(path)
        else:
            (folder / "newest").symlink_to(small.parent / "newest")
        installed = f"{EARLIER}:{ROOT}" if upgrades else ROOT
        tools = folder / ".venv" / "bin"
        tools.mkdir(parents=True)
        for name, module in (("conformance", "conformance"), ("pytest", "pytest"), ("pip", "pip"), ("python", "")):
            words = f'{shlex.quote(executable())} {f"-m {module}" if module else ""} "$@"'
            (tools / name).write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{installed}" exec {words}\n')
            (tools / name).chmod(0o755)
        (tools / "activate").write_text(f"PATH={tools}:$PATH\n")
        self.outputs: dict[str, str] = {}
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TRITON_INTERP"))}
        kept.pop("PYTHONPATH", None)
        summary = folder / "step-summary.md"
        self.environment = {**kept, "PATH": f"{tools}:{kept['PATH']}", "SMALL": str(small), "OMP_NUM_THREADS": "1"}
        self.environment |= {"PYTEST_ADDOPTS": "--conformance-reruns=0"}
        self.environment |= {"CUDA_VISIBLE_DEVICES": "", "GITHUB_STEP_SUMMARY": str(summary)}

    def shell(self, script: str) -> subprocess.CompletedProcess[str]:
        command = ["bash", "-c", script]
        return subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False, timeout=1800
        )

    def follow(self, text: str, ways: dict[str, Way]) -> list[str]:
        """A sentence for each command of the page ``text`` that does not do what ``ways`` says."""
        results = self.folder / "results"
        shutil.rmtree(results, ignore_errors=True)
        results.mkdir()
        lines: list[str] = []
        expected: list[tuple[str, int, str]] = []
        for block in blocks(text):
            if block.file:
                lines.append(f"cat > {block.file} <<'END_OF_FILE'\n{block.text}END_OF_FILE")
            steps = [(command, *self.in_shell(command, ways[command])) for command in commands(block)]
            if block.language == "python":
                run = f"python {block.file}" if block.file else f"python -c {shlex.quote(block.text)}"
                steps = [(block.text, run, 0, "")]
            for command, run, status, says in steps:
                number = len(expected)
                lines.append(f'{{ {run}\n}} > results/{number} 2>&1; echo $? > "{results}/{number}.status"')
                expected.append((command, status, says))
        self.shell("\n".join(lines))
        faults = []
        for number, (command, status, says) in enumerate(expected):
            output = (results / str(number)).read_text() if (results / str(number)).exists() else "not reached"
            ended = (results / f"{number}.status").read_text() if output != "not reached" else "-1"
            self.outputs[command] = output.replace("  site=newest", NEWEST_NAME).replace("site=newest", NEWEST_NAME)
            if int(ended) != status or says not in output:
                faults.append(f"{command}: status {ended.strip()}, expected {status} and {says!r}:\n{output[-1500:]}")
        return faults

    def in_shell(self, command: str, way: Way) -> tuple[str, int, str]:
        """Returns the shell's form of ``command``, the status that it must end with, and text that it must print."""
        if isinstance(way, Run):
            return command, way.status, way.says
        if isinstance(way, Instead):
            return way.command, 0, way.says
        if isinstance(way, Beside):
            beside = re.sub(rf"'{NEWEST_NAME}( .*?)?'", r'"site=newest\1"', command).replace(
                "'triton==3.8.0'", "current"
            )
            return f"{beside} --no-age {way.narrowed}", way.status, way.says
        if isinstance(way, Copied):
            options, place = command.split(" --run-dir ")
            copy = f'mkdir -p reports && cp -r "$SMALL" {place}'
            return (copy if options == SMALL else f"{self.read(command)} && {copy}"), 0, ""
        return self.read(command), 0, ""

    def read(self, command: str) -> str:
        program = command.split()[0]
        if program == "make":
            return command.replace("make", "make --dry-run", 1)
        assert program in ("conformance", "pytest")
        return f"python -c {shlex.quote(READER)} {command}"


@pytest.fixture(scope="session")
def small(tmp_path_factory) -> Path:
    """The folder that SMALL leaves."""
    folder = tmp_path_factory.mktemp("small")
    done = Follower(folder, None).shell(f"{SMALL} --run-dir run")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "run"


def _upgrades(page: Path | None) -> bool:
    ways = COMMANDS.get(page.name, {}).values() if page else ()
    return any(isinstance(way, Beside) or "newest" in getattr(way, "command", "") for way in ways)


@pytest.fixture
def follower(request, tmp_path, small) -> Follower:
    """Has what the commands that are only read ask for: files that other pages have the reader save."""
    upgrades = _upgrades(request.node.callspec.params.get("page") if hasattr(request.node, "callspec") else None)
    if upgrades and not EARLIER.exists():
        pytest.skip(f"needs a second Triton in {EARLIER}: make test installs it")
    follower = Follower(tmp_path, small, upgrades=upgrades)
    for page in PAGES:
        for block in blocks(page.read_text()):
            if block.file and "/" not in block.file:
                (tmp_path / block.file).write_text(block.text)
    return follower


of_every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@pytest.mark.long(200)
@of_every_page
def test_every_command_of_a_page_does_what_the_page_says(follower, page):
    ways = COMMANDS.get(page.name, {})
    follower.shell(PREPARED.get(page.name, ""))
    assert follower.follow(page.read_text(), ways) == []
    if sample := SAMPLES.get(page.name):
        shown, answer = sample_of(page.read_text()), answered(follower.outputs[sample.command], sample)
        if os.environ.get("EXPECTTEST_ACCEPT") == "1":
            page.write_text(page.read_text().replace(shown, answer))
        else:
            assert wrong_sample(shown, answer, sample) == [], "EXPECTTEST_ACCEPT=1 gives the page this run's answer"


@of_every_page
def test_every_command_of_a_page_is_known(page):
    assert wrong_table(page.read_text(), COMMANDS.get(page.name, {})) == []


@of_every_page
def test_every_link_of_a_page_leads_somewhere(page):
    assert wrong_links(page, page.read_text()) == []


def test_a_new_command_and_one_that_is_gone_are_seen():
    page = "```sh\nconformance show CASE   # a case\n```\n```yaml\n - run: make all\n```\n```bash\nls\n```\n"
    assert wrong_table(page, {"conformance show CASE": Run(), "make test": Run()}) == [
        f"a block is 'bash', not of {LANGUAGES}",
        "COMMANDS does not know: make all",
        "the page does not have: make test",
    ]


def test_a_sample_that_is_no_answer_of_its_command_is_seen():
    saved = "Save this as `a.txt`:\n\n```text\nx\n```\n"
    page = f"```sh\nconformance gate\n```\n{saved}```text\nSAFE\n  MORE_SPILLS  1\nt 5\n```\n"
    sample = Sample("conformance gate", "SAFE", "Information", r"SAFE|  [A-Z]+(_[A-Z]+)+  ")
    output = "[1/5] current\nSAFE\n  MORE_SPILLS  {}\nt {}\n\nInformation\n  FIXED\n"
    assert sample_of(page) == "SAFE\n  MORE_SPILLS  1\nt 5\n"
    assert answered(output.format(1, 5), sample) == sample_of(page)
    assert wrong_sample(sample_of(page), answered(output.format(1, 7), sample), sample) == []
    wrong = wrong_sample(sample_of(page), answered(output.format(2, 5), sample), sample)
    assert [line for line in wrong if line[0] != "?"] == ["-   MORE_SPILLS  1", "+   MORE_SPILLS  2"]
    assert wrong_sample(sample_of(page), answered("NOT RUN\n", sample), sample) == ["- SAFE", "-   MORE_SPILLS  1"]


def test_a_wrong_link_and_a_picture_without_words_are_seen():
    page = "[a](gate.md#more) [b](gat.md) [c](https://example.org/x) ![d](pictures/gate.png)"
    assert [line.partition(":")[0] for line in wrong_links(ROOT / "docs" / "run.md", page)] == [
        "gat.md",
        "pictures/gate.png",
    ]


#: Commands that a guide must not have, and text of the answer.
WRONG: list[tuple[str, Way, str]] = [
    ("conformance fly", Read(Why.LONG), "there is no such choice"),
    ("conformance benchmark --round 3", Read(Why.LONG), "--round: there is no such option"),
    ("conformance gate --canddate 'triton==3.9.0'", Read(Why.DOWNLOADS), "--candidate"),
    ("conformance gate --candidate 'tritn==3.9.0'", Read(Why.DOWNLOADS), "did you mean triton?"),
    ("conformance run --teir quick", Read(Why.LONG), "did you mean --tier?"),
    ("pytest --pyargs conformance.suites --suite transpositoin", Read(Why.LONG), "did you mean transposition?"),
    (f"{SMALL} --sed 1 --run-dir reports/after", Copied(), "did you mean --seed?"),
    ("make conformence", Read(Why.LONG), "No rule to make target"),
    ("conformance targets sm_9", Run(), "did you mean sm_90?"),
    ("conformance -h", Run(says="fly"), "expected 0 and 'fly'"),
    ("conformance -h", Run(1), "status 0"),
]


def test_wrong_python_is_seen(follower):
    (fault,) = follower.follow("```python\nfrom conformance.targets import Aim\n```\n", {})
    assert "cannot import name 'Aim'" in fault


def test_wrong_commands_are_seen(follower):
    for command, way, message in WRONG:
        (fault,) = follower.follow(f"```sh\n{command}\n```\n", {command: way})
        assert message in fault
