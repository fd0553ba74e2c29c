"""Screens in Triton's interpreter, for a process that knows from its start that kernels are interpreted."""

import dataclasses
import time

from conformance import targets
from conformance.screening import injection, turns
from conformance.screening.fills import bits_of
from conformance.screening.units import units

#: Small and quick in the interpreter.
NAMES = ("fp16 32x64", "int8 32x64", "e4m3 32x64")
PLACES = 3


def _screen(names=NAMES[:1], on_turn=None):
    turns.WAVES = 1
    target = targets.find("sm_90")
    some = [dataclasses.replace(unit, depth=256) for unit in units(target) if unit.name in names]
    return turns.Screen(target, some, "cpu", PLACES, on_turn), some


def clean():
    screen, _ = _screen(NAMES)
    return screen.run(time.monotonic() + 100, turns=turns.BATCH * len(NAMES)).to_dict()


def one_flip_in_two_turns():
    def flip(prepared, number, out, places):
        if number in (1, 3):
            tile = int((places == 2).nonzero()[0])
            bits_of(out)[tile * prepared.size + 2 * 64 + 5] ^= -(1 << 31)

    screen, _ = _screen(on_turn=flip)
    return screen.run(time.monotonic() + 100, turns=1).to_dict()


def wrong_comparison():
    screen, (unit,) = _screen()
    batch = screen.launch(screen.prepare(unit), 0)
    batch.read[0, 2, 1] = 7  # seven elements differ, says the comparison of program 1
    screen.read(batch)
    return screen.seen.to_dict()


def wrong_everywhere():
    screen, _ = _screen(on_turn=lambda prepared, number, out, places: out.neg_())
    screen.run(time.monotonic() + 100)
    return screen.seen.to_dict()


def not_compiled():
    def raises(*arguments, **options):
        raise RuntimeError("no such instruction")

    screen, _ = _screen()
    turns.Prepared.multiply = raises
    return screen.run(time.monotonic() + 100, turns=1).to_dict()


def proof(count):
    """Returns the proof of two units with ``count`` corruptions."""
    _, some = _screen(NAMES[:2])
    return injection.prove(count, 0, targets.find("sm_90"), "cpu", PLACES, some)


def proof_with_a_wrong_variant():
    """Returns the proof of a unit whose kernel is wrong if it can corrupt a fragment of A."""
    _, some = _screen()
    multiply = turns.Prepared.multiply

    def wrong(self, fill, shift, out, places, spot=None):
        compiled = multiply(self, fill, shift, out, places, spot)
        if spot is not None and spot.inject == 2:
            out.neg_()
        return compiled

    turns.Prepared.multiply = wrong
    return injection.prove(8, 0, targets.find("sm_90"), "cpu", PLACES, some)


def classes():
    screen, some = _screen(NAMES)
    ready = {unit.name: screen.prepare(unit) for unit in some}
    return injection.draw(1000, 0, ready, {name: {0, 1, 2, 3} for name in ready})
