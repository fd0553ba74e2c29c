"""Compiled products of e4m3fnuz and e5m2fnuz: what their codes mean when TTGIR runs; a wrong format is seen."""

import numpy as np
import pytest

from conformance import targets
from conformance.execution.compile.compilation import CompilePool
from conformance.execution.trial.trial import trial
from conformance.families.gemm.problem import scaled_mm
from conformance.heuristics.configs import Config
from conformance.judging.conform import launches_to_compile
from conformance.kernels.catalogue import get
from conformance.numerics.rounding import FORMATS
from conformance.problems import FNUZ
from conformance.ttgir import formats
from conformance.ttgir.executor import TtgirExecutor
from conformance.ttgir.formats import decoded, encoded, rounded

MLIR = dict(zip(FNUZ, ("f8E4M3FNUZ", "f8E5M2FNUZ"), strict=True))
OCP = {"f8E4M3FNUZ": "f8E4M3FN", "f8E5M2FNUZ": "f8E5M2"}
CODES = np.arange(256, dtype=np.uint8)


def check_every_code(name):
    """Raises AssertionError unless the 256 codes are those of the package's format, whose bias ``emin`` says."""
    form, values = FORMATS[name], np.array(decoded(CODES, MLIR[name]).tolist())
    fraction, exponent = CODES % 2 ** (form.significand - 1), (CODES & 0x7F) >> (form.significand - 1)
    hidden = 2.0 ** (form.significand - 1) * (exponent > 0)
    sizes = (fraction + hidden) * form.smallest_subnormal * 2.0 ** (np.maximum(exponent, 1) - 1)
    expected = np.where(CODES == 0x80, np.nan, np.where(CODES > 0x80, -sizes, sizes))
    np.testing.assert_array_equal(values, expected)
    np.testing.assert_array_equal(encoded(values, MLIR[name]), CODES)
    np.testing.assert_array_equal(rounded(values, MLIR[name]), expected)
    assert not np.signbit(decoded(encoded(np.array([-0.0]), MLIR[name]), MLIR[name]))[0]


@pytest.mark.parametrize("name", FNUZ)
def test_every_code(name):
    check_every_code(name)


@pytest.mark.parametrize("name", FNUZ)
def test_codes_of_another_format_are_seen(name, monkeypatch):
    monkeypatch.setitem(formats._TORCH, MLIR[name], formats._TORCH[OCP[MLIR[name]]])
    with pytest.raises(AssertionError):
        check_every_code(name)


@pytest.fixture(scope="module")
def compiled():
    """By dtype the plan of a scaled mm, and the TTGIR of its kernel by the function's name."""
    if "gfx942" not in {one.id for one in targets.compile_targets()}:
        pytest.skip("the installed Triton cannot compile for gfx942")
    texts = {}
    with CompilePool(1, 240) as pool:
        for name in FNUZ:
            problem = scaled_mm(40, 56, 176, name)
            plan = get("scaled_mm").plan(problem, Config(32, 32, 64, 2, 4), targets.find("gfx942"))
            ((request, step),) = launches_to_compile(plan).values()
            result = pool.submit(request).result()
            assert result.artefact is not None, result.error
            texts[name] = plan, {step.function.fn.__name__: result.artefact.text("ttgir")}
    return texts


def failed(plan, texts):
    """The names of the fills that are wrong when ``texts`` run."""
    result = trial(get(plan.kernel), plan, TtgirExecutor(texts))
    return {verdict.check.partition("/")[2] for verdict in result.verdicts if not verdict.passed}


@pytest.mark.parametrize("name", FNUZ)
def test_every_fill_is_right(compiled, name):
    plan, texts = compiled[name]
    assert MLIR[name] in "".join(texts.values())
    assert failed(plan, texts) == set()


@pytest.mark.parametrize("name", FNUZ)
def test_operands_of_another_format_are_seen(compiled, name):
    plan, texts = compiled[name]
    others = {function: text.replace(MLIR[name], OCP[MLIR[name]]) for function, text in texts.items()}
    assert {"transparent", "wide-A", "wide-B", "special"} <= failed(plan, others)


@pytest.mark.parametrize("name", FNUZ)
def test_nan_that_is_taken_for_zero_is_seen(compiled, name, monkeypatch):
    """0x80 stands for -0 in other formats: only the fill with NaN shows that it is none here."""
    original = formats.decoded

    def without_nan(bits, element):
        values = original(bits, element)
        return np.where(np.isnan(values), np.float32(-0.0), values) if element == MLIR[name] else values

    for module in ("memory", "arithmetic"):
        monkeypatch.setattr(f"conformance.ttgir.{module}.decoded", without_nan)
    assert failed(*compiled[name]) == {"special"}
