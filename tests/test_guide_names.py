"""README.md and the guides in docs/ name every command, option, fill and status that there is, and no other.

Their commands are run by test_guides.py.
"""

from __future__ import annotations

import contextlib
import io
import re

import pytest

from conformance import cli
from conformance.inputs.fills import fill_table
from conformance.kernels.catalogue import catalogue
from conformance.records import Status
from conformance.user_files.run_options import OPTIONS
from tests.test_families import LISTED
from tests.test_guides import PAGES
from tests.test_map import quoted, section

#: Headings below which the tables stand.
OPTIONS_OF_A_RUN, FILLS, STATUSES = "Options", "The fills", "Statuses"
#: Options of pytest, of make and of other programs that a guide explains in a sentence.
OTHERS = {"--pdb", "--tb"}
OTHERS |= {"--maxprocesses", "--tx", "--dist", "--maxfail", "--sw", "--lf", "--ff", "--deselect", "--ignore", "--co"}
OTHERS |= {"--import-mode", "--junitxml", "--durations", "--setup-plan", "--setup-only", "--fixtures", "--cache-show"}
OTHERS |= {"--session-timeout", "--reruns", "--force-reruns", "--forked"}


def help_of(*words: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as output, contextlib.suppress(SystemExit):
        cli.main([*words, "--help"])
    return output.getvalue()


def options_of_commands() -> set[str]:
    helps = [*map(help_of, cli.COMMANDS), help_of("mustpass", "write"), help_of("mustpass", "check")]
    return set(re.findall(r"--[a-z][\w-]*", "\n".join(helps)))


def first_cells(text: str, title: str) -> list[str]:
    """Returns the words in backticks in the first cells of the tables below the heading ``title``."""
    return quoted("\n".join(re.findall(r"^\| (`.*?) \|", section(text, title), re.MULTILINE)))


def wrong_names(text: str) -> list[str]:
    """Returns the names on the pages that are gone, and those that the pages lack."""
    commands = set(re.findall(r"(?:^|`)conformance ([a-z][a-z-]*)", text, re.MULTILINE))
    options = {re.split(r"[ =]", cell)[0] for cell in first_cells(text, OPTIONS_OF_A_RUN)}
    mentioned = {word for words in quoted(text) for word in re.findall(r"(?<![\w-])--[a-z][\w-]*", words)}
    catalogue()  # families register their fills when they are imported
    fills = [(family, name) for family, name, *_ in fill_table()[1:]]
    unlisted = {name for _, name in fills} - {name for family, name in fills if family in LISTED}
    wrong = [f"the guides mention {name}, which is gone" for name in sorted(mentioned - options_of_commands() - OTHERS)]
    for what, named, real in (
        ("command", commands, set(cli.COMMANDS)),
        ("option", options, {option.short or option.long for option in OPTIONS}),
        ("fill", set(first_cells(text, FILLS)), {name for _, name in fills}),
        ("status", set(first_cells(text, STATUSES)), {status.value for status in Status}),
    ):
        wrong += [f"the guides name the {what} {name}, which is gone" for name in sorted(named - real)]
        needed = real - unlisted if what == "fill" else real  # a new family needs no row
        wrong += [f"the guides do not name the {what} {name}" for name in sorted(needed - named)]
    return wrong


@pytest.fixture
def text():
    return "\n".join(page.read_text() for page in PAGES)


def test_the_guides_name_what_there_is(text):
    assert wrong_names(text) == []


@pytest.mark.parametrize(
    ("right", "other", "sentences"),
    [
        ("conformance keygen", "conformance keymake", ["name the command keymake,", "not name the command keygen"]),
        ("| `--gpus N` |", "| `--seats N` |", ["mention --seats", "the option --seats", "not name the option --gpus"]),
        ("Give `--no-gpu` for", "Give `--no-cpu` for", ["mention --no-cpu, which is gone"]),
        ("| `tie` |", "| `draw` |", ["name the fill draw, which is gone", "not name the fill tie"]),
        ("`timeout`, `oom` |", "`timeout` |", ["not name the status oom"]),
    ],
)
def test_wrong_names_are_seen(text, right, other, sentences):
    assert right in text
    faults = wrong_names(text.replace(right, other))
    assert len(faults) == len(sentences)
    assert all(sentence in fault for sentence, fault in zip(sentences, faults, strict=True))
