"""Items that are made when they are used are the items that pytest would have made."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.forked_python import executable

ROOT = Path(__file__).resolve().parents[2]

#: Collects the suites of split K and TMA stores in several ways. Prints, for each, the facts of its items and how many
#: had been made when the collection was over.
SCRIPT = """
import json, pytest
from conformance.plugin import lazy_items, parametrisation

class Look:
    def pytest_collection_finish(self, session):
        lazy = [item for item in session.items if isinstance(item, lazy_items.LazyFunction)]
        self.counts = len(lazy), sum(item.case is None for item in lazy)
        self.items = [
            [item.nodeid, item.name, item.callspec.id, repr(item.callspec.params), item.fixturenames, item.originalname,
             sorted(item.keywords), [mark.name for mark in item.iter_markers()], list(item.location), repr(item),
             item.parent.nodeid, str(item.path), item.function.__name__]
            for item in session.items
        ]

class Renaming:
    def pytest_itemcollected(self, item):
        item.user_properties.append(("heard", item.name))

class Twice:
    def pytest_generate_tests(self, metafunc):
        metafunc.fixturenames.append("again")
        metafunc.parametrize("again", [1, 2])

class Keep(Look):
    items = counts = None
    def pytest_collection_finish(self, session):
        self.session = session

def collect(*arguments, plugins=(), look=None, bare=("-p", "no:terminal", "-p", "no:cacheprovider")):
    look = look or Look()
    options = ["--collect-only", *bare, "--no-gpu", "--tier", "quick"]
    suites = ["--suite", "split_k", "--suite", "tma_store"]
    code = pytest.main(["--pyargs", "conformance.suites", *options, *suites, *arguments], plugins=[look, *plugins])
    return {"code": int(code), "counts": look.counts, "items": look.items}

WAYS = {
    "all": [],
    "keyword": ["-k", "bf16 and not store"],
    "mark": ["-m", "not parametrize"],
    "kernel": ["--kernel", "mm_persistent_tma"],
}
first = collect()["items"]
case = first[0][0].partition("suites/")[2] or first[0][0]
WAYS["case"] = ["--conformance-case", case]
WAYS["deselected"] = ["--deselect", first[1][0]]
answers = {"lazy": {name: collect(*way) for name, way in WAYS.items()}}
answers["all of pytest"] = []
for words in (["-qq"], ["-q"], ["-q", "--ff", "--nf"]):
    kept = Keep()
    collect(*words, look=kept, bare=())
    made = [item.case is None for item in kept.session.items if isinstance(item, lazy_items.LazyFunction)]
    answers["all of pytest"].append([len(made), sum(made)])
answers["heard"] = collect(plugins=[Renaming()])["counts"]
answers["twice"] = {"lazy": collect(plugins=[Twice()])}
aside = lazy_items._Aside.pytest_collection_modifyitems
lazy_items._Aside.pytest_collection_modifyitems = lambda self, items: setattr(self.kept, "before", list(items))
answers["not aside"] = collect()["counts"]
lazy_items._Aside.pytest_collection_modifyitems = aside
parametrisation.group_of = lambda made, table: None
answers["eager"] = {name: collect(*way) for name, way in WAYS.items()}
answers["twice"]["eager"] = collect(plugins=[Twice()])
print("\\n" + json.dumps(answers))
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [executable(), "-c", SCRIPT],
        capture_output=True,
        text=True,
        cwd=tmp_path_factory.mktemp("elsewhere"),
        env={**environment, "PYTHONPATH": path, "TRITON_INTERPRET": "1"},
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("way", ["all", "keyword", "mark", "kernel", "case", "deselected"])
def test_filters_answer_the_same_and_the_items_are_the_same(answers, way):
    lazy, eager = answers["lazy"][way], answers["eager"][way]
    assert lazy["items"]
    assert lazy["items"] == eager["items"]
    assert lazy["code"] == eager["code"] == 0
    assert eager["counts"] == [0, 0]


def test_collection_makes_no_item(answers):
    count, created = answers["lazy"]["all"]["counts"]
    assert count > 20
    assert created == 0


def test_the_cache_and_the_terminal_make_no_item(answers):
    """pytest asks each item for its id in parts since 9.2."""
    for count, created in answers["all of pytest"]:
        assert count > 20
        assert created == 0


def test_each_way_narrows(answers):
    sizes = {way: len(answer["items"]) for way, answer in answers["lazy"].items()}
    whole = sizes["all"]
    assert sizes["case"] == 1
    assert sizes["deselected"] == whole - 1
    assert 0 < sizes["keyword"] < whole
    assert 0 < sizes["kernel"] < whole


def test_items_that_pytest_would_reorder_are_all_made(answers):
    """Without one of the two plugins on either side of the reordering, every item is made."""
    count, created = answers["not aside"]
    assert created == count > 20


def test_a_plugin_that_hears_of_items_sees_each(answers):
    count, created = answers["heard"]
    assert created == count > 20


def test_tests_that_a_plugin_multiplies_are_left_to_pytest(answers):
    lazy, eager = answers["twice"]["lazy"], answers["twice"]["eager"]
    assert lazy == eager
    assert len(lazy["items"]) == 2 * len(answers["lazy"]["all"]["items"])


#: Prints whether pytest's plugin that keeps the ids of all cases heard of these.
KEEPS_IDS = """
import sys, pytest

class Look:
    def pytest_collection_finish(self, session):
        print("keeps ids:", session.config.pluginmanager.hasplugin("nfplugin"))

options = ["-q", "--collect-only", "--no-gpu", "--suite", "split_k", "-o", f"cache_dir={sys.argv[1]}"]
pytest.main(["--pyargs", "conformance.suites", *options, *sys.argv[2:]], plugins=[Look()])
"""


@pytest.mark.parametrize(("options", "keeps"), [((), False), (("--new-first",), True)])
def test_pytest_keeps_the_ids_of_all_cases_only_if_it_is_asked_for_new_ones(tmp_path, options, keeps):
    command = [executable(), "-c", KEEPS_IDS, str(tmp_path / "cache"), *options]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert f"keeps ids: {keeps}" in done.stdout, done.stdout + done.stderr
