"""Finds the compiler stage that is guilty of what a case shows with one stack and not with another one."""
