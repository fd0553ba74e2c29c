"""The HTML report holds what the records say, nothing that they smuggle, and no file that they merely name."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
import zlib
from pathlib import Path

import pytest

from conformance.commands import CommandError, report
from conformance.records import (
    CaseRecord,
    Fault,
    FaultClass,
    Reading,
    Reason,
    ReasonCode,
    Rerun,
    RunInfo,
    Status,
    Verdict,
)
from conformance.reporting import html, html_data, listed_cases
from conformance.reporting.html import SCRIPTS, STYLES, render
from conformance.reporting.html_data import ReportedRun
from conformance.reporting.sweep import rows
from conformance.user_files.findings import Comparison, Finding, Group, Kind, Side
from tests.command_runs import JUDGED, call, write_run

HOSTILE = "</script><script>alert(1)</script><!--\u2028&"


def info(**changes) -> RunInfo:
    defaults = {
        "id": "run-1",
        "started": "2026-01-02T03:04:05+00:00",
        "tier": "quick",
        "seed": 0,
        "stack": {"triton": "3.6.0"},
    }
    return RunInfo(**{**defaults, **changes})


def case(name: str, status: Status = Status.PASS, **fields) -> CaseRecord:
    verdicts = JUDGED if status is Status.PASS else ()
    return CaseRecord(name, "a", status, **{"kernel": "mm", "target": "sm_90", "verdicts": verdicts, **fields})


def run_of(folder: Path, *records: CaseRecord, **changes) -> ReportedRun:
    return ReportedRun(folder, Reading(records), info(**changes))


def data(page: str, name: str):
    """The value of a data element of the page, unpacked if it is packed."""
    (text,) = re.findall(f'<script type="application/json" id="{name}">(.*?)</script>', page)
    value = json.loads(text)
    return zlib.decompress(base64.b64decode(value)).decode() if isinstance(value, str) else value


def test_every_status_has_a_meaning_and_a_rank():
    assert set(listed_cases.RANKED) == set(Status)


def test_the_page_of_a_case_has_every_field_of_its_record():
    fault = Fault(FaultClass.INFRASTRUCTURE, "killed", "it was killed")
    fields = {field.name: {"id": field.name} for field in dataclasses.fields(CaseRecord)}
    fields |= {"status": Status.FAIL, "reason": Reason(ReasonCode.DTYPE, "a", "b"), "verdicts": (Verdict("c", False),)}
    fields |= {"case": "test_a.py::test_b[c]", "gpu": "0", "fault": fault, "target": "sm_90", "seed": 1}
    fields |= {"tier": "quick", "executor": "device", "kernel": "mm"}
    fields |= {"reruns": (Rerun(Status.PASS), Rerun(Status.FAIL, ("c",), fault=fault))}
    page = json.loads(html_data.line(CaseRecord(**fields)))
    assert page.keys() == fields.keys()
    assert page["fault"] == {"fault_class": "infrastructure", "kind": "killed", "text": "it was killed"}
    assert page["reruns"] == ["pass", "fail (c), which infrastructure broke"]


@pytest.mark.parametrize(
    ("records", "selected", "counts"),
    [
        ([case("p"), case("n", Status.NOT_RUN), case("a", Status.NOT_APPLICABLE)], 3, (1, 2, 0)),
        ([case("p")], 3, (1, 3, 2)),
        ([case("p"), case("p")], 2, (2, 3, 1)),
    ],
    ids=["a case that was not run is claimed", "so is one without a record", "a double record hides none"],
)
def test_what_was_selected_is_claimed_and_only_what_passed_counts(tmp_path, records, selected, counts):
    run = run_of(tmp_path, *records, selected=selected)
    head = html_data.header(run, listed_cases.listed_cases(run.reading.records))
    assert (head["passed"], head["claimed"], head["unrecorded"]) == counts


def test_the_worst_status_comes_first(tmp_path):
    records = [case("a"), case("b", Status.FAIL), case("c", Status.CRASH), case("d", Status.NOT_RUN)]
    columns = json.loads(data(render(run_of(tmp_path, *records)), "columns"))
    assert columns["case"] == ["c", "b", "d", "a"]


def test_the_note_of_a_case_is_the_first_line_that_explains_it():
    failed = (Verdict("memory", True), Verdict("numerics/randn", False, "12 wrong"))
    reason = Reason(ReasonCode.NO_DEVICE, "gpu", "none here")
    records = [case("a", diagnosis="first\nsecond"), case("b", verdicts=failed), case("c", reason=reason), case("d")]
    columns = html_data.columns(records)
    notes = [columns["tables"]["note"][number] for number in columns["note"]]
    assert notes == ["first", "numerics/randn: 12 wrong", "gpu: none here", ""]


def test_records_cannot_end_their_element(tmp_path):
    hostile = case(HOSTILE, Status.FAIL, kernel=HOSTILE, target=HOSTILE, diagnosis=HOSTILE, repro=HOSTILE)
    page = render(run_of(tmp_path, hostile, id=HOSTILE, problems=(HOSTILE,), stack={HOSTILE: HOSTILE}))
    assert "alert(1)" in page  # it is there, as data
    texts = re.findall('<script type="application/json" id="[a-z0-9-]*">(.*)</script>\n', page)
    assert len(texts) == 6
    assert not set("<>&\u2028\u2029") & set("".join(texts))
    assert data(page, "head")["run"]["problems"] == [HOSTILE]


def test_only_the_page_s_own_script_and_style_may_run(tmp_path):
    page = render(run_of(tmp_path, case("a")))
    (policy,) = re.findall('Content-Security-Policy" content="([^"]*)"', page)
    for kind in ("script", "style"):
        (text,) = re.findall(f"<{kind}>(.*?)</{kind}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy


def test_the_page_refers_to_nothing_outside_itself(tmp_path):
    page = render(run_of(tmp_path, case("a")))
    assert re.findall(r'<(?:link|img|iframe|script src)|src="|url\(|@import|fetch\(|innerHTML|\beval\b', page) == []
    assert set(re.findall(r"https?://[^\s\"'`)]*", page)) == {"http://www.w3.org/2000/svg"}  # a name, not an address


def test_every_script_and_style_is_part_of_the_page(tmp_path):
    folder = Path(html_data.__file__).parent / "assets"
    assert {path.stem for path in folder.glob("*.js")} == set(SCRIPTS)
    assert {path.stem for path in folder.glob("*.css")} == set(STYLES)


def test_a_record_past_the_limit_is_cut_and_says_so():
    long = case("a", Status.FAIL, diagnosis="d" * 10, options={"x": "y" * html_data.RECORD_LIMIT})
    shown = json.loads(html_data.line(long))
    assert "holds only a part" in shown["left_out"]
    assert shown["diagnosis"] == "d" * 10


def test_values_that_json_cannot_hold_are_shown_as_text():
    shown = json.loads(html_data.line(case("a", observed={"x": float("inf")}, seed=2**63)))
    assert (shown["observed"]["x"], shown["seed"]) == ("inf", str(2**63))


def test_values_nested_too_deep_are_left_out():
    deep: dict = {}
    for _ in range(5000):
        deep = {"a": deep}
    assert "holds only a part" in json.loads(html_data.line(case("a", observed=deep)))["left_out"]


class TestArtefacts:
    @pytest.fixture
    def folder(self, tmp_path):
        (tmp_path / "run").mkdir()
        (tmp_path / "secret").write_text("root:x:0:0")
        return tmp_path / "run"

    def embedded(self, folder, name, roots=()):
        texts = html.Texts(roots)
        answer = texts.of_case(case("a", artefacts={"ptx": str(name)}), folder)["ptx"]
        return texts.texts[answer] if isinstance(answer, int) else answer

    def test_what_lies_in_the_run_is_embedded(self, folder):
        (folder / "a.ptx").write_text("mov.u32")
        assert self.embedded(folder, "a.ptx") == "mov.u32"
        assert self.embedded(folder, folder / "a.ptx") == "mov.u32"

    @pytest.mark.parametrize("name", ["../secret", "{base}/secret", "/etc/passwd", "../run/../secret", "../nothing"])
    def test_what_lies_elsewhere_is_not(self, folder, name):
        assert self.embedded(folder, name.format(base=folder.parent)) == "outside the run's folder"

    def test_a_link_out_of_the_run_is_not_followed(self, folder):
        (folder / "link").symlink_to(folder.parent / "secret")
        (folder / "up").symlink_to(folder.parent)
        assert self.embedded(folder, "link") == "outside the run's folder"
        assert self.embedded(folder, "up/secret") == "outside the run's folder"

    def test_a_link_to_itself_is_no_file(self, folder):
        (folder / "loop").symlink_to(folder / "loop")
        assert self.embedded(folder, "loop") == "not a usable path"

    def test_a_folder_that_the_user_names_is_read_too(self, folder):
        assert self.embedded(folder, folder.parent / "secret", roots=[folder.parent]) == "root:x:0:0"

    @pytest.mark.parametrize(
        ("name", "answer"),
        [
            ("gone", "not there"),
            (".", "no regular file"),
            ("a\0b", "not a usable path"),
            ("x" * 5000, "not a usable path"),
        ],
    )
    def test_what_cannot_be_read_says_why(self, folder, name, answer):
        assert self.embedded(folder, name) == answer

    def test_machine_code_is_not_text(self, folder):
        (folder / "a.cubin").write_bytes(b"\x7fELF\0\0")
        assert self.embedded(folder, "a.cubin") == "binary"

    def test_a_long_text_is_cut_and_says_so(self, folder):
        (folder / "a.ptx").write_bytes(b"x" * (html.TEXT_LIMIT + 5))
        assert "cut here: longer than" in self.embedded(folder, "a.ptx")[-60:]

    def test_all_texts_together_are_limited(self, folder, monkeypatch):
        monkeypatch.setattr(html, "TOTAL_LIMIT", 10)
        (folder / "a.ptx").write_text("x" * 11)
        assert "past the limit" in self.embedded(folder, "a.ptx")

    def test_a_text_that_two_cases_share_is_there_once(self, folder):
        (folder / "a.ptx").write_text("mov")
        (folder / "b.ptx").write_text("mov")
        texts = html.Texts(())
        numbers = [texts.of_case(case("a", artefacts={"ptx": name}), folder)["ptx"] for name in ("a.ptx", "b.ptx")]
        assert (numbers, texts.texts) == ([0, 0], ["mov"])

    def test_only_failing_cases_have_theirs_embedded_and_the_rest_is_said(self, folder):
        (folder / "a.ptx").write_text("mov")
        records = [
            case(name, status, artefacts={"ptx": "a.ptx", "llir": "/etc/passwd"})
            for name, status in (("p", Status.PASS), ("f", Status.FAIL))
        ]
        page = render(run_of(folder, *records))
        assert json.loads(data(page, "artefacts")) == {"f": [{"llir": "outside the run's folder", "ptx": 0}, {}]}
        assert data(page, "text-0") == "mov"
        assert data(page, "head")["left_out"] == {"outside the run's folder": 1}


def test_a_changed_case_has_both_records_and_both_texts(tmp_path):
    sides = []
    for name in ("before", "after"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.ptx").write_text(name)
        sides.append(run_of(tmp_path / name, case("c", artefacts={"ptx": "a.ptx"}), case("same")))
    finding = Finding(Kind.FEATURE_LOST, "c", "mm", "sm_90", "TMA_LOAD lost", "TMA_LOAD", "none")
    side = Side("x", {}, "quick", 0, 2, {})
    comparison = Comparison(side, side, (Group(Kind.FEATURE_LOST, "TMA_LOAD lost", (finding,)),), 2, 1)
    page = render(sides[1], sides[0], comparison)
    assert data(page, "head")["before"] == ["c"]
    assert json.loads(data(page, "artefacts")) == {"c": [{"ptx": 0}, {"ptx": 1}]}
    assert (data(page, "text-0"), data(page, "text-1")) == ("after", "before")
    compared = data(page, "head")["comparison"]
    assert compared["safe"] is False
    assert compared["answer"] == "NOT SAFE: 1 regression in 1 group (1 FEATURE_LOST)"


def test_a_ratio_that_json_cannot_hold_is_left_out(tmp_path):
    finding = Finding(Kind.SLOWER, "c", "mm", "sm_90", "slower", "0", "1", ratio=float("inf"))
    side = Side("x", {}, "quick", 0, 1, {})
    comparison = Comparison(side, side, (Group(Kind.SLOWER, "slower", (finding,)),), 1, 0)
    page = render(run_of(tmp_path, case("c")), run_of(tmp_path, case("c")), comparison)
    assert json.loads(data(page, "groups"))[0]["findings"][0][5] is None


def test_a_config_has_its_figures_of_both_sides():
    def row(us: float, spills: int) -> CaseRecord:
        observed = {
            "run": {"us": us},
            "resources": {"registers": 96, "spills": spills, "shared_memory": 1024},
            "compile_s": 0.5,
        }
        return CaseRecord(
            "c",
            "config_space",
            Status.PASS,
            kernel="mm",
            target="sm_90",
            config={"id": "64x64"},
            options={"dtype": "bf16"},
            observed=observed,
        )

    assert html_data.configs(rows([row(3.0, 8)]), rows([row(2.0, 0)])) == [
        ["mm", "bf16", "sm_90", "64x64", [["pass"], 3.0, 96, 8, 1024, 0.5], [["pass"], 2.0, 96, 0, 1024, 0.5]]
    ]


class TestCommand:
    def written(self, folder: Path, *records: CaseRecord) -> Path:
        return write_run(folder, records, info(id=folder.name, selected=len(records), wall_s=1.0))

    def test_the_page_lies_in_the_run(self, tmp_path, capsys):
        folder = self.written(tmp_path / "run", case("a"))
        assert call(report, folder) == 0
        assert capsys.readouterr().out == f"{folder / 'report.html'}\n"
        assert data((folder / "report.html").read_text(), "head")["run"]["passed"] == 1

    @pytest.mark.parametrize("content", [None, b"\xff", b"{}", b"[" * 100_000])
    def test_a_run_json_that_cannot_be_read_is_a_problem_of_the_run(self, tmp_path, content):
        folder = self.written(tmp_path / "run", case("a"))
        (folder / "run.json").unlink()
        if content is not None:
            (folder / "run.json").write_bytes(content)
        with (folder / "records.jsonl").open("a") as file:
            file.write("torn")
        assert call(report, folder) == 0
        problems = data((folder / "report.html").read_text(), "head")["run"]["problems"]
        assert [problem.split(":")[0] for problem in problems] == ["run.json", "records.jsonl"]

    def test_the_page_lies_where_it_is_asked_for(self, tmp_path):
        folder = self.written(tmp_path / "run", case("a"))
        call(report, folder, "--output", tmp_path / "x.html")
        assert (tmp_path / "x.html").exists()
        assert not (folder / "report.html").exists()

    def test_a_baseline_is_compared(self, tmp_path):
        before = self.written(tmp_path / "before", case("a"))
        after = self.written(tmp_path / "after", case("a", Status.FAIL, diagnosis="wrong"))
        call(report, after, "--baseline", before)
        page = (after / "report.html").read_text()
        assert [group["kind"] for group in json.loads(data(page, "groups"))] == ["NEW_FAIL"]
        assert data(page, "head")["comparison"]["names"] == [str(before), str(after)]

    def test_equal_runs_have_no_change(self, tmp_path):
        before, after = (self.written(tmp_path / name, case("a")) for name in ("before", "after"))
        call(report, after, "--baseline", before)
        assert json.loads(data((after / "report.html").read_text(), "groups")) == []

    def test_a_folder_without_records_is_an_error(self, tmp_path):
        with pytest.raises(CommandError, match="holds no records"):
            call(report, tmp_path)
        with pytest.raises(CommandError, match="no run's folder"):
            call(report, tmp_path / "gone")

    def test_a_place_that_cannot_be_written_is_an_error(self, tmp_path):
        folder = self.written(tmp_path / "run", case("a"))
        with pytest.raises(CommandError, match="cannot be written"):
            call(report, folder, "--output", tmp_path / "gone" / "x.html")


def test_a_page_of_a_large_run_counts_all_cases_and_lists_those_to_read(tmp_path, monkeypatch):
    """The matrix is right by the weights: a listed case stands for those of its kind that are not."""
    monkeypatch.setattr(listed_cases, "LISTED_LIMIT", 10)
    monkeypatch.setattr(listed_cases, "PER_CELL", 2)
    passed = [case(f"p{n}") for n in range(6)]
    refused = [case(f"r{n}", Status.NOT_APPLICABLE, target="sm_80") for n in range(3)]
    bad = [case("f1", Status.FAIL), case("c1", Status.CRASH)]
    page = render(run_of(tmp_path, *passed, *refused, *bad))
    columns, run = json.loads(data(page, "columns")), data(page, "head")["run"]
    assert columns["case"] == ["c1", "f1", "p0", "p1", "r0", "r1"]
    assert columns["weight"] == [1, 1, 5, 1, 2, 1]
    assert (run["recorded"], run["listed"], run["passed"]) == (11, 6, 6)
    assert json.loads(data(page, "record-0"))[2]["case"] == "p0"
    whole = render(run_of(tmp_path, *passed, *refused))
    assert "weight" not in json.loads(data(whole, "columns"))
    assert len(json.loads(data(whole, "columns"))["case"]) == 9


def test_a_changed_case_is_listed_in_a_large_run(tmp_path, monkeypatch):
    monkeypatch.setattr(listed_cases, "LISTED_LIMIT", 3)
    monkeypatch.setattr(listed_cases, "PER_CELL", 1)
    run = run_of(tmp_path, *(case(f"p{n}") for n in range(6)))
    side = Side("x", {}, "quick", 0, 6, {"pass": 6})
    lost = Finding(Kind.LOST_COVERAGE, "p4", "mm", "sm_90", "no longer timed", "timed", "not timed")
    page = render(run, run, Comparison(side, side, (Group(lost.kind, lost.cause, (lost,)),), 6, 5))
    assert json.loads(data(page, "columns"))["case"] == ["p0", "p4"]
    assert json.loads(data(page, "columns"))["weight"] == [5, 1]
    assert data(page, "head")["before"] == ["p4"]
