"""The streams of the terminal, whose errors must not end a run: a full disk behind them costs lines, no records."""

from __future__ import annotations

import os
import sys
from typing import Any, TextIO, cast

import pytest


class GuardedOutput:
    """Guards streams. ``error`` is the first error of one of them, None while all take what is written."""

    def __init__(self) -> None:
        self.error: OSError | None = None

    def guard(self, stream: TextIO) -> TextIO:
        """A stream that writes to ``stream`` and raises no OSError."""
        return cast(TextIO, _GuardedStream(stream, self))

    def guard_reporter(self, config: pytest.Config) -> None:
        """Guards what pytest itself writes to its terminal."""
        writer = getattr(config.pluginmanager.get_plugin("terminalreporter"), "_tw", None)
        stream = getattr(writer, "_file", None)
        if stream is not None and not isinstance(stream, _GuardedStream):
            writer._file = self.guard(stream)  # type: ignore[union-attr]

    def settle(self) -> None:
        """Gives up what the streams have not written: Python would try once more when it ends, and fail by that."""
        if self.error is None:
            return
        nothing = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.__stdout__, sys.__stderr__):
            try:
                if stream is not None:
                    stream.flush()
            except OSError:
                os.dup2(nothing, cast(TextIO, stream).fileno())
        os.close(nothing)


class _GuardedStream:
    """A text stream that notes its first OSError, and loses what it cannot write."""

    def __init__(self, stream: TextIO, output: GuardedOutput) -> None:
        self._stream = stream
        self._output = output

    def write(self, text: str) -> int:
        self._attempt(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        self._attempt(self._stream.flush)

    def close(self) -> None:
        self._attempt(self._stream.close)

    def _attempt(self, work: Any) -> None:
        try:
            work()
        except OSError as error:
            self._output.error = self._output.error or error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
