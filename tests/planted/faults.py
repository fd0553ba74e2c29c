"""The table of planted faults: small textual changes of the kernels' own source, never of their output."""

from dataclasses import replace

from tests.planted.accumulator_faults import ACCUMULATORS
from tests.planted.arithmetic_faults import DATA, EPILOGUE, PRECISION
from tests.planted.attention_faults import FAULTS as ATTENTION
from tests.planted.blackwell_faults import BLACKWELL
from tests.planted.cases import Fault
from tests.planted.causes import CAUSES
from tests.planted.conv_faults import CONVOLUTION
from tests.planted.family_faults import FAMILY
from tests.planted.grouped_faults import GROUPED
from tests.planted.legacy_faults import LEGACY
from tests.planted.linear_attention_faults import LINEAR_ATTENTION
from tests.planted.loading_faults import ADDRESSING, TAIL, TILING
from tests.planted.microscaled_faults import MICROSCALED

_PLANTED: tuple[Fault, ...] = (
    *(*TAIL, *TILING, *ADDRESSING, *EPILOGUE, *DATA, *PRECISION),
    *(*FAMILY, *CONVOLUTION, *ATTENTION, *BLACKWELL, *GROUPED, *LEGACY, *MICROSCALED, *ACCUMULATORS),
    *LINEAR_ATTENTION,
)
FAULTS = tuple(replace(fault, cause=fault.cause or CAUSES.get(fault.name, "")) for fault in _PLANTED)
GROUPS = tuple(dict.fromkeys(fault.group for fault in FAULTS))
