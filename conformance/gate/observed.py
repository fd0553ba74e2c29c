"""The figures under a record's ``observed`` that a comparison uses, each checked: they come from a file."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from conformance.records import RecordError

#: What a figure other than 0 lies between, in its unit: ratios of two are numbers of which 1 / ratio is one.
SMALLEST, LARGEST = 1e-9, 1e15
#: Repeated measurements of one record: with more, exact binomial sums would take seconds.
SAMPLES_LIMIT = 1000
_RESOURCES = ("registers", "spills", "shared_memory")
_NUMBERS = {int, float}

Figures = tuple[Any, Any, Any, Any, Any, Any, Any]
NOTHING: Figures = (None, None, None, None, None, (), "")


def figures(observed: Mapping[str, Any]) -> Figures:
    """resources, code, outputs, seconds of compiling, the timed problem, its measurements in ascending microseconds,
    and why there are none. Raises :class:`RecordError` for what is no such figure."""
    resources, code = observed.get("resources"), observed.get("code")
    run, outputs = observed.get("run"), observed.get("outputs")
    seconds = observed.get("compile_s")
    for key, value in (("resources", resources), ("code", code), ("run", run), ("outputs", outputs)):
        if value is not None and type(value) is not dict:
            raise RecordError(f"observed.{key} must be an object, got {value!r:.80}")
    numbers = [seconds or 0]
    if resources is not None:
        numbers += [resources.get(key, 0) for key in _RESOURCES]
    if code is not None:
        numbers += _code_figures(code)
    _check_numbers(numbers, "observed's figures")
    if outputs and set(map(type, outputs.values())) != {str}:
        raise RecordError(f"observed.outputs must hold texts, got {outputs!r:.80}")
    if observed.get("compile_cached") is not False:
        seconds = None  # what was taken from a cache says nothing about the compiler's speed
    return resources, code, outputs, seconds, *(_timing(run) if run is not None else (None, (), ""))


def _code_figures(code: Mapping[str, Any]) -> list[Any]:
    """The numbers of ``observed.code``, not checked yet; all else of it is checked here."""
    features, instructions, digest = code.get("features", []), code.get("instructions", {}), code.get("sha256")
    if type(features) is not list or not set(map(type, features)) <= {str}:
        raise RecordError(f"observed.code.features must be a list of texts, got {features!r:.80}")
    if type(instructions) is not dict:
        raise RecordError(f"observed.code.instructions must be an object, got {instructions!r:.80}")
    if digest is not None and type(digest) is not str:
        raise RecordError(f"observed.code.sha256 must be text, got {digest!r:.80}")
    return [code.get("bytes") or 0, *instructions.values()]


def _check_numbers(values: Collection[Any], what: str) -> None:
    if not set(map(type, values)) <= _NUMBERS or not all(
        value == 0 or SMALLEST <= value <= LARGEST for value in values
    ):
        raise RecordError(f"{what} must hold 0 or numbers from {SMALLEST} to {LARGEST}, got {list(values)!r:.80}")


def _timing(run: Mapping[str, Any]) -> tuple[str, Sequence[float], str]:
    """The problem that was timed, the measurements, and why there are none."""
    problem, refused, samples = run.get("problem"), run.get("refused", ""), run.get("samples_us", [])
    if type(problem) is not str or type(refused) is not str:
        raise RecordError(f"observed.run's problem and refused must be texts, got {problem!r:.80}, {refused!r:.80}")
    if type(samples) is not list or len(samples) > SAMPLES_LIMIT:
        raise RecordError(f"observed.run.samples_us must be a list of at most {SAMPLES_LIMIT}, got {samples!r:.80}")
    if not samples and "us" in run:
        samples = [run["us"]]
    _check_numbers(samples, "observed.run")
    if samples and not min(samples) > 0:
        raise RecordError("observed.run must hold microseconds above 0, got 0")
    return problem, array("d", sorted(samples)), refused
