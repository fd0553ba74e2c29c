"""Screens the one GPU that this process sees: ``python -m`` this module. It writes lines of JSON for the process that
started it: about the GPU, signs of life, and in the end what was seen."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from conformance.exception_text import text_of
from conformance.machine.gpus import NotAlone, Turns, device_node

#: How a line that is meant for the parent begins: a library may print, too.
MARK = "conformance-screen: "
#: Seconds between two signs of life.
BEAT_S = 1.0
#: Seconds before the end at which the last turn is over, so that the answer is there in time.
END_S = 3.0
#: The part of the time for which it waits until no other process uses the GPU.
_WAIT = 0.25


def main(words: list[str]) -> int:
    """Screens for the seconds, and at most the turns (0: any number), that ``words`` give."""
    seconds, turns = float(words[0]), int(words[1])
    until = time.monotonic() + max(seconds - END_S, 1.0)
    variable, entry = next(
        (name, os.environ[name]) for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES") if name in os.environ
    )
    try:
        with Turns(entry, node=device_node(variable, entry)).alone(seconds * _WAIT):
            _screen(until, turns or None)
    except NotAlone as error:
        _say(not_run=f"{error}: end them, or screen this GPU later")
    except ImportError as error:
        _say(not_run=f"torch and triton are needed: {error}")
    except Exception as error:  # whatever a broken device raises
        _say(failed=text_of(error)[:2000])
    return 0


def _screen(until: float, turns: int | None) -> None:
    import torch
    import triton

    if not torch.cuda.is_available():
        _say(not_run=f"torch {torch.__version__} can use no GPU here")
        return
    from conformance import targets
    from conformance.screening.turns import Screen
    from conformance.screening.units import units

    target = targets.devices()[0]
    properties = torch.cuda.get_device_properties(0)
    versions = {"torch": torch.__version__, "triton": triton.__version__}
    _say(about={"name": target.name, "uuid": _uuid(properties), "pci": _pci(properties), **versions})
    screen = Screen(target, units(target), places=properties.multi_processor_count)
    last = 0.0

    def beat() -> None:
        nonlocal last
        if time.monotonic() - last > BEAT_S:
            last = time.monotonic()
            _say(turns=screen.seen.turns, wrong_tiles=sum(unit.wrong_tiles for unit in screen.seen.units))

    _say(seen=screen.run(until, beat, turns).to_dict())


def _uuid(properties: Any) -> str:
    """Returns the UUID as the driver writes it; "" if torch does not know it."""
    uuid = str(getattr(properties, "uuid", ""))
    return f"GPU-{uuid}" if uuid and not uuid.startswith("GPU-") else uuid


def _pci(properties: Any) -> str:
    """Returns the PCI address; "" if torch does not know it."""
    numbers = [getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    if any(number is None for number in numbers):
        return ""
    domain, bus, device = numbers
    return f"{domain:04x}:{bus:02x}:{device:02x}.0"


def _say(**message: object) -> None:
    print(MARK + json.dumps(message), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
