"""The rows of a scenario, as tests compare them."""

from __future__ import annotations

from conformance.cases import tier_rows


def rows(scene, kernel, targets, tier, unused=()):
    """(target, dtype, config, *parameters, *rotated) of each case of ``kernel``."""
    groups = tier_rows.groups(scene, kernel, tuple(targets), tier, unused)
    return [(target, *pair, *own) for able, pair, own in groups for target in able]
