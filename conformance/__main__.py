"""``python -m conformance``: the command ``conformance`` where the package is not installed."""

import sys

from conformance.cli import main

sys.exit(main())
