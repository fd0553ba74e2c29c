"""The functions that the suites hand to ``torch.compile``."""
