"""The table of planted faults: small textual changes of the kernels' own source, never of their output."""

from arithmetic_faults import DATA, EPILOGUE, PRECISION
from attention_faults import FAULTS as ATTENTION
from blackwell_faults import BLACKWELL
from cases import Fault
from conv_faults import CONVOLUTION
from family_faults import FAMILY
from grouped_faults import GROUPED
from loading_faults import ADDRESSING, TAIL, TILING

FAULTS: tuple[Fault, ...] = (
    *(*TAIL, *TILING, *ADDRESSING, *EPILOGUE, *DATA, *PRECISION),
    *(*FAMILY, *CONVOLUTION, *ATTENTION, *BLACKWELL, *GROUPED),
)
GROUPS = tuple(dict.fromkeys(fault.group for fault in FAULTS))
