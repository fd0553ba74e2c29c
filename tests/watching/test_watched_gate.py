"""The gate watches a user's suite with two stacks, and a launch that is wrong with one of them makes it unsafe."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance import cli
from tests.releases import EARLIER
from tests.watching.conftest import SUITE


@pytest.mark.long(20)
@pytest.mark.skipif(not EARLIER.exists(), reason=f"needs a second Triton in {EARLIER}: make test installs it")
def test_a_launch_that_is_wrong_with_the_candidate_is_a_regression(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test_user.py").write_text(SUITE.read_text())
    suite = "pytest -q -p no:cacheprovider --rootdir=. test_user.py -k 'release or test_scale'"
    words = ["--candidate", f"site={EARLIER}", "--watch", suite, "--output", "out", "--cache", "cache"]
    assert cli.main(["gate", *words]) == 1
    output = capfd.readouterr().out
    assert output.startswith("NOT SAFE")
    assert "reads N elements out of bounds, the first N elements behind the end of 'x_ptr'" in output
    assert {folder.name for folder in (tmp_path / "out").iterdir() if folder.is_dir()} == {"baseline", "candidate"}
