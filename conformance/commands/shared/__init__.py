"""Parts of several commands: their common options, the lookup of cases, the runs of stacks, the written output."""
