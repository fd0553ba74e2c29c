"""Parts of a reproducer of wrong numbers. These functions are copied into the script as they stand, so they use nothing
but Python, torch and triton."""

import base64
import zlib
from collections.abc import Callable
from typing import Any

import torch

#: Bytes of poison before and behind every tensor.
GUARD = 4096


def unpacked(text: str, dtype: Any, shape: tuple[int, ...]) -> torch.Tensor:
    """The tensor whose compressed bits `text` holds."""
    raw = bytearray(zlib.decompress(base64.b85decode("".join(text.split()))))
    if not raw:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(raw, dtype=torch.uint8).view(dtype).view(shape)


def place(layout: tuple[Any, ...], values: Any, poison: int, device: str) -> tuple[torch.Tensor, ...]:
    """A tensor with `poison` before, behind and between its elements: the memory, the tensor, its own bytes in it."""
    dtype, shape, strides, offset = layout
    size = dtype.itemsize
    span = 0 if 0 in shape else 1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
    length = GUARD + -(-(offset + span) * size // 8) * 8 + GUARD
    memory = torch.full((length,), poison, dtype=torch.uint8, device=device)
    tensor = memory.view(dtype).as_strided(shape, strides, GUARD // size + offset)
    if values is not None:
        tensor.copy_(values.to(device))
    own = torch.zeros(length, dtype=torch.bool, device=device)
    steps = (*(stride * size for stride in strides), 1)
    own.as_strided((*shape, size), steps, GUARD + offset * size).fill_(True)
    return memory, tensor, own


def run(
    launch: Callable[..., None], layouts: dict[str, Any], data: dict[str, str], poison: int, device: str
) -> tuple[dict[str, torch.Tensor], list[str]]:
    """Launches once: the outputs, which are the tensors without data, and what else was written to."""
    placed = {}
    for name, layout in layouts.items():
        values = unpacked(data[name], *layout[:2]) if name in data else None
        # outputs begin as another pattern, so that poison that is copied from an input shows around them
        placed[name] = place(layout, values, poison if name in data else poison - 1, device)
    before = {name: memory.clone() for name, (memory, _, _) in placed.items()}
    launch(**{name: tensor for name, (_, tensor, _) in placed.items()})
    outputs, faults = {}, []
    for name, (memory, tensor, own) in placed.items():
        changed = memory != before[name]
        if name not in data:
            changed &= ~own
            outputs[name] = tensor.cpu().contiguous()
        count = int(changed.sum())
        if count:
            faults.append(f"{count} bytes were written {'in or ' if name in data else ''}around {name}")
    return outputs, faults


def compare(name: str, out: torch.Tensor, low: torch.Tensor, high: torch.Tensor, nan: Any) -> list[str]:
    """Returns a sentence if an element of `out` is not within `low` to `high`, or NaN where `nan` allows it; prints the
    first wrong ones."""
    numbers = out.double()
    good = (numbers >= low) & (numbers <= high)
    if nan is not None:
        good |= nan & numbers.isnan()
    wrong = (~good).nonzero().tolist()
    for index in wrong[:5]:
        at = tuple(index)
        least, most = low[at].item(), high[at].item()
        right = f"{least:.9g}" if least == most else "NaN" if least > most else f"{least:.9g} to {most:.9g}"
        print(f"  {name}{index} is {numbers[at].item():.9g}, right is {right}")
    return [f"{len(wrong)} of {out.numel()} elements of {name} are wrong"] if wrong else []


def check(
    launch: Callable[..., None],
    layouts: dict[str, Any],
    data: dict[str, str],
    right: dict[str, Any],
    device: str,
    repeats: bool = True,
) -> list[str]:
    """Two runs, with NaN and with a large number around every tensor: all that is wrong, a sentence each. `repeats`:
    both must give the same bits."""
    faults: list[str] = []
    runs = []
    for poison in (0xFF, 0x7B):
        outputs, disturbed = run(launch, layouts, data, poison, device)
        for name, (dtype, *texts) in right.items():
            low, high = (unpacked(text or texts[0], dtype, layouts[name][1]).double() for text in texts[:2])
            nan = unpacked(texts[2], torch.bool, layouts[name][1]) if texts[2] else None
            faults += compare(name, outputs[name], low, high, nan)
        faults += disturbed
        runs.append(outputs)
    for name in right:
        first, second = (outputs[name].view(-1).view(torch.uint8) for outputs in runs)
        if repeats and not torch.equal(first, second):
            faults.append(f"two runs give different bits in {name}")
    return list(dict.fromkeys(faults))
