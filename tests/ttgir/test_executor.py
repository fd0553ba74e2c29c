"""Compiled kernels run right under every order of what is asynchronous, and edits of their TTGIR are named or wrong."""

from __future__ import annotations

import dataclasses
import random
import re
from importlib.metadata import version

import numpy as np
import pytest

from conformance import targets
from conformance.execution.compile.compilation import CompilePool
from conformance.execution.trial.trial import trial
from conformance.families.gemm.problem import int_mm, mm
from conformance.heuristics.configs import Config
from conformance.judging.conform import launches_to_compile
from conformance.kernels.catalogue import get, meta_launch
from conformance.kernels.kernel import Variant
from conformance.kernels.legacy_tma import HostTensormap
from conformance.problems import Layout
from conformance.ttgir.arithmetic import MAKERS, UnknownOperation
from conformance.ttgir.executor import MOST_PROGRAMS, TtgirExecutor
from conformance.ttgir.formats import decoded, encoded, type_of
from conformance.ttgir.layout_check import verified
from conformance.ttgir.machine import SCHEDULES, Agent, Barrier, Pending, ProgramRun, Promise, orders_of
from conformance.ttgir.memory import GlobalMemory, ProgramFault, allocated
from conformance.ttgir.regions import STEPS, prepared
from conformance.ttgir.steps import Descriptor, taken
from conformance.ttgir.text import BLOCK, Operation, Region, TextError, parse
from conformance.ttgir.typed_operations import refuse_other_words

PADDED = Layout(pad=8)
TILE = Config(64, 64, 32, 3, 4)
#: Three tiles, and five and a half blocks of k.
SIZES = (136, 56, 176)
SOURCES = {
    "cp.async": ("mm", mm(*SIZES, layout_b=PADDED), "sm_80", Variant()),
    "wgmma": ("mm", mm(*SIZES, layout_b=PADDED), "sm_90", Variant()),
    "tcgen05": ("mm", mm(*SIZES, layout_b=PADDED), "sm_100", Variant()),
    "tma": ("mm_persistent_tma", mm(*SIZES), "sm_90", Variant(tma_store=True, sms=2)),
    "partitions": ("mm_blackwell_ws", mm(600, 56, 176), "sm_100", Variant(flatten=True, sms=1)),
    "integers": ("int_mm", int_mm(*SIZES), "sm_90", Variant()),
    "amd": ("mm", mm(*SIZES, layout_a=PADDED, layout_b=PADDED), "gfx942", Variant()),
    "cluster": ("mm_persistent_tma", mm(*SIZES), "sm_90", Variant(sms=2)),
}
CONFIGS = {
    "partitions": Config(128, 64, 64, 3, 4),
    "cluster": Config(128, 32, 32, 3, 4, vendor=(("num_ctas", 2),)),
}


@pytest.fixture(scope="module")
def compiled():
    """The plan of a source, and the TTGIR of its kernel."""
    kept = {}
    with CompilePool(2, 240) as pool:

        def get_one(name):
            if name not in kept:
                kernel, problem, target, variant = SOURCES[name]
                if target not in {one.id for one in targets.compile_targets()}:
                    pytest.skip(f"the installed Triton cannot compile for {target}")
                plan = get(kernel).plan(problem, CONFIGS.get(name, TILE), targets.find(target), variant)
                ((request, step),) = launches_to_compile(plan).values()
                result = pool.submit(request).result()
                assert result.artefact is not None, result.error
                kept[name] = plan, step.function.fn.__name__, result.artefact.text("ttgir")
            return kept[name]

        yield get_one


def verdict(compiled_one, text=None, schedules=SCHEDULES):
    """Returns the fault of the first order that is not right; "" if all are."""
    plan, function, own = compiled_one
    for schedule in schedules:
        try:
            result = trial(
                get(plan.kernel), plan, TtgirExecutor({function: text or own}, schedule), names=("transparent",)
            )
        except ProgramFault as fault:
            return str(fault)
        if not result.passed:
            return f"order '{schedule.name}': wrong"
    return ""


@pytest.mark.parametrize("name", SOURCES)
def test_a_compiled_kernel_is_right_in_every_order(compiled, name):
    one = compiled(name)
    assert verdict(one, schedules=orders_of(parse(one[2]))) == ""


def edited(text, pattern, replacement, number):
    """``text`` with match number ``number`` of ``pattern`` replaced."""
    match = [*re.finditer(pattern, text, re.MULTILINE)][number]
    return text[: match.start()] + match.expand(replacement) + text[match.end() :]


@pytest.mark.parametrize(
    ("name", "pattern", "replacement", "number", "seen"),
    [
        ("cp.async", r"(ttg\.async_wait .*)num = \d", r"\1num = 9", 0, "may still be writing"),
        ("wgmma", r"pendings = 0", "pendings = 2", 0, "may still be reading"),
        ("tma", r"^ *ttng\.wait_barrier.*$", "", 0, "may still be writing"),
        ("tma", r"(ttng\.barrier_expect \S+) (\d+)", r"\1 1024", 0, "deadlock"),
        ("cluster", r"(ttng\.barrier_expect \S+) (\d+)", r"\1 12288", 0, "deadlock"),
        ("tma", r"^ *ttng\.async_tma_store_wait.*$", "", 0, "may still be reading"),
        ("tcgen05", r"^ *ttng\.wait_barrier.*$", "", 0, ""),
        ("partitions", r"^ *ttng\.tc_gen5_commit.*$", "", 0, "deadlock"),
        ("partitions", r"^ *ttng\.arrive_barrier.*$", "", 0, "deadlock"),
    ],
)
def test_an_edit_is_named(compiled, name, pattern, replacement, number, seen):
    one = compiled(name)
    text = edited(one[2], pattern, replacement, number)
    assert text != one[2]
    said = verdict(one, text, orders_of(parse(text)))
    assert said
    assert seen in said


@pytest.mark.parametrize(
    ("fields", "column", "said"),
    [
        ({}, 8, ""),
        ({"base": 4104}, 0, "begins at 4104 bytes"),
        ({"pitches": (200, 2)}, 0, "has a pitch of 200 bytes"),
        ({"pitches": (200, 2), "sizes": (1, 100)}, 0, ""),
        ({}, 4, "begins 8 bytes into a row"),
    ],
)
def test_what_tma_cannot_address_is_a_fault(fields, column, said):
    tensor = dataclasses.replace(Descriptor(4096, (8, 100), (208, 2), "f16"), **fields)
    if said:
        with pytest.raises(ProgramFault, match=said):
            tensor.by_tma("copy", column)
    else:
        assert tensor.by_tma("copy", column) == tensor
        assert tensor.by_tma("copy", column, stored=True).sizes[-1] == 104


def test_a_store_by_tma_past_the_end_of_rows_is_seen(compiled):
    """The text was compiled for whole multiples of 16 bytes; a launch with other rows would write what follows them."""
    plan, function, text = compiled("tma")
    other = dataclasses.replace(
        plan, problem=mm(*SIZES[:1], 52, SIZES[2], layout_b=Layout(pad=4), layout_out=Layout(pad=4))
    )
    assert "wrong" in verdict((other, function, text), schedules=SCHEDULES[:1])


def test_a_grid_that_is_too_large_is_not_run(compiled):
    plan, function, text = compiled("cp.async")
    launch = dataclasses.replace(meta_launch(plan, plan.target), grid=(MOST_PROGRAMS + 1,))
    with pytest.raises(UnknownOperation, match=f"{MOST_PROGRAMS + 1} programs"):
        TtgirExecutor({function: text}).run(launch)


def without_names(text):
    """``text`` with its parameters called as Triton 3.4 calls them."""
    names = [name for name, _ in parse(text).function.parameters]
    for number, name in enumerate(names):
        text = re.sub(rf"{name}\b(?![.-])", f"%arg{900 + number}", text)
    return text


@pytest.mark.parametrize("name", ["cp.async", "tma"])
def test_parameters_without_names_stand_in_order(compiled, name):
    plan, function, text = compiled(name)
    assert verdict((plan, function, without_names(text)), schedules=SCHEDULES[:1]) == ""


def test_values_that_do_not_fit_are_not_known(compiled):
    one = compiled("cp.async")
    text = one[2].replace("start = 0 : i32} : tensor<64xi32", "start = 1 : i32} : tensor<64xi32", 1)
    assert text != one[2]
    with pytest.raises(UnknownOperation, match="values that do not fit"):
        verdict(one, text)


def test_products_of_two_blocks_together_are_not_known(compiled):
    one = compiled("cluster")
    text = re.sub(
        r'"ttg.num-ctas" = 2 : i32', r'\g<0>, "ttng.two-ctas" = true', one[2].replace('"ttng.two-ctas" = false, ', "")
    )
    with pytest.raises(UnknownOperation, match="two blocks together"):
        verdict(one, re.sub(r', "ttng.two-ctas" = false', "", text))


def test_two_products_chained_through_one_accumulator(compiled):
    """https://github.com/triton-lang/triton/issues/10821: 3.6 to 3.8 read the sum before the last product is over."""
    kernel = get("mm_chained")
    target = targets.find("sm_100")
    config = next(config for config in kernel.configs if config.id == "64x64x32-s3-w4-chain2")
    plan = kernel.plan(kernel.example("tf32", config, "several-tiles"), config, target)
    with CompilePool(1, 240) as pool:
        ((request, step),) = launches_to_compile(plan).values()
        text = pool.submit(request).result().artefact.text("ttgir")
    said = verdict((plan, step.function.fn.__name__, text))
    if version("triton").startswith(("3.6.", "3.7.", "3.8.")):
        assert "tmem_load" in said
        assert "may still be writing" in said
    else:
        assert said == ""


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["what is this"], "not an operation: what is this"),
        (["tt.return", "}", "}", "}"], "not an operation: }"),
        (["%0:many = arith.constant 0 : i32"], "not an operation: %0:many"),
        (["tt.call @g(%0) : (i32) -> ()"], "tt.call of g, which is not defined"),
        (['"tt.reduce"(%0) ({'], "the text ends within 1 regions"),
    ],
)
def test_text_of_another_form_is_an_error(lines, message):
    with pytest.raises(TextError, match=re.escape(message)):
        parse("\n".join(["module {", "tt.func public @f() {", *lines, "}", "}"]))


def test_a_function_without_a_body_is_an_error():
    with pytest.raises(TextError, match="f has 0 bodies"):
        parse("module {\ntt.func public @f()\n}")


def test_an_argument_of_an_unknown_kind_is_not_known(compiled):
    """Such as the tensor maps that Triton 3.2 and 3.3 get from the host."""
    plan, function, text = compiled("cp.async")
    launch = meta_launch(plan, plan.target)
    mapped = dataclasses.replace(launch, arguments={**launch.arguments, "a_ptr": HostTensormap()})
    with pytest.raises(UnknownOperation, match=r"%a_ptr of type !tt.ptr<f16> from a value of type HostTensormap"):
        TtgirExecutor({function: text}).run(mapped)
    other_type = text.replace("%M: i32", "%M: !tt.future<i32>", 1)
    assert other_type != text
    with pytest.raises(UnknownOperation, match=r"%M of type !tt.future<i32>"):
        TtgirExecutor({function: other_type}).run(launch)
    with pytest.raises(UnknownOperation, match=f"the function {function}, which no text has"):
        TtgirExecutor({}).run(launch)


def every_operation(region):
    for operation in region.operations:
        yield operation
        for inner in operation.regions:
            yield from every_operation(inner)


#: Operations whose words change no value, so that any is passed over.
WITHOUT_VALUES = ("llvm.intr.assume", "gpu.barrier", "scf.yield", BLOCK)


@pytest.mark.parametrize("name", SOURCES)
def test_a_word_or_an_attribute_of_no_known_release_is_not_known(compiled, name):
    """Such as ``fromCTA`` of later sources, which the executor would pass over."""
    operations = {one.name: one for one in every_operation(parse(compiled(name)[2]).function.body)}
    for operation in operations.values():
        refuse_other_words(operation)  # its own are known
        if operation.name in WITHOUT_VALUES:
            continue
        for further in ("{fromCTA = 3 : i32} ", "fromCTA ", "{tt.from_cta} "):
            altered = dataclasses.replace(operation, words=f"{further}{operation.words}")
            with pytest.raises(UnknownOperation, match=f"^{operation.name} with (fromCTA|tt.from_cta)$"):
                refuse_other_words(altered)


#: What may stand in place of a word.
WORDS = ("what", "-1", "0", "7", "%c99", "#new", "i128", "{", "}", "<", ">", "(", ")", "true", "1.5", ":", "->", "")


def garbled(text, seed):
    """``text`` with one word of one line repeated, or replaced by another, or with the rest of the line gone."""
    draw = random.Random(seed)
    lines = text.splitlines()
    number = draw.choice([index for index, line in enumerate(lines) if line.strip() and not line.startswith("#loc")])
    line = lines[number]
    word = draw.choice([*re.finditer(r"%[\w#.]+|[\w.]+|[^\w\s]", line.split(" loc(")[0])])
    before, after = line[: word.start()], line[word.end() :]
    lines[number] = draw.choice([before, f"{before}{word[0]} {word[0]}{after}", f"{before}{draw.choice(WORDS)}{after}"])
    return "\n".join(lines)


@pytest.mark.parametrize("name", ["cp.async", "tma"])
def test_text_of_any_other_form_is_an_answer_and_no_crash(compiled, name):
    plan, function, text = compiled(name)
    for seed in range(20):
        altered = garbled(text, seed)
        try:
            verified(parse(altered))
            trial(get(plan.kernel), plan, TtgirExecutor({function: altered}), names=("transparent",))
        except (ProgramFault, TextError, UnknownOperation, NotImplementedError):
            continue


def test_an_operation_that_is_not_known_is_named(compiled):
    plan, function, text = compiled("amd")
    unknown = text.replace("tt.dot ", "tt.dot_in_the_future ", 1)
    with pytest.raises(UnknownOperation, match="dot_in_the_future"):
        trial(get(plan.kernel), plan, TtgirExecutor({function: unknown}), names=("transparent",))


@pytest.mark.parametrize("element", ["bf16", "f16", "f32", "f64", "i8", "i32", "i64", "f8E4M3FN", "f8E5M2", "i1"])
def test_bits_and_values(element):
    values = np.array([[0, 1], [1, 0]]) if element == "i1" else np.array([[0, 1], [-2, 16]])
    assert np.array_equal(decoded(encoded(values, element), element), values)
    assert decoded(encoded(np.float32(1), "f32"), "f32").shape == ()


def test_types():
    kind = type_of("tensor<64x1x!tt.ptr<bf16>, #blocked>")
    assert (kind.shape, kind.pointee) == ((64, 1), "bf16")
    assert type_of("!ttg.memdesc<3x64x32xf16, #shared, #smem, mutable>").shape == (3, 64, 32)
    assert type_of("!tt.tensordesc<tensor<64x32xsi8, #shared>>").element == "i8"


@pytest.mark.parametrize("element", ["bf16", "f16", "i8"])
def test_what_was_read_stays_when_the_buffer_is_written(element):
    tile = allocated("tile", (2,), element)
    tile.write(np.array([1, 2]))
    values = tile.read()
    tile.write(np.array([3, 4]))
    assert values.tolist() == [1, 2]


# Who waited for whom


def machine():
    program = ProgramRun((0, 0, 0), (1, 1, 1), GlobalMemory(()), SCHEDULES[0])
    return Agent(program, "first", {}), Agent(program, "second", {})


def test_two_agents_need_a_barrier_between_a_write_and_a_read():
    first, second = machine()
    tile = allocated("tile", (4,), "f32")
    first.touch(tile, "store (k.py:1)", writes=True)
    with pytest.raises(ProgramFault, match=r"reads tile, which store \(k.py:1\) may still be writing"):
        second.touch(tile, "load (k.py:2)", writes=False)


def test_an_arrival_that_was_waited_for_orders_them():
    first, second = machine()
    tile, barrier = allocated("tile", (4,), "f32"), Barrier("ready", 1)
    first.touch(tile, "store", writes=True)
    barrier.arrive(1, first.clock, "arrive")
    second.learn(barrier.complete)
    second.touch(tile, "load", writes=False)
    first.tick()
    with pytest.raises(ProgramFault, match="which load may still be reading"):
        first.touch(tile, "store again", writes=True)


def test_parts_that_do_not_overlap_need_none():
    first, second = machine()
    tile = allocated("tile", (4, 8), "f32")
    first.touch(tile.part(lambda array: array[:, :4]), "left", writes=True)
    second.touch(tile.part(lambda array: array[:, 4:]), "right", writes=True)


@pytest.mark.parametrize("proxies", [True, False])
def test_a_copy_needs_a_fence_behind_a_write_where_it_reads_by_another_proxy(proxies):
    program = ProgramRun((0, 0, 0), (1, 1, 1), GlobalMemory(()), SCHEDULES[0], proxies=proxies)
    agent, tile = Agent(program, "first", {}), allocated("tile", (4,), "f32")
    agent.fill(tile, "store")
    if proxies:
        with pytest.raises(ProgramFault, match="no fence follows store"):
            agent.begin("store", "copy", lambda: None, [(tile, False)])
        agent.fence()
    agent.begin("store", "copy", lambda: None, [(tile, False)])


def test_one_arrival_too_many_is_a_fault():
    barrier = Barrier("ready", 2)
    barrier.arrive(1, {}, "first")
    with pytest.raises(ProgramFault, match="expects 2 arrivals"):
        barrier.arrive(2, {}, "second")


def test_what_was_read_stays_as_it_was():
    tile = allocated("tile", (4,), "f32")
    tile.write(np.ones(4))
    before = tile.read()
    tile.write(np.zeros(4))
    assert np.array_equal(before, np.ones(4))


def test_an_accumulator_under_way_may_be_renamed_and_not_read():
    pending = Pending(1, "mma", "dot (k.py:1)", {}, lambda: None)
    renamed = Promise(pending, values=np.array([[1, 2], [3, 4]])).renamed(np.transpose)
    with pytest.raises(ProgramFault, match="before anybody waited"):
        taken(renamed)
    pending.over = True
    assert np.array_equal(taken(renamed), [[1, 3], [2, 4]])


def test_what_nobody_wrote_is_known():
    first, _ = machine()
    tile = allocated("tile", (4, 8), "f32")
    left, right = tile.part(lambda array: array[:, :4]), tile.part(lambda array: array[:, 4:])
    first.touch(tile, "load", writes=False)
    first.touch(left, "store", writes=True)
    assert (left.written, right.written, tile.written) == (True, False, True)


def test_the_upper_half_of_a_product():
    text = "%a, %b : tensor<3xi32, #b>"
    names, compute = MAKERS["tt.mulhiui"](Operation("tt.mulhiui", ["%c"], text, ""))
    assert names == ["%a", "%b"]
    values = np.array([-1, 1 << 30, 3], np.int32)
    assert np.array_equal(compute(values, np.array([-1, 8, 5], np.int32)), [-2, 2, 0])


@pytest.mark.parametrize(("kind", "expected"), [("max", [3, 6]), ("min", [1, 4])])
def test_a_load_that_gives_the_largest_or_smallest_of_each_row(kind, expected):
    types = "!ttg.memdesc<2x3xf32, #t, #ttng.tensor_memory, mutable> -> tensor<2x3xf32, #l>, tensor<2xf32, #s>"
    words = f"%tile {{redOp = #ttng.redOp<{kind}>}} : {types}"
    load = STEPS["ttng.tmem_load"](Operation("ttng.tmem_load", ["%values", "%rows"], words, "k.py:1"))
    names = {"%tile": allocated("tile", (2, 3), "f32")}
    names["%tile"].write(np.array([[1, 2, 3], [4, 5, 6]]))
    load(machine()[0], names)
    assert np.array_equal(names["%rows"], expected)
    with pytest.raises(UnknownOperation, match="NaN"):
        prepared(Region([], [Operation("ttng.tmem_load", ["%v", "%r"], words.replace("}", ", NaN = true}"), "k.py:1")]))
