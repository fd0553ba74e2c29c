"""The number of a shard, from the option's text and from the variables of CI and batch systems."""

from __future__ import annotations

import pytest

from conformance.shards.numbers import MOST_SHARDS, ShardError, ShardNumber, shard_number

SLURM = {"SLURM_ARRAY_TASK_MIN": "1", "SLURM_ARRAY_TASK_MAX": "8", "SLURM_ARRAY_TASK_COUNT": "8"}
EVEN = {"SLURM_ARRAY_TASK_MIN": "2", "SLURM_ARRAY_TASK_MAX": "8", "SLURM_ARRAY_TASK_STEP": "2"}


@pytest.mark.parametrize(
    ("environ", "number", "count"),
    [
        ({"BUILDKITE_PARALLEL_JOB": "0", "BUILDKITE_PARALLEL_JOB_COUNT": "8"}, 1, 8),
        ({"BUILDKITE_PARALLEL_JOB": "7", "BUILDKITE_PARALLEL_JOB_COUNT": "8"}, 8, 8),
        ({"CI_NODE_INDEX": "1", "CI_NODE_TOTAL": "8"}, 1, 8),
        ({"CI_NODE_INDEX": "8", "CI_NODE_TOTAL": "8"}, 8, 8),
        ({"CIRCLE_NODE_INDEX": "0", "CIRCLE_NODE_TOTAL": "1"}, 1, 1),
        ({**SLURM, "SLURM_ARRAY_TASK_ID": "3"}, 3, 8),
        ({**EVEN, "SLURM_ARRAY_TASK_COUNT": "4", "SLURM_ARRAY_TASK_ID": "6"}, 3, 4),
        ({"JOB_COMPLETION_INDEX": "2", "CONFORMANCE_SHARD_COUNT": "8"}, 3, 8),
        ({"CONFORMANCE_SHARD_INDEX": "0", "CONFORMANCE_SHARD_COUNT": "8"}, 1, 8),
        # a job of GitLab that is not parallel has a count and no index
        ({"CI_NODE_TOTAL": "1", "CONFORMANCE_SHARD_INDEX": "1", "CONFORMANCE_SHARD_COUNT": "2"}, 2, 2),
        ({"CI_NODE_INDEX": "", "CIRCLE_NODE_INDEX": "1", "CIRCLE_NODE_TOTAL": "2"}, 2, 2),
    ],
)
def test_each_system_names_its_shard(environ, number, count):
    assert shard_number("auto", environ) == ShardNumber(number, count)


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        ({}, "no variable says which shard this is; give --shard 3/8, or set one of BUILDKITE_PARALLEL_JOB"),
        ({"CI_NODE_TOTAL": "1"}, "no variable says which shard this is"),
        ({"CI_NODE_TOTAL": "4"}, "CI_NODE_INDEX is not set, and GitLab needs CI_NODE_INDEX and CI_NODE_TOTAL"),
        ({"BUILDKITE_PARALLEL_JOB": "0"}, "BUILDKITE_PARALLEL_JOB_COUNT is not set"),
        ({"JOB_COMPLETION_INDEX": "0"}, "CONFORMANCE_SHARD_COUNT is not set, and Kubernetes needs"),
        ({"CONFORMANCE_SHARD_COUNT": "8"}, "CONFORMANCE_SHARD_INDEX is not set, and your workflow needs"),
        (
            {"SLURM_ARRAY_TASK_ID": "0", "SLURM_ARRAY_TASK_COUNT": "2"},
            "Slurm needs SLURM_ARRAY_TASK_ID, SLURM_ARRAY_TASK_MIN and",
        ),
        ({"CIRCLE_NODE_INDEX": "x", "CIRCLE_NODE_TOTAL": "4"}, "CIRCLE_NODE_INDEX='x': a number is required"),
        ({"CIRCLE_NODE_INDEX": "-1", "CIRCLE_NODE_TOTAL": "4"}, "CIRCLE_NODE_INDEX='-1': a number is required"),
        ({"CIRCLE_NODE_INDEX": "4", "CIRCLE_NODE_TOTAL": "4"}, "CircleCI counts from 0, so an index up to 3"),
        ({"CI_NODE_INDEX": "0", "CI_NODE_TOTAL": "4"}, "GitLab counts from 1, so an index up to 4"),
        (
            {"CONFORMANCE_SHARD_INDEX": "0", "CONFORMANCE_SHARD_COUNT": "0"},
            f"from 1 to {MOST_SHARDS} shards are possible",
        ),
        ({"CI_NODE_INDEX": "1", "CI_NODE_TOTAL": "0"}, f"from 1 to {MOST_SHARDS} shards are possible"),
        ({"SLURM_ARRAY_TASK_ID": "0", "SLURM_ARRAY_TASK_MIN": "0", "SLURM_ARRAY_TASK_COUNT": "0"}, "from 1 to"),
        ({"CI_NODE_INDEX": "1", "CI_NODE_TOTAL": "9" * 10}, "CI_NODE_TOTAL=9999999999: at most 9 digits"),
        (
            {"CI_NODE_INDEX": "1", "CI_NODE_TOTAL": "2", **SLURM, "SLURM_ARRAY_TASK_ID": "3"},
            "the variables of GitLab (CI_NODE_INDEX=1) and Slurm (SLURM_ARRAY_TASK_ID=3) are set: one system",
        ),
        ({**SLURM, "SLURM_ARRAY_TASK_ID": "9"}, "the index 9 of 8 indices from 1 to 8 in steps of 1"),
        ({**SLURM, "SLURM_ARRAY_TASK_MAX": "20", "SLURM_ARRAY_TASK_ID": "3"}, "these are not evenly spaced"),
        ({**EVEN, "SLURM_ARRAY_TASK_COUNT": "4", "SLURM_ARRAY_TASK_ID": "3"}, "in steps of 2: these are not evenly"),
    ],
)
def test_variables_that_name_no_shard_get_one_sentence(environ, sentence):
    with pytest.raises(ShardError, match=r"^--shard auto: [^\n]*$") as refused:
        shard_number("auto", environ)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("3", "the number of a shard and how many there are, such as 3/8, or auto"),
        ("0/8", "a shard from 1/8 to 8/8 is required"),
        ("9/8", "a shard from 1/8 to 8/8 is required"),
        ("1/0", f"from 1 to {MOST_SHARDS} shards are possible"),
        ("1/1001", f"from 1 to {MOST_SHARDS} shards are possible"),
        ("-1/8", "such as 3/8"),
        ("1 /8", "such as 3/8"),
        ("٣/8", "such as 3/8"),
    ],
)
def test_a_wrong_number_gets_one_sentence(text, sentence):
    with pytest.raises(ShardError) as refused:
        shard_number(text, {"CI_NODE_INDEX": "1", "CI_NODE_TOTAL": "2"})
    assert sentence in str(refused.value)
