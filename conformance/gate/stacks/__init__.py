"""Builds the environments of stacks, runs the suites in them, and tries scripts with both."""
