"""Intel GPUs: the base's tables."""

from __future__ import annotations

from . import base
from .device_class import DeviceClass

XPU = DeviceClass("xpu", base.TABLES, base.SPACES)
