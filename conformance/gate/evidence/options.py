"""Which options a run may have had for its records to count as the whole run of its tier."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

#: Options that say how much, where and how to show it: they leave nothing out that the tier and the targets have.
_VALUES = (
    "-n --numprocesses --maxprocesses --max-worker-restart --tier --target --seed --run-dir --gpus --case-timeout"
    " --conformance-tier --conformance-target --conformance-seed --conformance-run-dir --conformance-gpus"
    " --conformance-case-timeout --reproducers --conformance-reproducers"
    " --durations --durations-min --tb --color --junitxml --junit-xml -r --capture"
)
_FLAGS = (
    "-q --quiet -v --verbose -s -l --showlocals --pyargs --strict-markers --strict-config --no-header --no-summary"
    " --no-gpu --conformance-no-gpu --compile-only --conformance-compile-only"
)
#: Options that choose among the cases, or end the run early.
_NARROWING_VALUES = (
    "-k -m --maxfail --deselect --ignore --ignore-glob --kernel --suite --conformance-kernel --conformance-suite"
    " --conformance-case"
)
_NARROWING_FLAGS = "-x --exitfirst --lf --last-failed --sw --stepwise"
_PLUGINS = ("conformance.plugin", "xdist", "no:cacheprovider")
_SUITES = ("conformance.suites", "conformance/suites")  # all of them, as a package and as a folder
#: Variables by which Triton takes other code than it compiled or runs other passes, pytest takes other plugins, and
#: Python leaves out assertions.
_REPLACING = (
    *("TRITON_KERNEL_OVERRIDE", "TRITON_OVERRIDE_DIR", "TRITON_PLUGIN_PATHS", "LLVM_PASS_PLUGIN_PATH"),
    *("PYTEST_PLUGINS", "PYTHONOPTIMIZE"),
)


@dataclass(frozen=True)
class Judged:
    """``partial`` are the options that narrowed the run, ``unlisted`` what no run may have that counts as evidence,
    ``tier`` and ``seed`` what was asked for last, if anything was."""

    partial: tuple[str, ...]
    unlisted: tuple[str, ...]
    tier: str | None = None
    seed: int | None = None


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def judge_options(options: Sequence[str], variables: Mapping[str, str]) -> Judged:
    """Judges the words of pytest's command line and the environment variables of a run."""
    unlisted = [f"{name}={variables[name]}" for name in _REPLACING if variables.get(name, "0") not in ("", "0")]
    try:
        given, unknown = _parser().parse_known_args(list(options))
    except ValueError as error:
        return Judged((), (*unlisted, str(error)))
    narrowing = [f"{name} {value}" for name in _names(_NARROWING_VALUES) for value in vars(given)[name] or ()]
    narrowing += [name for name in _NARROWING_FLAGS.split() if vars(given)[name]]
    narrowing += [f"only {path}" for path in given.paths if path not in _SUITES]
    tier, seed = ((vars(given)[name] or [None])[-1] for name in ("--tier", "--seed"))
    return Judged(tuple(narrowing), (*unlisted, *unknown), tier, seed)


def _names(options: str) -> list[str]:
    """Each of ``options`` once: those of this harness have a longer form that means the same."""
    return list(dict.fromkeys(map(_short, options.split())))


def _short(option: str) -> str:
    short = option.replace("--conformance-", "--")
    return short if short in f"{_VALUES} {_NARROWING_VALUES} {_FLAGS}".split() else option


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(add_help=False, allow_abbrev=False)
    for names, attributes in (
        (_VALUES, {"action": "append"}),
        (_NARROWING_VALUES, {"action": "append"}),
        (_FLAGS, {"action": "count"}),
        (_NARROWING_FLAGS, {"action": "count"}),
    ):
        for name in names.split():
            kind = int if _short(name) == "--seed" else str
            more = {"type": kind} if attributes["action"] == "append" else {}
            parser.add_argument(name, dest=_short(name), **attributes, **more)  # type: ignore[arg-type]
    parser.add_argument("-p", dest="-p", action="append", choices=_PLUGINS)
    parser.add_argument("--dist", choices=("load", "no"))
    parser.add_argument("paths", nargs="*")
    return parser
