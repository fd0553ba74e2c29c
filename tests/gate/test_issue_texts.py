"""An issue for each cause: what a maintainer needs, and nothing that the record does not say."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from made_records import STACK, Record, by, changed, failing, observing, record, then, write_run

from conformance.commands import CommandError
from conformance.commands.shared.history_options import issue_folder, write_issues
from conformance.commands.shared.policy_options import compared
from conformance.gate.verdict.known_findings import signature
from conformance.reproducers.script_request import file_name
from conformance.user_files.findings import Age, Comparison, Harm, KnownDefect

GOOD = [record(), record("addmm")]
WRONG = failing("numerics/transparent", "12 of 95040 elements are wrong: `tick` ``` fence")
BILL = {"LLVM commit": "0" * 40, "driver": "575.1"}


@pytest.fixture
def issues(tmp_path):
    """The texts of a candidate's issues by file name, and the comparison."""

    def write(after: list[Record], change=lambda comparison: comparison, before=GOOD, stages=None):
        old, new = ({**STACK, "triton": version} for version in ("3.7.1", "3.8.0"))
        folders = [
            write_run(tmp_path / name, records, stack=stack, bill=BILL)
            for name, records, stack in (("a", before, old), ("b", after, new))
        ]
        comparison = change(compared(*folders, ("triton==3.7.1", "triton==3.8.0")))
        files = write_issues(comparison, folders[1], tmp_path / "issues", tmp_path / "reproducers", stages)
        return {file.name: file.read_text() for file in files}

    return write


READS_EARLY = failing("executed/ttgir", "tmem_load reads early")


def section(text: str, title: str) -> str:
    return text.split(f"## {title}\n")[1].split("\n## ")[0]


def test_an_issue_has_what_a_maintainer_needs(issues):
    case = GOOD[0]["case"]
    ((name, text),) = issues(changed(GOOD, WRONG, kernel="mm")).items()
    assert re.fullmatch(r"NEW_FAIL-[0-9a-f]{12}\.md", name)
    title, _, rest = text.partition("\n")
    assert title == (
        "# Triton 3.8.0: wrong result in mm (bf16, sm_90): numerics/transparent: 12 of 95040 elements are wrong: "
        "`tick` ``` fence"
    )
    assert f"Signature: `{name.removesuffix('.md')}`" in rest
    versions = section(text, "Versions")
    assert "| triton | 3.7.1 | 3.8.0 |" in versions
    assert f"| LLVM commit | {'0' * 40} | {'0' * 40} |" in versions
    assert case in section(text, "Case")
    assert "Target: sm_90" in section(text, "Case")
    assert "Each element of the output is the exact result" in section(text, "Expected")
    assert "With Triton 3.7.1:\n\n```\npass" in section(text, "Expected")
    assert "With Triton 3.8.0:\n\n```\nfail" in section(text, "Seen")
    assert "numerics/transparent: 12 of 95040 elements are wrong" in section(text, "Seen")
    assert f"conformance run '--conformance-case={case}' --tier=default --target=sm_90\n" in text
    assert "Not asked." in section(text, "How old it is")
    assert "not asked" in section(text, "Guilty stage")
    assert "No script was written." in section(text, "How to show it")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (WRONG, "The kernel was run on a device"),
        (then(by("interpreter"), WRONG), "Triton's interpreter computed it from the source"),
        (then(by("ttgir"), WRONG), "Triton's interpreter computed it from the source"),
        (then(by("ttgir"), READS_EARLY), "The TTGIR of the compiled kernel was run"),
        (then(by("device"), READS_EARLY), "The TTGIR of the compiled kernel was run"),
        (failing("codegen/requires/WGMMA", "it is absent"), "The compiled code was read"),
        (observing("code", features=["TMA_LOAD", "TMA_STORE"]), "The compiled code was read"),
        (lambda one: one.update(status="crash", verdicts=[], observed={}), "The case ended before any verdict."),
        (lambda one: one["verdicts"].pop(), "The case was judged by less than with the good stack."),
        (lambda one: one.update(status="compile-error", verdicts=[], observed={}), "was to be compiled"),
    ],
)
def test_it_says_what_judged_the_case_and_names_a_device_only_if_one_did(issues, change, sentence):
    for text in issues(changed(GOOD, change, kernel="mm")).values():
        assert sentence in section(text, "How it was judged")
        on_device = sentence == "The kernel was run on a device"
        assert ("NVIDIA H200" in text, "575.1" in text) == (on_device, on_device)


def test_the_command_uses_a_gpu_only_if_the_case_did(issues):
    ((_, text),) = issues(changed(GOOD, then(by("ttgir"), WRONG), kernel="mm")).items()
    assert "--target=sm_90 --no-gpu\n" in text


def test_each_cause_has_a_text_with_its_age_and_its_stage(issues):
    after = changed(changed(GOOD, WRONG, kernel="mm"), failing("memory", "guard bytes were written"), kernel="addmm")

    def aged(comparison: Comparison) -> Comparison:
        groups = (replace(group, age=Age("new in 3.8.0", "triton")) for group in comparison.groups)
        return replace(comparison, groups=tuple(groups))

    stage = {("NEW_FAIL", "memory: guard bytes were written"): "TTIR to TTGIR, both directions agree"}
    texts = issues(after, aged, stages=stage)
    assert len(texts) == 2
    assert all("New in 3.8.0." in section(text, "How old it is") for text in texts.values())
    by_title = {text.partition("\n")[0]: text for text in texts.values()}
    (memory,) = (text for title, text in by_title.items() if "memory access outside the operands in addmm" in title)
    assert "TTIR to TTGIR" in section(memory, "Guilty stage")


def test_the_script_lies_beside_the_text_and_in_it(issues, tmp_path):
    case = GOOD[0]["case"]
    (tmp_path / "reproducers").mkdir()
    (tmp_path / "reproducers" / file_name(case)).write_text("print('''FAULT: ```''')\n")
    line = f"NEW_FAIL x in mm: reproducers/{file_name(case)}: confirmed, the fault shows in the candidate"
    tried = lambda comparison: replace(comparison, scripts=(line,))  # noqa: E731
    ((name, text),) = issues(changed(GOOD, WRONG, kernel="mm"), tried).items()
    script = name.replace(".md", ".py")
    assert (tmp_path / "issues" / script).read_text() == "print('''FAULT: ```''')\n"
    shown = section(text, "How to show it")
    assert f"The script `{script}` needs torch and triton alone: confirmed, the fault shows" in shown
    assert "````python\nprint('''FAULT: ```''')\n````" in shown  # its own fence does not end the block


def test_a_cause_about_code_is_the_title(issues):
    ((_, text),) = issues(changed(GOOD, observing("code", features=["TMA_LOAD", "TMA_STORE"]), kernel="mm")).items()
    assert text.startswith("# Triton 3.8.0: WGMMA lost in mm (bf16, sm_90)\n")


def test_a_path_of_this_machine_is_not_filed(issues):
    def named(comparison: Comparison) -> Comparison:
        side = replace(comparison.candidate, name="site=/home/me/secret")
        return replace(comparison, candidate=side)

    ((_, text),) = issues(changed(GOOD, WRONG, kernel="mm"), named).items()
    assert "/home/me" not in text


def test_a_script_that_was_not_written_is_explained(issues):
    after = changed(GOOD, WRONG, kernel="mm")

    def tried(comparison: Comparison) -> Comparison:
        begins = f"NEW_FAIL {comparison.groups[0].cause} in mm"
        return replace(comparison, scripts=(f"{begins}: no script for {GOOD[0]['case']}: it ended with 1",))

    ((_, text),) = issues(after, tried).items()
    assert "There is no script: for test_config_space.py" in section(text, "How to show it")


def test_a_safe_candidate_has_no_issue(issues, tmp_path):
    assert issues(GOOD) == {}
    assert not list((tmp_path / "issues").iterdir())


def test_a_lost_case_left_no_record(issues):
    ((_, text),) = issues(GOOD[:1]).items()
    assert "The case ended before any verdict." in section(text, "How it was judged")
    assert GOOD[1]["case"] in section(text, "Case")


def test_two_causes_of_one_signature_have_two_files(issues):
    def seven(line: int):
        return lambda one: one.update(
            status="compile-error", verdicts=[], observed={}, diagnosis=f"X.cpp:{line}: Assertion `a' failed"
        )

    after = changed(changed(GOOD, seven(12), kernel="mm"), seven(34), kernel="addmm")
    names = sorted(issues(after))
    assert len(names) == 2
    assert names[0].startswith(names[1].removesuffix(".md") + "-2") or names[1].startswith(names[0][:20])


def test_a_long_title_is_cut_and_a_hostile_text_stays_on_its_line(issues):
    after = changed(GOOD, failing("memory", "x" * 300 + "\n# forged"), kernel="mm")
    ((_, text),) = issues(after).items()
    title = text.partition("\n")[0]
    assert len(title) <= 152
    assert "\n# forged" not in text.replace("```\n", "").split("## Seen")[0]


def test_the_folder_is_new_or_empty_and_can_be_written(tmp_path):
    assert issue_folder(tmp_path / "a" / "b").is_dir()
    assert list((tmp_path / "a" / "b").iterdir()) == []
    with pytest.raises(CommandError, match=r"--issues .*: it is not empty: give a new folder"):
        issue_folder(tmp_path / "a")
    (tmp_path / "file").touch()
    with pytest.raises(CommandError, match=r"--issues .*file: it cannot be written"):
        issue_folder(tmp_path / "file")
    with pytest.raises(CommandError, match="it cannot be written"):
        issue_folder(Path("/proc/nowhere"))


def test_a_known_defect_says_where_it_is_reported(issues):
    defect = KnownDefect("mm-wrong", Harm.WRONG, "https://example.org/issues/11733", "triton 3.9.0")

    def known(comparison: Comparison) -> Comparison:
        (group,) = comparison.groups
        return replace(comparison, groups=(replace(group, findings=(replace(group.findings[0], defect=defect),)),))

    ((_, text),) = issues(changed(GOOD, WRONG, kernel="mm"), known).items()
    reported = section(text, "Already reported")
    assert "https://example.org/issues/11733\nmm-wrong; fixed in triton 3.9.0" in reported


def test_the_signature_is_that_of_the_json(issues):
    ((name, _),) = issues(changed(GOOD, failing("memory", "guard"), kernel="mm")).items()
    assert name == f"{signature('NEW_FAIL', 'memory: guard')}.md"
