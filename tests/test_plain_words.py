"""The guides and the source use plain words and short sentences: see "Language" in CONTRIBUTING.md."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
#: Guides that are written by hand; `conformance kernels --markdown` writes the other one.
GUIDES = [*sorted(set((ROOT / "docs").glob("*.md")) - {ROOT / "docs" / "kernels.md"}), ROOT / "README.md"]
GUIDES.append(ROOT / "CONTRIBUTING.md")
SOURCE = sorted((ROOT / "conformance").rglob("*.py"))
MOST_WORDS = 25
OLD_WORDS = re.compile(r"\b(anew|beside|nobody|in vain|from elsewhere)\b", re.IGNORECASE)
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
    every = [sentence for text in paragraphs(page) for sentence in sentences(text)]
    return [one for one in every if len([word for word in one.split() if re.search(r"\w", word)]) > MOST_WORDS]


def prose_of(source: str) -> Iterator[str]:
    """Yields the comments and strings of Python ``source``, without names and quotations of code."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and " " in token.string):
            yield without_code(token.string)
        elif token.type == getattr(tokenize, "FSTRING_MIDDLE", None):
            yield token.string


def old_words(texts: list[str]) -> list[str]:
    """Returns the ``texts`` that have an old word, but for those that are :data:`KEPT`."""
    return [text for text in texts if OLD_WORDS.search(text) and not any(kept in text for kept in KEPT)]


def fragments(source: str) -> list[str]:
    """Returns the beginnings of docstrings that are no sentence of what is returned, done or held."""
    nodes = [
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
    ]
    docstrings = [ast.get_docstring(node) or "" for node in nodes]
    return [docstring.splitlines()[0] for docstring in docstrings if FRAGMENT.match(docstring)]


def test_sentences_of_the_guides_are_short():
    assert {page.name: found for page in GUIDES if (found := long_sentences(page.read_text()))} == {}


def test_the_guides_have_no_old_words():
    texts = {page.name: paragraphs(page.read_text()) for page in GUIDES}
    assert {name: found for name, page in texts.items() if (found := old_words([*map(without_code, page)]))} == {}


def test_the_source_has_no_old_words():
    texts = {file.relative_to(ROOT): [*prose_of(file.read_text())] for file in SOURCE}
    assert {name: found for name, prose in texts.items() if (found := old_words(prose))} == {}


def test_docstrings_begin_with_a_sentence():
    assert {str(file): found for file in SOURCE if (found := fragments(file.read_text()))} == {}


def test_a_long_sentence_is_seen():
    long = " ".join(["word"] * 26)
    assert long_sentences(f"# Title\n\nShort.\n\n* {long}.\n") == [f"* {long}."]
    assert long_sentences(f"| a | {long} |\n```sh\n{long}\n```\n") == [f"{long} |"]
    assert long_sentences(f"{long[:50]}. {long[:50]}; {long[:50]} `{long}`.") == []


def test_old_words_and_fragments_are_seen():
    source = (
        '"""What it is."""\n\n# begin anew\nx = f"{beside} beside {x}"\n\n\ndef f():\n    """Returns ``nobody``."""\n'
    )
    comment, text = old_words([*prose_of(source)])
    assert (comment, "beside" in text) == ("# begin anew", True)
    assert fragments(source) == ["What it is."]
