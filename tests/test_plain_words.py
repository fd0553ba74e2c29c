"""The guides and the source use plain words and short sentences: see "Language" in CONTRIBUTING.md."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
#: Guides that are written by hand; `conformance kernels --markdown` writes the other one.
GUIDES = [*sorted(set((ROOT / "docs").glob("*.md")) - {ROOT / "docs" / "kernels.md"}), ROOT / "README.md"]
GUIDES.append(ROOT / "CONTRIBUTING.md")
SOURCE = sorted((ROOT / "conformance").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
READ = [file for file in (*SOURCE, *TESTS) if file != Path(__file__)]
MOST_WORDS = 25
#: Names of variables that do not say what the variable holds.
OLD_NAMES = {"wanted", "known", "made", "taken"}
#: Parameters of cases keep their names, because these are part of the cases' ids.
PARAMETERS = {"test_inductor_templates.py": {"wanted"}, "test_microscaling.py": {"made"}}
OLD_WORDS = re.compile(r"\b(anew|beside|nobody|in vain|from elsewhere)\b", re.IGNORECASE)
CODE_IN_TEXT = re.compile(r"\(\?P<|\w\|\w|CREATE TABLE")
#: A string of Python, or a comment. The module `tokenize` takes several times as long.
STRING_OR_COMMENT = re.compile(
    r"""(\"{3}|'{3})(?:\\.|.)*?\1|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|(?P<comment>#[^\n]*)""", re.DOTALL
)
FRAGMENT = re.compile(r"(What|Whether|Which|Where|How|Why|Who|Those|That)\b")
#: Texts with an old word that stay: `gate/runs/known_defects.py` reads it in records of older versions.
KEPT = {"nobody has waited"}


def without_code(text: str) -> str:
    """Returns ``text`` with a word in place of each quotation of code and of each value, and without pictures.

    >>> without_code("`a b` and ``c``: {d}")
    'CODE and CODE: CODE'
    """
    return re.sub(r"``.*?``|`[^`]*`|\{[^}]*\}", "CODE", re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text))


def paragraphs(page: str) -> list[str]:
    """Returns the paragraphs, items and cells of a Markdown page, each on one line, without its code and headings."""
    page = re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
    blocks = re.split(r"\n\s*\n|\n(?=\s*(?:[*-]|\d+\.) )|\n(?=[|#])", page)
    texts = [cell for block in blocks for cell in (block.split(" | ") if block.startswith("|") else [block])]
    return [" ".join(text.split()) for text in texts if not text.startswith("#")]


def sentences(text: str) -> list[str]:
    """Returns the sentences of a text of one line; semicolons end one, too.

    >>> sentences("Open it. It has (all) rows; read them.")
    ['Open it.', 'It has (all) rows;', 'read them.']
    """
    return [part for part in re.split(r"(?<=[.!?;])[)*_]*\s+", without_code(text)) if part]


def long_sentences(page: str) -> list[str]:
    """Returns the sentences of a page that have more than :data:`MOST_WORDS` words."""
    return too_long(paragraphs(page))


def too_long(texts: Iterable[str]) -> list[str]:
    """Returns the sentences of ``texts``, each of one line, that have more than :data:`MOST_WORDS` words."""
    every = [sentence for text in texts for sentence in sentences(text)]
    return [one for one in every if len([word for word in one.split() if re.search(r"\w", word)]) > MOST_WORDS]


@functools.lru_cache(maxsize=1)
def nodes_of(tree: ast.AST) -> list[ast.AST]:
    """Returns all nodes of ``tree``: several rules ask for those of one file."""
    return list(ast.walk(tree))


@functools.lru_cache(maxsize=1)
def docstrings(tree: ast.AST) -> dict[ast.AST, str]:
    """Returns the docstring of each module, class and function of ``tree`` that has one, by the node that holds it."""
    nodes = (node for node in nodes_of(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef))
    return {node.body[0].value: text for node in nodes if (text := ast.get_docstring(node))}  # type: ignore[attr-defined]


def documentation(source: str, tree: ast.AST | None = None) -> Iterator[str]:
    """Yields the paragraphs of docstrings, without their examples, and the comments of Python ``source``."""
    for docstring in docstrings(tree or ast.parse(source)).values():
        yield from paragraphs(re.sub(r"^ *>>> .*?(?=\n\s*\n|\Z)", "", docstring, flags=re.MULTILINE | re.DOTALL))
    block: list[str] = []
    row, column = 0, 0
    for match in STRING_OR_COMMENT.finditer(source):
        if match["comment"]:
            first = source.rfind("\n", 0, match.start()) + 1
            place = source.count("\n", 0, first) + 1, match.start() - first
            if place != (row + 1, column) or source[first : match.start()].strip():
                yield " ".join(block)
                block = []
            block.append(match["comment"].strip("#: "))
            row, column = place
    yield " ".join(block)


def messages(tree: ast.AST) -> Iterator[str]:
    """Yields the lines of the strings of ``tree`` that are neither docstrings nor code, such as patterns."""
    formatted = [node for node in nodes_of(tree) if isinstance(node, ast.JoinedStr)]
    inside = {part for node in formatted for part in ast.walk(node) if part is not node} | docstrings(tree).keys()
    for node in nodes_of(tree):
        text = ""
        if node not in inside and isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif node not in inside and isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        if text and not CODE_IN_TEXT.search(text):
            yield from text.split("\n")


def old_names(tree: ast.AST) -> set[str]:
    """Returns those of :data:`OLD_NAMES` that are variables or parameters in ``tree``."""
    nodes = nodes_of(tree)
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return OLD_NAMES & {*stored, *(node.arg for node in nodes if isinstance(node, ast.arg))}


def old_words(texts: list[str]) -> list[str]:
    """Returns the ``texts`` that have an old word, but for those that are :data:`KEPT`."""
    return [text for text in texts if OLD_WORDS.search(text) and not any(kept in text for kept in KEPT)]


def fragments(tree: ast.AST) -> list[str]:
    """Returns the beginnings of docstrings that are no sentence of what is returned, done or held."""
    return [text.splitlines()[0] for text in docstrings(tree).values() if FRAGMENT.match(text)]


class Facts(NamedTuple):
    """The documentation, the messages, and the faults of docstrings and names, of one file."""

    documentation: list[str]
    messages: list[str]
    fragments: list[str]
    names: set[str]


@functools.cache
def facts(file: Path) -> Facts:
    source = file.read_text()
    tree = ast.parse(source)
    return Facts([*documentation(source, tree)], [*messages(tree)], fragments(tree), old_names(tree))


def test_sentences_of_the_guides_are_short():
    assert {page.name: found for page in GUIDES if (found := long_sentences(page.read_text()))} == {}


def test_the_guides_have_no_old_words():
    texts = {page.name: paragraphs(page.read_text()) for page in GUIDES}
    assert {name: found for name, page in texts.items() if (found := old_words([*map(without_code, page)]))} == {}


def test_documentation_and_messages_have_no_old_words():
    files = {str(file): facts(file).documentation + (facts(file).messages if file in SOURCE else []) for file in READ}
    assert {name: found for name, texts in files.items() if (found := old_words([*map(without_code, texts)]))} == {}


def test_docstrings_begin_with_a_sentence():
    assert {str(file): found for file in READ if (found := facts(file).fragments)} == {}


def test_sentences_of_docstrings_and_comments_are_short():
    assert {str(file): found for file in READ if (found := too_long(facts(file).documentation))} == {}


def test_sentences_of_messages_are_short():
    assert {str(file): found for file in SOURCE if (found := too_long(facts(file).messages))} == {}


def test_variables_have_names_that_say_what_they_hold():
    names = {file: facts(file).names - PARAMETERS.get(file.name, set()) for file in READ}
    assert {str(file): found for file, found in names.items() if found} == {}


def test_a_long_sentence_is_seen():
    long = " ".join(["word"] * 26)
    assert long_sentences(f"# Title\n\nShort.\n\n* {long}.\n") == [f"* {long}."]
    assert long_sentences(f"| a | {long} |\n```sh\n{long}\n```\n") == [f"{long} |"]
    assert long_sentences(f"{long[:50]}. {long[:50]}; {long[:50]} `{long}`.") == []


def test_old_words_and_fragments_are_seen():
    source = (
        '"""What it is."""\n\n# begin anew\nx = f"{beside} beside {x}"\n\n\ndef f():\n    """Returns ``nobody``."""\n'
    )
    assert old_words([*map(without_code, documentation(source))]) == ["begin anew"]
    assert old_words([*messages(ast.parse(source))]) == ["{} beside {}"]
    assert fragments(ast.parse(source)) == ["What it is."]


def test_long_sentences_of_code_are_seen():
    half = " ".join(["word"] * 13)
    long = f"{half} {half}"
    source = f'"""Short.\n\n{long}.\n\n>>> {long}\n"""\n# {half}\n# {half}\nx = f"{long} {{x}}"  # short\n'
    assert too_long(documentation(source)) == [f"{long}.", long]
    assert too_long(messages(ast.parse(source))) == [f"{long} CODE"]
    assert too_long(messages(ast.parse(f"x = r'(?P<word>a) {long}'"))) == []


def test_old_names_are_seen():
    source = "def f(wanted):\n    made, x = wanted\n    return known(x)\n"
    assert old_names(ast.parse(source)) == {"wanted", "made"}
