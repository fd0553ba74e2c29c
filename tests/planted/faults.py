"""The table of planted faults: small textual changes of the kernels' own source, never of their output."""

from arithmetic_faults import DATA, EPILOGUE, PRECISION
from cases import Fault
from loading_faults import ADDRESSING, TAIL, TILING

FAULTS: tuple[Fault, ...] = (*TAIL, *TILING, *ADDRESSING, *EPILOGUE, *DATA, *PRECISION)
GROUPS = tuple(dict.fromkeys(fault.group for fault in FAULTS))
