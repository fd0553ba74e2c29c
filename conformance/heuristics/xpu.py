"""Intel GPUs: the base's tables."""

from __future__ import annotations

from conformance.heuristics import base
from conformance.heuristics.device_class import DeviceClass

XPU = DeviceClass("xpu", base.TABLES, base.SPACES)
