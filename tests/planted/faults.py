"""The table of planted faults: small textual changes of the kernels' own source, never of their output."""

from dataclasses import replace

from tests.planted.accumulator_faults import ACCUMULATORS
from tests.planted.arithmetic_faults import DATA, EPILOGUE, PRECISION
from tests.planted.attention_descriptor_faults import ATTENTION_DESCRIPTORS
from tests.planted.attention_faults import FAULTS as ATTENTION
from tests.planted.attention_fp8_faults import ATTENTION_FP8
from tests.planted.attention_packed_faults import ATTENTION_PACKED
from tests.planted.attention_paged_faults import ATTENTION_PAGED
from tests.planted.blackwell_faults import BLACKWELL
from tests.planted.cases import Fault
from tests.planted.causes import CAUSES
from tests.planted.conv_faults import CONVOLUTION
from tests.planted.depthwise_faults import DEPTHWISE
from tests.planted.descriptor_faults import DESCRIPTORS
from tests.planted.elementwise_faults import ELEMENTS
from tests.planted.family_faults import FAMILY
from tests.planted.fnuz_faults import FNUZ_FORMATS
from tests.planted.grouped_faults import GROUPED
from tests.planted.indexed_row_faults import INDEXED_ROWS
from tests.planted.int4_faults import FOUR_BITS
from tests.planted.legacy_faults import LEGACY
from tests.planted.linear_attention_faults import LINEAR_ATTENTION
from tests.planted.loading_faults import ADDRESSING, TAIL, TILING
from tests.planted.microscaled_batch_faults import MICROSCALED_BATCH
from tests.planted.microscaled_batch_tiles_faults import MICROSCALED_BATCH_TILES
from tests.planted.microscaled_faults import MICROSCALED, MICROSCALED_TMA
from tests.planted.microscaled_grouped_faults import MICROSCALED_GROUPED
from tests.planted.quantised_faults import CODES
from tests.planted.row_faults import ROWS
from tests.planted.row_function_faults import FUNCTIONS
from tests.planted.specialised_faults import SPECIALISED
from tests.planted.stream_k_faults import SHARED_TILES
from tests.planted.transposed_faults import TRANSPOSED
from tests.planted.weight_gradient_faults import WEIGHT_GRADIENT

_PLANTED: tuple[Fault, ...] = (
    *TAIL,
    *TILING,
    *ADDRESSING,
    *EPILOGUE,
    *DATA,
    *PRECISION,
    *FAMILY,
    *CONVOLUTION,
    *DEPTHWISE,
    *TRANSPOSED,
    *ATTENTION,
    *ATTENTION_DESCRIPTORS,
    *ATTENTION_PACKED,
    *ATTENTION_FP8,
    *ATTENTION_PAGED,
    *BLACKWELL,
    *GROUPED,
    *LEGACY,
    *MICROSCALED,
    *MICROSCALED_TMA,
    *FOUR_BITS,
    *SPECIALISED,
    *DESCRIPTORS,
    *MICROSCALED_GROUPED,
    *SHARED_TILES,
    *LINEAR_ATTENTION,
    *ACCUMULATORS,
    *WEIGHT_GRADIENT,
    *MICROSCALED_BATCH,
    *FNUZ_FORMATS,
    *MICROSCALED_BATCH_TILES,
    *ROWS,
    *ELEMENTS,
    *FUNCTIONS,
    *CODES,
    *INDEXED_ROWS,
)
FAULTS = tuple(replace(fault, cause=fault.cause or CAUSES.get(fault.name, "")) for fault in _PLANTED)
GROUPS = tuple(dict.fromkeys(fault.group for fault in FAULTS))
