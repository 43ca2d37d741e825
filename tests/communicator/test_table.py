# SPDX-License-Identifier: BSD-3-Clause
"""docs/communicator.md has all of mpi4py and torch.distributed: ours, or why not."""

import re

import pytest
from paths import ROOT

# Methods of mpi4py.MPI.Intracomm in 4.1 whose names begin with a capital letter. The
# non-blocking and the persistent ones of others are left out.
MPI4PY = """
    Abort Accept Ack_failed Agree Allgather Allgatherv Allreduce Alltoall Alltoallv
    Alltoallw Attach_buffer Barrier Bcast Bsend Call_errhandler Cart_map Clone Compare
    Connect Create Create_cart Create_dist_graph Create_errhandler Create_from_group
    Create_graph Create_group Create_intercomm Create_keyval Delete_attr Detach_buffer
    Disconnect Dup Dup_with_info Exscan Flush_buffer Free Free_keyval Gather Gatherv
    Get_attr Get_errhandler Get_failed Get_group Get_info Get_name Get_parent Get_rank
    Get_size Get_topology Graph_map Improbe Iprobe Irecv Is_inter Is_intra Is_revoked
    Isend Join Mprobe Neighbor_allgather Neighbor_alltoall Precv_init Probe Psend_init
    Recv Recv_init Reduce Reduce_local Reduce_scatter Reduce_scatter_block Revoke Rsend
    Scan Scatter Scatterv Send Send_init Sendrecv Sendrecv_replace Set_attr
    Set_errhandler Set_info Set_name Shrink Spawn Spawn_multiple Split Split_type Ssend
    MAX MIN SUM PROD LAND BAND LOR BOR LXOR BXOR MAXLOC MINLOC REPLACE NO_OP Op.Create
    IN_PLACE Datatype Win File Group
"""

# Functions of torch.distributed in 2.8, and its reductions.
TORCH = """
    init_process_group is_initialized get_rank get_world_size get_backend new_group
    new_subgroups split_group get_group_rank get_global_rank get_process_group_ranks
    destroy_process_group init_device_mesh shrink_group send recv isend
    batch_isend_irecv send_object_list recv_object_list broadcast broadcast_object_list
    all_reduce reduce all_gather all_gather_into_tensor all_gather_object gather
    gather_object scatter scatter_object_list reduce_scatter reduce_scatter_tensor
    all_to_all_single all_to_all barrier monitored_barrier all_reduce_coalesced
    all_gather_coalesced Store TCPStore FileStore SUM AVG PRODUCT MIN MAX BAND BOR BXOR
    PREMUL_SUM
"""


def named() -> set[str]:
    """What the tables have in code."""
    text = (ROOT / "docs/communicator.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("|")]
    return {
        name.removeprefix("MPI.")
        for row in rows
        for code in re.findall("`([^`]+)`", row)
        for name in re.findall(r"[A-Za-z_][\w.]*", code)
    }


@pytest.mark.parametrize("names", [MPI4PY, TORCH], ids=["mpi4py", "torch"])
def test_the_tables_have_no_gap(names):
    assert set(names.split()) - named() == set()
