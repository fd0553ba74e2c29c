"""The self-test: plants faults on this machine, runs them in an ordinary run, and judges how the run reported them."""
