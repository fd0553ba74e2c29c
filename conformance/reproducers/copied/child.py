"""Parts of a reproducer whose fault may take the process with it. The function is copied into scripts as it stands."""

import signal
import subprocess
import sys


def in_child(what: str, seconds: float) -> int:
    """Runs this script again, in a process that may crash or hang; the exit status."""
    try:
        status = subprocess.run([sys.executable, __file__, "child"], timeout=seconds, check=False).returncode
    except subprocess.TimeoutExpired:
        print(f"FAULT: {what} does not end within {seconds:g} s")
        return 1
    if status in (0, 1, 2):
        return status
    ending = f"exit status {status}" if status > 0 else signal.Signals(-status).name
    print(f"FAULT: {what} dies: {ending}")
    return 1
