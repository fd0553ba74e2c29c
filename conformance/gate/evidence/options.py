"""The options that a run may have had for its records to count as the whole run of its tier."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from conformance.user_files.run_options import OPTIONS, Effect

#: Options of pytest and of xdist that evidence may have: the words that mean the same, and whether a value follows.
#: What is not listed is refused. These leave nothing out of a run.
_WHOLE_VALUES = (
    "-n --numprocesses --maxprocesses --max-worker-restart"
    " --durations --durations-min --tb --color --junitxml --junit-xml -r --capture"
)
_WHOLE_FLAGS = (
    "-q --quiet -v --verbose -s -l --showlocals --pyargs --strict-markers --strict-config --no-header --no-summary"
)
#: These choose among the cases, or end the run early.
_NARROWING_VALUES = "-k -m --maxfail --deselect --ignore --ignore-glob"
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
class OptionCheck:
    """The meaning of a run's options for evidence. ``narrowing`` are those that left cases out, in an order that may
    never change: signed statements repeat it. ``refused`` are those that no evidence may have. ``tier`` and ``seed``
    are the last ones given, None if there was none."""

    narrowing: tuple[str, ...]
    refused: tuple[str, ...]
    tier: str | None = None
    seed: int | None = None


@dataclass(frozen=True)
class _Option:
    """One option as evidence sees it. ``shown`` is how messages write it, whichever spelling was used."""

    shown: str
    spellings: tuple[str, ...]
    is_flag: bool
    narrows: bool


class _OptionParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def check_options(options: Sequence[str], variables: Mapping[str, str]) -> OptionCheck:
    """Checks the words of pytest's command line and the environment variables of a run."""
    refused = [f"{name}={variables[name]}" for name in _REPLACING if variables.get(name, "0") not in ("", "0")]
    accepted = _accepted()
    try:
        namespace, unknown = _parser(accepted).parse_known_args(list(options))
    except ValueError as error:
        return OptionCheck((), (*refused, str(error)))
    values = vars(namespace)
    narrowing = [
        f"{option.shown} {value}"
        for option in accepted
        if option.narrows and not option.is_flag
        for value in values[option.shown] or ()
    ]
    narrowing += [option.shown for option in accepted if option.narrows and option.is_flag and values[option.shown]]
    narrowing += [f"only {path}" for path in namespace.paths if path not in _SUITES]
    tier, seed = ((values[name] or [None])[-1] for name in ("--tier", "--seed"))
    return OptionCheck(tuple(narrowing), (*refused, *unknown), tier, seed)


def _accepted() -> list[_Option]:
    """Every option that evidence may have: pytest's, then those of this harness."""
    tables = (
        (_WHOLE_VALUES, False, False),
        (_WHOLE_FLAGS, True, False),
        (_NARROWING_VALUES, False, True),
        (_NARROWING_FLAGS, True, True),
    )
    accepted = [_Option(name, (name,), flag, narrows) for names, flag, narrows in tables for name in names.split()]
    for option in OPTIONS:
        if option.effect is not Effect.REFUSED:
            spellings = (option.short, option.long) if option.short else (option.long,)
            accepted.append(_Option(spellings[0], spellings, option.is_flag, option.effect is Effect.NARROWS))
    return accepted


def _parser(accepted: Sequence[_Option]) -> argparse.ArgumentParser:
    parser = _OptionParser(add_help=False, allow_abbrev=False)
    for option in accepted:
        if option.is_flag:
            parser.add_argument(*option.spellings, dest=option.shown, action="count")
        else:
            kind = int if option.shown == "--seed" else str
            parser.add_argument(*option.spellings, dest=option.shown, action="append", type=kind)
    parser.add_argument("-p", dest="-p", action="append", choices=_PLUGINS)
    parser.add_argument("--dist", choices=("load", "no"))
    parser.add_argument("paths", nargs="*")
    return parser
