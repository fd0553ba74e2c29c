"""Two boards: one for the backend next to this file, one whose backend is not installed."""

from conformance.targets import Target


def boards():
    return [Target("third", 1, 32, name="Third board"), Target("absent", 1, 32, name="Board without a backend")]
