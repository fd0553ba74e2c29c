"""Older releases are asked about a few cases of each cause: by runs that are there, by the user's, by new ones."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path

import pytest
from made_records import STACK, changed, failing, record, write_run
from packaging.version import Version

from conformance.commands.shared import finding_ages
from conformance.commands.shared.finding_ages import OlderRuns, older_source, with_ages
from conformance.commands.shared.policy_options import compared
from conformance.gate.stacks.environments import Environment
from conformance.gate.stacks.older_releases import IndexAnswerError
from conformance.gate.stacks.stack_file import StackError, parse
from conformance.gate.stacks.stack_runs import Abilities, RunError, StackRun

GOOD = [record(), record("addmm")]
WRONG = changed(GOOD, failing("numerics/transparent", "all are wrong"), kernel="mm")
UNFENCED = changed(GOOD, failing("codegen/order/fence", "a product reads a tile without a fence"), kernel="mm")
INDEX = [Version(text) for text in ("3.5.0", "3.6.0", "3.7.0", "3.7.1", "3.8.0", "3.9.0")]
CASE = GOOD[0]["case"]


def stack_run(folder: Path, stack: str, version: str, records=GOOD, harness="h", torch="2.13.0+cpu") -> StackRun:
    write_run(folder, records, stack={**STACK, "triton": version, "harness": harness, "torch": torch})
    return StackRun(Environment(parse(stack), folder, {}), folder, ("--tier", "quick", "--target", "sm_90"))


class Asked:
    """Stands in for the stacks: the records of each release's run, or the reason why there is none."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.ran, self.said = folder, [], []
        self.has: dict[str, object] = {}
        self.index: object = INDEX
        monkeypatch.setattr(OlderRuns, "run", lambda older, stack, cases: self._run(stack.name, cases))

    def _run(self, name: str, cases) -> Path:
        self.ran.append((name, tuple(cases)))
        has = self.has.get(name, GOOD)
        if isinstance(has, Exception):
            raise has
        folder = self.folder / f"run-{len(self.ran)}"
        stack_run(folder, "current", name.rpartition("=")[2], has)
        return folder

    def _index(self, name: str) -> list[Version]:
        if isinstance(self.index, Exception):
            raise self.index
        return self.index

    def ages(self, baseline: StackRun, candidate: StackRun, sources=()) -> list[str]:
        comparison = compared(baseline.folder, candidate.folder, ("a", "b"))
        older = OlderRuns((), self.folder, sources, contextlib.nullcontext, self.said.append, self._index)
        after = with_ages(comparison, baseline, candidate, older, {})
        assert after.safe == comparison.safe
        return [group.age.text for group in after.groups if group.age]


@pytest.fixture
def asked(tmp_path, monkeypatch):
    return Asked(tmp_path, monkeypatch)


@pytest.fixture
def pair(tmp_path):
    """Triton 3.7.1, which is installed, and 3.8.0, which is wrong."""
    return stack_run(tmp_path / "a", "current", "3.7.1"), stack_run(tmp_path / "b", "triton==3.8.0", "3.8.0", WRONG)


def test_the_baseline_answers_for_its_release_and_two_are_run(asked, pair):
    asked.has = {"triton==3.7.0": WRONG}
    assert asked.ages(*pair) == ["new in 3.8.0; 3.7.0 had it, too"]
    assert asked.ran == [("triton==3.7.0", (CASE,)), ("triton==3.6.0", (CASE,))]


def test_missing_fences_that_both_releases_have_are_as_old_as_the_baseline(asked, tmp_path):
    """One entry expects them in both, so nothing newly fails; the upgrade is still told what it has."""

    def unfenced(one):
        failing("codegen/order/fence", "wgmma at line 712 reads a tile without a fence")(one)
        reason = {"code": "known-defect", "subject": "triton-products-without-proxy-fence", "detail": ""}
        one.update(status="expected-fail", reason=reason)

    both = changed(GOOD, unfenced, kernel="mm")
    baseline = stack_run(tmp_path / "a", "triton==3.6.0", "3.6.0", both)
    candidate = stack_run(tmp_path / "b", "triton==3.7.0", "3.7.0", both)
    asked.has = {"triton==3.5.0": StackError("no network")}
    assert asked.ages(baseline, candidate) == ["as old as 3.6.0, not asked: 3.5.0 (no network)"]
    asked.has = {"triton==3.5.0": both}
    assert asked.ages(baseline, candidate) == ["as old as 3.5.0"]


@pytest.fixture
def both(tmp_path):
    """3.7.1 and 3.8.0, whose code has the same fault of order."""
    return tuple(
        stack_run(tmp_path / version, f"triton=={version}", version, UNFENCED) for version in ("3.7.1", "3.8.0")
    )


def test_a_release_that_cannot_be_had_is_not_asked(asked, both):
    asked.has = {
        "triton==3.7.0": StackError("stack 'triton==3.7.0' could not be installed: no network\nthe command was: pip"),
        "triton==3.6.0": RunError("it has none of the cases"),
    }
    (text,) = asked.ages(*both)
    assert text == (
        "as old as 3.7.1, not asked: 3.7.0 (stack 'triton==3.7.0' could not be installed: no network), "
        "not asked: 3.6.0 (it has none of the cases)"
    )


def test_the_users_own_runs_and_stacks_serve(asked, pair, tmp_path):
    folder = stack_run(tmp_path / "older", "current", "3.7.0", WRONG).folder
    asked.has = {"ptxas==12.9": OSError("disk full")}
    sources = [older_source(str(folder)), older_source("ptxas==12.9")]
    assert asked.ages(*pair, sources) == ["new in 3.8.0; 3.7.0 had it, too"]
    assert [name for name, _ in asked.ran] == ["ptxas==12.9", "triton==3.6.0"]
    assert asked.said == ["not asked: ptxas==12.9: disk full"]


def test_a_run_of_the_user_that_lacks_the_cases_does_not_stand_for_its_release(asked, pair, tmp_path):
    folder = stack_run(tmp_path / "older", "current", "3.7.0", GOOD[1:]).folder
    asked.has = {"triton==3.7.0": WRONG}
    assert asked.ages(*pair, [folder]) == ["new in 3.8.0; 3.7.0 had it, too"]
    assert asked.said == [f"not asked: {folder}: it lacks 1 of 1 case"]


def test_a_run_that_other_rules_judged_is_not_used(asked, pair, tmp_path):
    """Its harness may lack the check that fails."""
    other = stack_run(tmp_path / "other", "current", "3.7.1", harness="another"), pair[1]
    unfinished = write_run(tmp_path / "cut", GOOD, stack={**STACK, "triton": "3.7.0", "harness": "h"}, wall_s=None)
    asked.has = {"triton==3.6.0": GOOD, "triton==3.7.1": RunError("gone"), "triton==3.7.0": RunError("gone")}
    (text,) = asked.ages(*other, [unfinished])
    assert text == (
        "in 3.8.0, not in 3.6.0, not asked: 3.7.1 (another triton-conformance judged current), "
        f"not asked: 3.7.0 ({unfinished} is not whole)"
    )


def test_a_run_of_another_release_than_was_asked_for_does_not_count(asked, both, monkeypatch):
    """A package before the stack's own on the path would be judged in its place."""
    other = stack_run(asked.folder / "other", "current", "3.9.0").folder
    monkeypatch.setattr(OlderRuns, "run", lambda older, stack, cases: other)
    (text,) = asked.ages(*both)
    assert text == "as old as 3.7.1, not asked: 3.7.0, 3.6.0 (its environment has triton 3.9.0)"


def test_without_an_index_what_is_kept_is_asked(asked, pair, monkeypatch):
    asked.index = IndexAnswerError("pip did not name the releases of triton: offline")
    monkeypatch.setattr(finding_ages.older_releases, "kept_versions", lambda name, cache: [Version("3.6.0")])
    assert asked.ages(*pair) == [
        "in 3.8.0, not in 3.7.1, whether there is a release between them is not known",
    ]
    assert [name for name, _ in asked.ran] == ["triton==3.6.0"]


def test_a_baseline_with_another_torch_does_not_answer(asked, tmp_path, pair):
    candidate = stack_run(tmp_path / "c", "torch==2.14.1 triton==3.8.0", "3.8.0", WRONG)
    asked.ages(pair[0], candidate)
    assert [name for name, _ in asked.ran] == [f"torch==2.14.1 triton=={v}" for v in ("3.7.1", "3.7.0", "3.6.0")]


def test_a_torch_for_another_device_is_the_same_release(asked, tmp_path, pair):
    """torch brings its Triton along, and names the device in its version."""
    asked.index = [Version(text) for text in ("2.11.0", "2.12.1", "2.13.0", "2.14.1")]
    asked.has = dict.fromkeys(("torch==2.12.1", "torch==2.11.0"), RunError("too large"))
    candidate = stack_run(tmp_path / "c", "torch==2.14.1", "3.8.0", WRONG, torch="2.14.1+cu130")
    stack = dataclasses.replace(candidate.environment.stack, brings=("triton 3.8.0", "CUDA 13.0 build"))
    environment = dataclasses.replace(candidate.environment, stack=stack)
    candidate = dataclasses.replace(candidate, environment=environment)
    assert asked.ages(pair[0], candidate) == ["new in torch 2.14.1"]
    assert [name for name, _ in asked.ran] == ["torch==2.12.1", "torch==2.11.0"]


def test_nothing_is_asked_where_nothing_fails_or_no_version_differs(asked, tmp_path, pair):
    assert asked.ages(pair[0], stack_run(tmp_path / "c", "triton==3.8.0", "3.8.0")) == []
    assert asked.said == asked.ran == []
    assert asked.ages(pair[0], stack_run(tmp_path / "d", "numpy==2.3.5", "3.7.1", WRONG)) == []
    assert asked.said == ["how old the causes are cannot be asked: both stacks have the same versions"]
    assert asked.ages(pair[0], stack_run(tmp_path / "e", "triton==3.8.0", "main", WRONG)) == []
    assert asked.said[1:] == ["how old the causes are cannot be asked: the candidate names no version of triton"]


def test_what_is_no_older_release(tmp_path):
    with pytest.raises(StackError, match="is no run's folder: give one, or a folder of packages as site="):
        older_source(str(tmp_path))
    with pytest.raises(StackError, match="did you mean triton"):
        older_source("tritn==3.7.0")


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Returns the options of the run that was made for a stack."""
    options: list[list[str]] = []
    can = Abilities({}, ("sm_90",), {"sm_100": "too old"}, (), None, ())
    monkeypatch.setattr(finding_ages, "prepare", lambda stacks, *more: [Environment(stacks[0], tmp_path, {})])
    monkeypatch.setattr(finding_ages, "abilities", lambda environment: can)
    monkeypatch.setattr(finding_ages, "kept_run", lambda *arguments: None)
    monkeypatch.setattr(finding_ages, "listed", lambda environment, words: options.append([*words]) or {CASE})
    monkeypatch.setattr(finding_ages, "run", lambda environment, can, words, *more: (Path("new"), False))

    def ask(*words: str, cases=(CASE,)) -> Path:
        older = OlderRuns(words, tmp_path, (), lambda name: contextlib.nullcontext(print), print, list)
        return older.run(parse("triton==3.7.0"), cases)

    ask.options = options
    return ask


def test_only_the_chosen_cases_are_run(kept, tmp_path):
    assert kept("--tier", "quick", "--target", "sm_90", "--target", "sm_100", "--cases", "mine.txt") == Path("new")
    ((*words, file),) = kept.options
    assert words == ["--tier", "quick", "--target", "sm_90", "--cases"]
    assert Path(file).read_text() == f"{CASE}\n"


def test_a_stack_without_the_target_or_the_cases_says_so(kept, monkeypatch):
    with pytest.raises(RunError, match="it cannot compile for sm_100: too old"):
        kept("--target", "sm_100")
    monkeypatch.setattr(finding_ages, "listed", lambda environment, words: set())
    with pytest.raises(RunError, match="it has none of the cases"):
        kept("--tier", "quick")


def test_a_whole_run_that_is_kept_is_used(kept, monkeypatch):
    monkeypatch.setattr(finding_ages, "kept_run", lambda *arguments: Path("kept"))
    assert kept("--tier", "quick") == Path("kept")
    assert kept.options == []
