"""The verdict about a GPU, its text and JSON, the exit status, and NVSentinel's events, from planted findings."""

from __future__ import annotations

import json

import pytest

from conformance.screening.answers import FORMAT, GpuAnswer, exit_status, text, to_dict
from conformance.screening.findings import Seen, UnitSeen, Verdict, WrongElement, WrongTile, verdict
from conformance.screening.health_event import health_events

#: The fields of HealthEvent in NVSentinel's health_event.proto that an event of ours has.
FIELDS = {
    "version", "agent", "componentClass", "checkName", "isFatal", "isHealthy", "message", "recommendedAction",
    "errorCode", "entitiesImpacted", "metadata", "generatedTimestamp", "nodeName", "processingStrategy",
}  # fmt: skip
ACTIONS = {"NONE", "COMPONENT_RESET", "CONTACT_SUPPORT", "RUN_FIELDDIAG", "RESTART_VM", "RESTART_BM", "RUN_DCGMEUD"}
ABOUT = {"name": "NVIDIA H100", "uuid": "GPU-1", "pci": "0000:00:06.0"}


def seen(*wrong: tuple[int, int, int], places: int = 8, element: WrongElement | None = None, **fields) -> Seen:
    """Returns findings on a GPU of eight SMs. ``wrong`` are tiles with one wrong element: turn, SM and tile."""
    unit = UnitSeen("fp16 128x128", "wgmma", 10, 80, places)
    found = Seen("NVIDIA H100", "smid", 8, [unit], turns=10, **fields)
    for turn, place, tile in wrong:
        example = element or WrongElement(turn, place, "3f800000", "3f800001")
        found.tiles.append(WrongTile(unit.name, "stripes", turn, tile, place, 1, (example,)))
        found.add(unit, turn, place, 1)
    return found


def test_clean():
    answer, why = verdict(seen())
    assert answer is Verdict.CLEAN
    assert why == "10 turns of 1 kinds of products on all 8 SMs: no wrong element"


def test_repeat_offenders_are_ranked_first():
    found = seen((1, 3, 0), (2, 5, 0), (4, 5, 1), (1, 7, 0), (1, 7, 1))
    answer, why = verdict(found)
    assert answer is Verdict.SUSPECT
    assert "wrong: 5 elements of fp16 128x128; SM 5: 2 tiles in 2 turns; SM 7: 2 tiles in 1 turn; SM 3: 1 " in why
    assert [(one.place, one.repeats) for one in found.ranking] == [(5, True), (7, False), (3, False)]
    lines = "\n".join(text(GpuAnswer.of("0", found, about=ABOUT)))
    assert "GPU 0 (NVIDIA H100, GPU-1): suspect" in lines
    assert "1. SM 5: wrong in 2 tiles and 2 elements in 2 turns, a repeat offender; fp16 128x128" in lines
    assert "turn 2, fp16 128x128, stripes, tile 0: row 2, column 5: 3f800001 and not 3f800000" in lines


def test_every_sm_alike_is_the_compiler():
    same = WrongElement(1, 2, "3f800000", "bf800000")
    answer, why = verdict(seen(*[(1, place, 0) for place in range(6)], element=same))
    assert answer is Verdict.ALIKE
    assert "wrong on every SM alike: more likely the compiler than this GPU" in why


@pytest.mark.parametrize(
    "wrong",
    [
        [(1, place, 0) for place in range(3)],  # few SMs
        [(turn, place, 0) for turn, place in enumerate(range(6))],  # other elements on each
    ],
)
def test_some_sms_or_other_elements_are_the_gpu(wrong):
    same = WrongElement(1, 2, "3f800000", "bf800000") if len(wrong) == 3 else None
    assert verdict(seen(*wrong, element=same))[0] is Verdict.SUSPECT


def test_one_bad_sm_is_not_hidden_by_a_miscompiled_unit():
    same = WrongElement(1, 2, "3f800000", "bf800000")
    found = seen(*[(1, place, 0) for place in range(8)], element=same)
    other = UnitSeen("int8 32x64", "mma.sync", 10, 80, 8)
    found.units.append(other)
    found.add(other, 3, 4, 1)
    assert verdict(found)[0] is Verdict.SUSPECT


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"places": 7}, "fp16 128x128 ran on 7 of 8 SMs"),
        ({"turns": 0}, "fp16 128x128: it had no turn"),
        ({"missing": "its code uses fma, and wgmma is to be tested"}, "its code uses fma"),
    ],
)
def test_what_was_not_tested_is_no_answer(change, why):
    found = seen()
    vars(found.units[0]).update(change)
    answer, text_of_why = verdict(found)
    assert answer is Verdict.INCOMPLETE
    assert why in text_of_why


def test_no_unit_is_no_answer():
    assert verdict(Seen("GPU", "smid", 8))[0] is Verdict.INCOMPLETE


def test_an_sm_that_cannot_be_observed_is_not_named():
    found = seen((1, 3, 0))
    found.how = ""
    assert verdict(found) == (
        Verdict.SUSPECT,
        "wrong: 1 elements of fp16 128x128; the SM is not observable on this GPU",
    )
    assert "SM 3" not in "\n".join(text(GpuAnswer.of("0", found)))


def test_a_wrong_comparison_is_said():
    found = seen()
    found.tiles.append(WrongTile("fp16 128x128", "stripes", 1, 0, 6, 1, (), compared=True))
    found.add(found.units[0], 1, 6, 1)
    assert "the comparison alone was wrong" in "\n".join(text(GpuAnswer.of("0", found)))


def test_findings_are_the_same_after_json():
    found = seen((1, 3, 0), (2, 5, 0), (4, 5, 1))
    again = Seen.from_dict(json.loads(json.dumps(found.to_dict())))
    assert again.to_dict() == found.to_dict()
    assert verdict(again) == verdict(found)


@pytest.mark.parametrize(
    ("verdicts", "status"),
    [
        ([Verdict.CLEAN, Verdict.CLEAN], 0),
        ([Verdict.CLEAN, Verdict.SUSPECT], 1),
        ([Verdict.HUNG, Verdict.SUSPECT], 1),
        ([Verdict.ALIKE], 1),
        ([Verdict.CLEAN, Verdict.HUNG], 2),
        ([Verdict.CLEAN, Verdict.CRASHED], 2),
        ([Verdict.CLEAN, Verdict.INCOMPLETE], 2),
        ([Verdict.NOT_RUN], 2),
        ([], 2),
    ],
)
def test_exit_status(verdicts, status):
    answers = [GpuAnswer(str(number), one, "") for number, one in enumerate(verdicts)]
    assert exit_status(answers) == status
    assert to_dict(answers, "node", "2026-11-28T00:00:00Z", {})["exit_status"] == status


def test_json_has_what_a_program_needs():
    answer = GpuAnswer.of("0", seen((2, 5, 0)), about=ABOUT, states={"during": "SM clock 1980 MHz"}, seconds=58.5)
    data = json.loads(json.dumps(to_dict([answer], "node", "2026-11-28T00:00:00Z", {"driver": "580"})))
    assert (data["format"], data["host"], data["versions"]) == (FORMAT, "node", {"driver": "580"})
    (gpu,) = data["gpus"]
    assert (gpu["verdict"], gpu["about"]["uuid"], gpu["seconds"]) == ("suspect", "GPU-1", 58.5)
    assert gpu["states"] == {"during": "SM clock 1980 MHz"}
    (offender,) = gpu["seen"]["offenders"]
    counts = {"place": 5, "tiles": 1, "elements": 1, "turns": 1, "first": 2, "last": 2}
    assert offender == {**counts, "units": ["fp16 128x128"], "repeats": False}
    assert gpu["seen"]["tiles"][0]["examples"][0]["got"] == "3f800001"


def events(answer: GpuAnswer) -> list[dict]:
    message = health_events([answer], "node-a", "2026-11-28T00:00:00Z")
    assert message["version"] == 1
    return message["events"]


@pytest.mark.parametrize(
    ("of", "fatal", "healthy", "strategy"),
    [
        (Verdict.CLEAN, False, True, "EXECUTE_REMEDIATION"),
        (Verdict.SUSPECT, True, False, "EXECUTE_REMEDIATION"),
        (Verdict.ALIKE, False, False, "STORE_ONLY"),
        (Verdict.HUNG, True, False, "EXECUTE_REMEDIATION"),
        (Verdict.CRASHED, True, False, "EXECUTE_REMEDIATION"),
    ],
)
def test_health_events_have_the_fields_of_nvsentinel(of, fatal, healthy, strategy):
    (event,) = events(GpuAnswer("3", of, "why", about=ABOUT))
    assert set(event) == FIELDS
    assert event["recommendedAction"] in ACTIONS
    assert (event["isFatal"], event["isHealthy"], event["processingStrategy"]) == (fatal, healthy, strategy)
    assert bool(event["errorCode"]) is not healthy
    assert event["entitiesImpacted"] == [
        {"entityType": "GPU", "entityValue": "3"},
        {"entityType": "PCI", "entityValue": "0000:00:06.0"},
        {"entityType": "GPU_UUID", "entityValue": "GPU-1"},
    ]
    assert (event["nodeName"], event["message"]) == ("node-a", "why")


def test_a_health_event_names_the_sms():
    (event,) = events(GpuAnswer.of("0", seen((1, 3, 0), (2, 5, 0), (4, 5, 1))))
    assert event["metadata"] == {"sms": "5,3", "products": "fp16 128x128"}


@pytest.mark.parametrize("of", [Verdict.INCOMPLETE, Verdict.NOT_RUN])
def test_without_an_answer_there_is_no_health_event(of):
    assert events(GpuAnswer("0", of, "why")) == []
