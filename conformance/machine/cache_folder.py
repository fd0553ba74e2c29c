"""The folder in which environments, runs and verdicts are kept."""

from __future__ import annotations

import os
from pathlib import Path


def default_cache() -> Path:
    """Returns the folder for kept files: below XDG_CACHE_HOME, or ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "triton-conformance"
