"""The functions that the suites give to ``torch.compile``."""
