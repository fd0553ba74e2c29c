"""Every planted fault is caught, by a kernel that passes without it, and the diagnosis names what the table says.

The runs happen in child processes of table.py, in the interpreter or on the device; one test per group of faults.
"""

import dataclasses

import pytest

from tests.planted import planted_kernels, table
from tests.planted.cases import MM, Edit, Fault
from tests.planted.faults import FAULTS, GROUPS


@pytest.mark.long(65)
@pytest.mark.parametrize("group", GROUPS)
def test_every_fault_is_caught(group):
    device = table.has_device()
    names = [fault.name for fault in FAULTS if fault.group == group and fault.runs(device)]
    if not names:
        pytest.skip(f"no fault of {group} can be run here: its kernels need another Triton or another device")
    rows = list(table.run(names, device, compare=device, brief=not device))
    assert sorted(row.fault for row in rows) == sorted(names)
    wrong = table.complaints(rows, device)
    assert not wrong, "\n" + "\n".join(wrong) + "\n\n" + table.markdown(rows, names)


def test_the_table_fits_the_source():
    misfits = []
    for fault in FAULTS:
        try:
            planted_kernels.edited(fault)
        except planted_kernels.NotPlantable as error:
            misfits.append(str(error))
    assert misfits == []


def test_there_are_enough_faults_and_every_name_is_unique():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    assert sum(not fault.equivalent for fault in FAULTS) >= 36


def test_text_that_is_not_in_the_source_is_refused():
    stale = Fault("stale", Edit("device/tiles.py::swizzle,split_columns", "no such text", ""), MM)
    with pytest.raises(planted_kernels.NotPlantable, match="0 times, the table says 1"):
        planted_kernels.edited(stale)


def _row(**fields):
    return dataclasses.replace(
        table.Row("skip_last_k", ("numerics/randn",), "FAIL x | CAUSE k-block 2 of 3 (BLOCK_K=16) is skipped"), **fields
    )


def test_what_the_table_complains_about():
    """The judgement of rows itself: each kind of deviation is reported, and a row as expected is not."""
    assert table.complaints([_row()], device=False) == []
    assert "NOT CAUGHT" in table.complaints([_row(caught_by=())], device=True)[0]
    assert "unchanged kernel fails" in table.complaints([_row(baseline=("numerics/randn: x",))], device=True)[0]
    assert "is expected, named was ''" in table.complaints([_row(diagnosis="FAIL x")], device=False)[0]
    assert "not a finding" in table.complaints([_row(caught_by=("exception NameError: x",))], device=True)[0]
    equivalent = table.Row("ktail_other1_A_only", ("numerics/randn",))
    assert "said to change nothing" in table.complaints([equivalent], device=True)[0]
    memory = table.Row("mstore_off1", ("numerics/randn",))
    assert "leave the numbers alone" in table.complaints([memory], device=True)[0]
    nothing = table.Row("skip_last_k", (), not_compiled=table.COMPILER_FAILURE)
    assert table.complaints([nothing], device=True) == []
    assert "not run: Triton does not compile the unchanged kernel" in table.markdown([nothing], ["skip_last_k"])
