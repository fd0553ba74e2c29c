"""Two stacks that compile in no time, one with a fault: the inquiry names the stage and the pass that has it."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from conformance.blame import inquiry
from conformance.blame.answer_text import data, text
from conformance.blame.inquiry import STAGES, BlameError, Inquiry

NAMES = STAGES["ptx"]
PASSES = ["add_convert", "add_coalesce", "add_pipeline", "add_cse"]
CASE = "test_a.py::test_x[mm-a-sm_90]"


class Stack:
    """Stands for the process of a stack: each stage writes the stack's name after the text that it takes. ``faults``
    are words of the text, such as "bad:ttgir" or "bad:add_pipeline", that make the code spill 64 bytes. They do so in
    the ``guilty`` functions alone if any are named. What is in ``refuses`` cannot be taken from another stack;
    ``fails`` is the stage or the pass that fails. ``together``: TTGIR is wrong if that of every function is the bad
    stack's. ``longer`` are functions whose code is longer by the bad stack. ``plans`` are the numbers of the launches'
    plans."""

    def __init__(
        self,
        name,
        folder,
        faults=(),
        refuses=(),
        fails="",
        passes=PASSES,
        functions=("mm",),
        guilty=(),
        longer=(),
        together=False,
        plans=None,
    ):
        self.name, self.functions, self.passes = name, list(functions), passes
        self._guilty, self._longer, self._together = guilty or functions, longer, together
        self._plans = plans or [0] * len(self.functions)
        self._faults, self._refuses, self._fails = faults, refuses, fails
        self._folders = (folder / name / str(number) for number in itertools.count())

    def ask(self, do, **request):
        if do == "plan":
            named = {"functions": self.functions, "plans": self._plans}
            return {"status": "pass", "error": "", **named, "target": "sm_90", "ptxas": None}
        if do == "orders":
            plan = self._plans[request["launch"]]
            assert [*request["files"]] == [
                name for name, of in zip(self.functions, self._plans, strict=True) if of == plan
            ]
            made_by_bad = {name: "bad:ttgir" in Path(file).read_text() for name, file in request["files"].items()}
            wrong = "bad:orders" in self._faults and any(
                made_by_bad[name] for name in made_by_bad if name in self._guilty
            )
            wrong |= self._together and all(made_by_bad.values())
            return {"status": "pass", "error": "", "said": "a race" if wrong else ""}
        return self._compiled(request.get("entry"), request.get("trace"), self.functions[request["launch"]])

    def _compiled(self, entry, trace, function):
        folder = next(self._folders)
        folder.mkdir(parents=True)
        files = dict(entry["files"]) if entry else {}
        answer = {"status": "pass", "error": "", "stages": {}, "metadata": {}, "passes": [], "folder": str(folder)}
        answer["seconds"] = 1.0
        module = entry and entry["module"]
        source = "between passes" if module else entry and entry["stage"]
        if source in self._refuses:
            return {**answer, "status": "compile-error", "error": "ValueError: CannotEnter: it is not parsed"}
        words = Path(module or files[entry["stage"]]).read_text() if entry else ""
        for number, stage in enumerate(NAMES[len(files) :]):
            if stage == self._fails:
                return {**answer, "status": "crash", "error": "LLVM ERROR: it is lost", "stages": files}
            for at, name in enumerate(self.passes if stage == "ttgir" else [], 1):
                if not (module and number == 0 and at <= entry["passes"]):
                    answer["passes"] += [name] if trace == stage else []
                    if name == self._fails:
                        return {**answer, "status": "crash", "error": "LLVM ERROR: it is lost", "stages": files}
                    words += f" {self.name}:{name}"
                    if trace == stage:
                        (folder / f"{at}.mlir").write_text(words)
            words += f" {self.name}:{stage}"
            (folder / stage).write_text(words)
            files[stage] = str(folder / stage)
        faulty = function in self._guilty and any(fault in words.split() for fault in self._faults)
        spills = 64 if faulty else 0
        size = 8 if function in self._longer and "bad:llir" in words else 0
        resources = {"spill_unit": "bytes", "registers": 100, "shared_memory": 0, "tensor_memory": 0, "threads": 128}
        code = {"features": [], "bytes": size or 4, "sync": {}, "instructions": {}}
        return {**answer, "stages": files, "resources": {**resources, "spills": spills}, "code": code, "checks": {}}


def answered(tmp_path, faults, symptoms=(), good=None, bad=None):
    """The answer where both stacks know that the words ``faults`` are faults: only the bad one writes them."""
    first = Stack("good", tmp_path, faults, **(good or {}))
    second = Stack("bad", tmp_path, faults, **(bad or {}))
    return Inquiry(CASE, first, second, symptoms, lambda line: None).answer()


def only(answer):
    ((one,),) = (launch.attributions for launch in answer.launches)
    return one


@pytest.mark.parametrize("stage", NAMES)
def test_each_stage_is_named(tmp_path, stage):
    answer = answered(tmp_path, (f"bad:{stage}",))
    assert data(answer)["launches"][0]["attributions"][0]["guilty"] == [stage]
    assert only(answer).blame.agreed is True
    assert answer.named


@pytest.mark.parametrize("stage", NAMES)
def test_of_a_kernel_that_compiles_slowly_few_swaps_are_tried(tmp_path, monkeypatch, stage):
    monkeypatch.setattr(inquiry, "SLOW", 0.5)
    answer = answered(tmp_path, (f"bad:{stage}",))
    one = only(answer)
    assert data(answer)["launches"][0]["attributions"][0]["guilty"] == [stage]
    assert one.blame.agreed is True
    assert sum(value is None for value in one.into_bad) >= 2
    assert "not tried" in text(answer)


def test_the_pass_is_named(tmp_path):
    for passes in only(answered(tmp_path, ("bad:add_pipeline",))).passes:
        assert (passes.bad, passes.good) == (("add_pipeline",), ("add_pipeline",))


def test_a_slow_inquiry_names_the_stage_and_no_pass(tmp_path, monkeypatch):
    monkeypatch.setattr(inquiry, "LATEST_SEARCH", 0.0)
    answer = answered(tmp_path, ("bad:add_pipeline",))
    assert answer.named
    assert "its passes were not looked at" in text(answer)


def test_a_pass_that_only_one_compiler_has_is_named(tmp_path):
    passes = [*PASSES[:2], "add_new", *PASSES[2:]]
    for one in only(answered(tmp_path, ("bad:add_new",), bad={"passes": passes})).passes:
        assert one.bad == ("add_new", "add_pipeline")
        assert one.good == ("add_pipeline",)


def test_between_passes_nothing_may_be_swapped(tmp_path):
    answer = answered(tmp_path, ("bad:add_pipeline",), good={"refuses": ("between passes",)})
    into_bad, into_good = only(answer).passes
    assert into_bad.bad == ("add_pipeline",)
    assert into_good.bad == tuple(PASSES)
    assert "it turns with add_convert, add_coalesce" in text(answer)


def test_no_fault_is_no_answer(tmp_path):
    answer = answered(tmp_path, ())
    assert answer.launches == ()
    assert not answer.named
    assert "nothing that is looked at differs" in text(answer)


def test_what_one_stack_does_not_take_is_said(tmp_path):
    answer = answered(tmp_path, ("bad:llir",), good={"refuses": ("llir", "ptx")})
    one = only(answer)
    assert one.into_good == (0, 0, 0, 0, None, None, 64)
    assert one.blame.span is not None
    assert (one.blame.span.first, one.blame.span.last) == (4, 4)
    assert "llir of bad in good: " in text(answer)


def test_a_failing_stage_is_named_and_other_failures_are_not_it(tmp_path):
    one = only(answered(tmp_path, (), bad={"fails": "llir", "refuses": ("ttir",)}))
    assert one.symptom == "does not compile"
    assert one.text == "crash: LLVM ERROR: it is lost"
    assert one.into_bad == (1, 1, None, 1, 0, 0, 0)
    assert one.into_good == (0, 0, 0, 0, None, None, 1)
    assert one.blame.span is not None
    assert one.blame.span.first == one.blame.span.last == 4


def test_the_pass_that_fails_is_named(tmp_path):
    one = only(answered(tmp_path, (), bad={"fails": "add_pipeline"}))
    assert one.into_bad == (1, 1, 1, 0, 0, 0, 0)
    assert one.into_good == (0, 0, 0, None, None, None, 1)
    for passes in one.passes:
        assert passes.bad == ("add_pipeline",)


def test_a_race_in_ttgir_is_a_symptom(tmp_path):
    one = only(answered(tmp_path, ("bad:orders",)))
    assert (one.symptom, one.text) == ("wrong in an order", "a race")
    assert one.into_good == (0, 0, 0, 1, 1, 1, 1)
    assert one.blame.span is not None
    assert one.blame.span.first == 3


def test_only_the_named_symptom_is_looked_at(tmp_path):
    assert answered(tmp_path, ("bad:ptx", "bad:orders"), symptoms=("registers",)).launches == ()
    assert only(answered(tmp_path / "2", ("bad:ptx", "bad:orders"), symptoms=("spills",))).symptom == "spills"


def test_the_stages_of_another_backend_are_not_guessed(tmp_path, monkeypatch):
    monkeypatch.setattr(inquiry, "STAGES", {"ptx": (*NAMES, "spirv"), "amdgcn": ()})
    with pytest.raises(BlameError, match="in stages that are not known: source, ttir, ttgir, llir, ptx, cubin"):
        answered(tmp_path, ())


def test_stacks_with_other_kernels_cannot_be_compared(tmp_path):
    with pytest.raises(BlameError, match="launches mm and mm, reduce"):
        answered(tmp_path, (), bad={"functions": ("mm", "reduce")})


SPLIT = {"functions": ("split", "reduce")}
GUILTY_SPLIT = {**SPLIT, "guilty": ("split",)}


def answered_by(tmp_path, faults, **both):
    return answered(tmp_path, faults, good=both, bad=both)


@pytest.mark.parametrize("guilty", ["split", "reduce"])
def test_a_race_is_laid_at_the_door_of_the_launch_that_has_it(tmp_path, guilty):
    answer = answered_by(tmp_path, ("bad:orders",), functions=("split", "reduce"), guilty=(guilty,))
    assert [launch.function for launch in answer.launches] == [guilty]
    assert only(answer).symptom == "wrong in an order"
    assert data(answer)["launches"][0]["attributions"][0]["guilty"] == ["ttgir"]
    assert (answer.others, answer.named) == ((), True)


def test_a_second_launch_that_is_only_longer_is_not_accused(tmp_path):
    answer = answered_by(tmp_path, ("bad:orders",), **GUILTY_SPLIT, longer=("reduce",))
    assert [launch.function for launch in answer.launches] == ["split"]
    assert [other.function for other in answer.others] == ["reduce"]
    assert answer.named
    said = text(answer)
    assert "not asked about, because another launch differs in more:\n  reduce: code bytes 4 -> 8" in said
    assert "reduce:\ncode bytes" not in said
    assert data(answer)["others"] == [{"function": "reduce", "changes": [("code bytes", 4, 8)]}]


def test_a_second_launch_that_is_the_same_with_both_is_not_mentioned(tmp_path):
    said = text(answered_by(tmp_path, ("bad:ttgir",), **GUILTY_SPLIT))
    assert "spills 0 -> 64: TTIR to TTGIR" in said
    assert "reduce" not in said


def test_both_launches_that_are_wrong_are_named(tmp_path):
    answer = answered_by(tmp_path, ("bad:orders",), **SPLIT)
    assert [launch.function for launch in answer.launches] == ["split", "reduce"]
    assert answer.named


def test_a_named_symptom_is_looked_at_in_every_launch(tmp_path):
    both = {**SPLIT, "longer": ("reduce",)}
    answer = answered(tmp_path, ("bad:orders",), symptoms=("code bytes",), good=both, bad=both)
    assert [launch.function for launch in answer.launches] == ["reduce"]


def test_launches_that_are_wrong_only_together_are_named_so_and_no_stage_is(tmp_path):
    answer = answered_by(tmp_path, (), **SPLIT, together=True)
    assert (answer.launches, answer.together, answer.named) == ((), "a race", False)
    assert "wrong in an order, if all launches are those of bad, and none of them alone: a race" in text(answer)


def test_of_several_plans_only_the_launches_of_one_run_together(tmp_path):
    """Two problems, each with its products and its sum: the stub asserts which functions it is given."""
    both = {"functions": ("split", "reduce", "split2", "reduce2"), "guilty": ("reduce2",), "plans": [0, 0, 1, 1]}
    answer = answered(tmp_path, ("bad:orders",), good=both, bad=both)
    assert [launch.function for launch in answer.launches] == ["reduce2"]


def test_the_gravest_of_several_problems_of_one_function_is_asked_about(tmp_path):
    """The first launch of the function is only longer; the second one, of another problem, is wrong."""
    both = {"functions": ("mm", "mm"), "plans": [0, 1]}
    stacks = []
    for name in ("good", "bad"):
        stack = Stack(name, tmp_path, ("bad:orders",), **both)
        asked, stack.ask = stack.ask, None

        def ask(do, asked=asked, **request):
            if do == "orders" and request["launch"] == 0:
                return {"status": "pass", "error": "", "said": ""}
            answer = asked(do, **request)
            if do == "compile" and request["launch"] == 0 and "code" in answer:
                answer["code"]["bytes"] = 8 if "bad:llir" in Path(answer["stages"]["llir"]).read_text() else 4
            return answer

        stack.ask = ask
        stacks.append(stack)
    answer = Inquiry(CASE, *stacks, (), lambda line: None).answer()
    assert only(answer).symptom == "wrong in an order"
    assert answer.named
