"""The reference results of each family of problems, in exact or fp64 arithmetic."""
