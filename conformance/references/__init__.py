"""What each family's operation means, in exact or fp64 arithmetic: one module per family of problems."""
