"""Config spaces: the tile sizes and compile options that a kernel is known to be used with.

The rows are (BLOCK_M, BLOCK_N, BLOCK_K, num_stages, num_warps) as PyTorch Inductor's heuristics list them for CUDA
(July 2025); GROUP_M is 8 in all of them. ``PERSISTENT_FP8`` adds wide tiles, which were fastest for fp8 on an H200.
"""

from __future__ import annotations

from .launch import Config


def _rows(*rows: tuple[int, int, int, int, int]) -> tuple[Config, ...]:
    return tuple(Config(*row) for row in rows)


MM = _rows(
    (32, 32, 16, 1, 2),
    (32, 32, 128, 2, 4),
    (32, 64, 32, 5, 8),
    (64, 32, 32, 5, 8),
    (64, 32, 128, 5, 4),
    (64, 64, 16, 2, 4),
    (64, 64, 32, 2, 4),
    (64, 64, 64, 3, 8),
    (64, 64, 128, 5, 4),
    (64, 128, 32, 3, 4),
    (64, 128, 32, 4, 8),
    (64, 128, 64, 3, 4),
    (64, 128, 128, 4, 4),
    (128, 64, 32, 3, 4),
    (128, 64, 32, 4, 8),
    (128, 128, 32, 2, 8),
    (128, 128, 32, 3, 4),
    (128, 128, 64, 3, 4),
    (128, 128, 64, 5, 8),
)

PERSISTENT = _rows(
    (128, 256, 64, 3, 8),
    (128, 128, 64, 3, 8),
    (128, 128, 128, 3, 8),
    (128, 128, 128, 3, 4),
    (128, 128, 64, 4, 8),
    (128, 128, 64, 5, 8),
    (256, 128, 64, 4, 8),
    (128, 128, 64, 5, 4),
)

#: 17 large tiles, then 16- and 32-row tiles with 2 to 6 stages: two warps up to 64 columns, four above.
SCALED = _rows(
    (128, 256, 32, 3, 8),
    (256, 128, 32, 3, 8),
    (256, 64, 32, 4, 4),
    (64, 256, 32, 4, 4),
    (128, 128, 32, 4, 4),
    (128, 64, 32, 4, 4),
    (64, 128, 32, 4, 4),
    (128, 32, 32, 4, 4),
    (64, 32, 32, 5, 2),
    (256, 128, 128, 3, 8),
    (256, 64, 128, 4, 4),
    (64, 256, 128, 4, 4),
    (128, 128, 128, 4, 4),
    (128, 64, 64, 4, 4),
    (64, 128, 64, 4, 4),
    (128, 32, 64, 4, 4),
    (64, 32, 64, 5, 2),
) + tuple(
    Config(m, n, k, stages, 2 if n <= 64 else 4)
    for stages in (2, 3, 4, 5, 6)
    for m in (16, 32)
    for k in (32, 64)
    for n in (32, 64, 128, 256)
)

SCALED_PERSISTENT = _rows(
    (128, 128, 64, 3, 8),
    (128, 128, 128, 3, 8),
    (128, 128, 128, 4, 8),
    (128, 128, 128, 4, 4),
    (128, 128, 128, 3, 4),
    (128, 128, 128, 5, 4),
    (128, 128, 128, 5, 8),
    (128, 128, 128, 6, 8),
    (128, 128, 64, 4, 8),
)

PERSISTENT_FP8 = (*SCALED_PERSISTENT, Config(128, 256, 128, 3, 8), Config(128, 256, 128, 4, 8))


def covering_sample(configs: tuple[Config, ...]) -> tuple[Config, ...]:
    """The shortest prefix-greedy sample of ``configs`` in which every tile size, stage count and warp count of the
    table appears. Deterministic: ties go to the row listed first."""

    def traits(config: Config) -> set[tuple[str, object]]:
        return {
            ("tile", (config.block_m, config.block_n, config.block_k)),
            ("stages", config.num_stages),
            ("warps", config.num_warps),
        }

    missing = set[tuple[str, object]]().union(*map(traits, configs))
    sample: list[Config] = []
    while missing:
        best = max(configs, key=lambda config: len(traits(config) & missing))
        sample.append(best)
        missing -= traits(best)
    return tuple(sample)
