"""Judges the order of a kernel's compiled code."""

from __future__ import annotations

from conformance.execution.compile.assembly import parsed
from conformance.execution.order.answer import OrderAnswer
from conformance.execution.order.lds_accesses import lds_answer
from conformance.execution.order.product_waits import wait_answer
from conformance.execution.order.proxy_fences import fence_answer

#: The compiler stages whose text shows the order.
STAGES = ("ptx", "amdgcn")


def order_answers(stage: str, text: str) -> list[OrderAnswer]:
    """Returns the answers for the kernel in ``text`` of ``stage``, one of :data:`STAGES`. All kernels of a stage have
    the same kinds of answers, so that a comparison misses none."""
    code = parsed(stage, text)
    return [fence_answer(code, text), wait_answer(code)] if stage == "ptx" else [lds_answer(code, text)]


def fenced(ptx: str) -> bool:
    """Returns True if no fence is missing in ``ptx``, as far as that is known."""
    return all(answer.right for answer in order_answers("ptx", ptx) if answer.subject == "fence")
