# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/version
"""Dependencies go one way, and nothing but the public names is visible."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from arrows import (
    FUNCTION,
    Arrows,
    circles,
    code_of,
    includes,
    noun,
    sources,
)
from paths import ROOT

import ucp
from ucp import _ext, _version

# The rooms of src/, each with those that it may include and call.
BELOW = {
    "util": set(),
    "codec": {"util"},
    "mem": {"util"},
    "host": {"mem", "util"},
    "keys": {"host", "mem", "util"},
    "worker": {"keys", "host", "mem", "util"},
}
BELOW["progress"] = BELOW["worker"] | {"worker"}
BELOW["ops"] = BELOW["worker"] | {"worker", "codec"}
BELOW["lend"] = BELOW["bounce"] = BELOW["ops"] | {"ops"}
BELOW["endpoint"] = BELOW["lend"] | {"lend", "bounce"}
BELOW["channel"] = BELOW["endpoint"] | {"endpoint"}
BELOW["rma"] = BELOW["messenger"] = BELOW["channel"] | {"channel"}
BELOW["library"] = set(BELOW)
BELOW["data"] = BELOW["topology"] = {"util"}
# Libraries on top: they call what is public, and include no other room.
BELOW["comm"] = BELOW["library"] | {"library"}
BELOW["shuffle"] = BELOW["comm"] | {"comm"}
BELOW["region"] = BELOW["comm"] | {"comm"}
BELOW["joint"] = BELOW["region"] | {"region"}
BELOW["outputs"] = BELOW["shmem"] = BELOW["joint"] | {"joint"}
BELOW["proxy"] = BELOW["moe"] = BELOW["joint"] | {"joint"}
ON_TOP = {"comm", "shuffle", "outputs", "region", "joint", "shmem", "proxy", "moe"}
# What layers include and call of another one, beside what is public.
SHARED = {"util", "joint"}
MAY_INCLUDE = {room: {room} | below for room, below in BELOW.items()}

# Rooms in which files need each other, and why.
CIRCLES = {
    "worker": "a worker owns what knows its worker: endpoints, listeners, engines",
    "ops": "a receive of UCX's tags and the messages that were put back",
    "bounce": "a note goes to either half, which answers with one",
    "endpoint": "the states of a connection: each step may end it",
    "channel": "a message goes to the receives of its kind, which may give it back",
    "rma": "an operation goes to the peer, or by UCX's own, and both to flushes",
    "comm": "a rank that ends ends the operations, which end at ranks",
    "shuffle": "a chunk that comes, or goes, may end the shuffle, which ends them all",
    "outputs": "what a reader opens ends what it fetches, which opens the next",
    "shmem": "a heap that is closed ends its operations, which end at the heap",
    "moe": "a call that cannot go on ends the group, which ends its calls",
    "proxy": "the end of the thread ends all, and all tell the thread",
    "messenger": "a sender has operations and batches, which tell it when they end",
}
MAY_CALL_UCX = {"host", "keys", "worker", "ops", "lend", "bounce"}
UCX = {"ucp", "uct", "ucs", "ucm"}
PYTHON = {"Python.h", "structmember.h", "datetime.h", "numpy"}


def layer_errors(path: Path) -> Iterator[str]:
    layer = path.parent.name
    for header, first in includes(path):
        if first in MAY_INCLUDE and first not in MAY_INCLUDE[layer]:
            yield f"src/{layer}/{path.name} includes {header}"
        if first in UCX and layer not in MAY_CALL_UCX:
            yield f"src/{layer}/{path.name} includes UCX's {header}"
        if first in PYTHON:
            yield f"src/{layer}/{path.name} includes Python's {header}"


# Public functions that take no lock of a worker that has a progress thread.
UNLOCKED = {
    "it takes no worker, nor anything under one": """
        umx_moe_dtype_size umx_moe_from_fp8 umx_moe_layout umx_moe_memory_size
        umx_moe_to_fp8
        umx_address_check umx_address_is_beside umx_address_worker_id umx_config_check
        umx_config_default
        umx_cuda_is_present umx_cuda_query umx_cuda_wait umx_dtype_size
        umx_hash_partition
        umx_layout_init umx_partition_destroy umx_partition_offsets
        umx_partition_read umx_partition_rows umx_partition_write umx_range_partition
        umx_layout_is_writable umx_log_set umx_log_set_level umx_memory_query
        umx_segment_limits
        umx_reduction_is_possible
        umx_status_string umx_tag_hash umx_take_errno umx_ucx_version
        umx_headers_id umx_version_string
        umx_topology_create umx_topology_destroy umx_topology_distances
        umx_topology_find_gpu umx_topology_find_name umx_topology_find_pci
        umx_topology_get_cpus umx_topology_get_object umx_topology_num_objects
        umx_buffer_copy umx_buffer_read umx_buffer_write umx_shmem_signal_fetch
        umx_metadata_add umx_metadata_find umx_metadata_fini
        umx_metadata_init umx_metadata_is_valid umx_metadata_next
        umx_histogram_init umx_histogram_limit umx_histogram_merge
        umx_histogram_percentile umx_histogram_record umx_latency_enable
        umx_latency_is_enabled
        umx_worker_create""",
    "any thread: it has a lock of its own": """
        umx_outputs_block_release umx_proxy_query umx_proxy_quiet_wait
        umx_proxy_ring_destroy umx_proxy_ring_get umx_proxy_ring_get_error
        umx_proxy_ring_query umx_proxy_ring_wait
        umx_context_config umx_context_create umx_context_handle umx_context_info
        umx_context_options umx_context_release umx_ep_retire umx_heap_alloc
        umx_heap_create umx_heap_destroy umx_heap_query umx_hwloc_load
        umx_listener_retire
        umx_memh_alloc umx_memh_alloc_aligned umx_memh_alloc_cuda
        umx_memh_alloc_private umx_memh_buffer
        umx_memh_alloc_readonly umx_memh_is_mapped_elsewhere umx_memh_order_stores
        umx_memh_close umx_memh_is_closed umx_memh_is_shared umx_memh_key
        umx_memh_notify umx_memh_test
        umx_memh_register umx_memh_release umx_rkey_retire umx_worker_is_owner
        umx_worker_is_in_thread umx_worker_signal umx_worker_submit
        umx_shuffle_chunk_release umx_memh_hold umx_memh_put umx_set_errno
        umx_shuffler_spill_error umx_worker_post umx_observe_workers
        umx_latency_each umx_trace_query umx_trace_read umx_trace_release
        umx_trace_start umx_trace_stop""",
    "only one thread uses a call at a time, and it has what it needs": """
        umx_moe_call_info umx_moe_pack umx_moe_sum umx_moe_unpack""",
    "it never changes": """
        umx_outputs_block_query umx_outputs_num_maps umx_outputs_num_partitions
        umx_shuffle_chunk_query umx_comm_get_timeout umx_comm_get_worker
        umx_comm_member umx_comm_name umx_comm_rank
        umx_comm_size umx_ep_id umx_shuffler_comm umx_shuffler_owner
        umx_request_buffer umx_request_state umx_shmem_joint umx_outputs_joint
        umx_moe_joint umx_moe_num_ranks umx_proxy_joint
        umx_region_length umx_region_pointer umx_region_record umx_region_rkey
        umx_shmem_addr_accessible umx_shmem_base umx_shmem_get_pes umx_shmem_memh
        umx_shmem_lost umx_shmem_my_pe umx_shmem_num_pes umx_shmem_pe_accessible
        umx_shmem_pointer umx_shmem_size
        umx_request_worker umx_rkey_is_readonly
        umx_rkey_length umx_timer_init umx_worker_fd umx_worker_get_context
        umx_worker_number
       """,
    "the thread changes it, in one step": """
        umx_moe_failed_rank umx_moe_is_masked umx_moe_masked_by
        umx_moe_state umx_joint_status""",
    "the thread does not change it: only the owner": """
        umx_outputs_block_get umx_proxy_reason umx_shmem_reason
        umx_joint_reason umx_region_find_late umx_region_get_failure
        umx_comm_reason umx_comm_result umx_ep_get_arg umx_message_copy_frames
        umx_message_data umx_message_frames umx_message_has_frames
        umx_message_header umx_message_info umx_request_info
        umx_request_is_abandoned umx_request_is_cancelled umx_request_is_over
        umx_request_message
        umx_request_status
        umx_request_tag_message umx_request_time_ns umx_tag_message_info
        umx_worker_begin_turn umx_worker_divide_turn
        umx_worker_extend_turn umx_ep_worker umx_worker_get_layer
        umx_message_listener_reason umx_shuffler_result umx_worker_turn_is_over""",
    "a layer calls it with the lock": """
        umx_copy_free umx_request_is_withdrawn umx_request_set_buffer
        umx_request_was_sent umx_timer_stop umx_worker_attach umx_worker_crowd
        umx_worker_detach""",
    "it locks where it has to": """
        umx_shmem_atomic umx_shmem_get umx_shmem_get_buffer umx_shmem_get_failure
        umx_shmem_iget umx_shmem_iput
        umx_shmem_malloc umx_shmem_notify umx_shmem_put umx_shmem_put_signal
        umx_shmem_test
        umx_proxy_quiet umx_proxy_ring_retire
        umx_progress_fd umx_progress_hold_off umx_progress_is_running
        umx_progress_stop umx_request_wait umx_worker_describe
        umx_worker_destroy umx_worker_lock
        umx_worker_unlock umx_worker_wait""",
}
LOCK = re.compile(
    r"\b(?:UMI_GUARD|UMI_IS_UNLOCKED|UMI_(?:COMM|SHUFFLE|JOINT|OUTPUTS|SHMEM|MOE)_LOCK"
    r"|UMX_LAYER_LOCK|umx_worker_lock)\w*\("
)
DECLARED = re.compile(r"UMX_API\b[^;{]*?\b(umx_\w+)\s*\(")
DEFINED = re.compile(r"^(umx_\w+)\([^;{]*\)\n\{\n(.*?)^\}", re.MULTILINE | re.DOTALL)


def test_public_functions_lock_the_progress_thread_out():
    declared = {
        name
        for path in sources("include/umx/*.h")
        for name in DECLARED.findall(code_of(path))
    }
    bodies = {
        name: body
        for path in sources("src/*/*.c")
        for name, body in DEFINED.findall(path.read_text())
        if name in declared
    }
    assert len(bodies) > 240
    assert declared - bodies.keys() == set()
    known = {name for names in UNLOCKED.values() for name in names.split()}
    unlocked = {name for name, body in bodies.items() if not LOCK.search(body)}
    begin_locked = {name for name, body in bodies.items() if LOCK.search(body)}
    assert unlocked - known == set()  # UMI_GUARD(), or a reason above
    assert known & begin_locked <= set(UNLOCKED["it locks where it has to"].split())
    assert known <= bodies.keys()


def test_libraries_on_top_include_public_headers():
    files = sources(*(f"src/{room}/*.[ch]" for room in ON_TOP))
    assert files
    wrong = [
        f"src/{path.parent.name}/{path.name} includes {header}"
        for path in files
        for header, first in includes(path)
        if first in MAY_INCLUDE and first not in {path.parent.name} | SHARED
    ]
    assert wrong == []


def test_every_directory_of_src_is_a_known_layer():
    assert {path.parent.name for path in sources("src/*/*.[ch]")} == set(MAY_INCLUDE)


def test_rooms_lie_one_above_the_other():
    assert all(BELOW[lower] <= below for below in BELOW.values() for lower in below)
    assert all(room not in below for room, below in BELOW.items())


def test_src_includes_only_what_lies_below():
    files = sources("src/*/*.[ch]")
    assert files
    assert [error for path in files for error in layer_errors(path)] == []


OBJECT = re.compile(r"^const \w+ (umi_\w+) = \{", re.MULTILINE)
NAME = re.compile(r"\bum[ix]_\w+")
PRIVATE = re.compile(r"\b(?:umi|UMI)_\w+")


def arrows() -> Arrows:
    """Which nouns include, or use a function of, which others; and by what."""
    codes = {path: code_of(path) for path in sources("src/*/*.c")}
    homes: dict[str, str] = {}
    for path, code in codes.items():
        for line, name in FUNCTION.findall(code):
            if "static" not in line:
                homes[name] = noun(path)
        for name in OBJECT.findall(code):
            homes[name] = noun(path)
    found = {
        (noun(path), header.removesuffix(".h")): header
        for path in sources("src/*/*.[ch]")
        for header, first in includes(path)
        if first in MAY_INCLUDE
    }
    found |= {
        (noun(path), homes[name]): name
        for path, code in codes.items()
        for name in NAME.findall(code)
        if name in homes
    }
    return {(user, used): by for (user, used), by in found.items() if user != used}


def test_functions_are_called_downwards():
    found = arrows()
    assert len(found) > 400
    wrong = [
        f"src/{user} uses {by} of {used}"
        for (user, used), by in found.items()
        if used.split("/")[0] not in MAY_INCLUDE[user.split("/")[0]]
    ]
    assert wrong == []


def test_circles_of_files_are_within_the_rooms_that_are_named():
    rooms = [{name.split("/")[0] for name in group} for group in circles(arrows())]
    assert [group for group in rooms if len(group) > 1] == []
    assert {room for group in rooms for room in group} == set(CIRCLES)


# The room of each prefix: umi_<noun>_ is the name of one thing, in one room.
NOUNS = {
    "util": """
        atomic clock cpu equal histogram hmac host ids latency lines list log map
        membarrier mpsc node observed page pool refs shared
        process random read reader sha256 siphash slots table ticks trace utf8
        write writer x25519""",
    "codec": "address codec control frame header pack seq ucx varint",
    "mem": "check copy cuda gather layout memory memtype",
    "host": """
        config descriptors fork loader pin port routes segments sockaddr socket status
        thread transports unsent watch watches""",
    "keys": """
        block context key memh must print segment slab ucs waiters""",
    "worker": """
        configuration configurations datatype datatypes dma engine engines ep guard link
        links listener observe parked request requests rkey rkeys spare timer
        transport waits worker""",
    "progress": "nap progress turn yields",
    "ops": "am flush follow ops post queue tag transfer turns",
    "lend": "lend",
    "bounce": "bounce direct fetch fetches fill fills hand",
    "endpoint": """
        accept addressed apart close connect defer drain endpoint handshake
        heartbeat info network peer proof query settle silence strangers where""",
    "channel": """
        assembly channel channels charge credit frames land landing match
        message misfit offer piece pieces recv split stream tagged withdraw""",
    "rma": "initiator rma target",
    "messenger": "batch send sender",
    "data": """
        field hash item new offset offsets order parallel partition range region
        scatter word""",
    "topology": "hwloc pci topology tree",
    "comm": "comm",
    "shuffle": "shuffle",
    "outputs": "outputs",
    "joint": "joint",
    "shmem": "shmem",
    "moe": "moe",
    "proxy": "proxy",
}


def prefix_errors() -> Iterator[str]:
    rooms = {noun: room for room, nouns in NOUNS.items() for noun in nouns.split()}
    found = set()
    for path in sources("src/*/*.[ch]"):
        code = code_of(path)
        for _, name in FUNCTION.findall(code):
            if name.startswith("umi_"):
                noun = name.split("_")[1]
                found.add(noun)
                if rooms.get(noun) != path.parent.name:
                    yield f"{name}() of {path.parent.name} is one of {rooms.get(noun)}"
    yield from (f"no function begins with umi_{noun}" for noun in rooms.keys() - found)


def test_a_prefix_of_functions_belongs_to_one_room():
    nouns = " ".join(NOUNS.values()).split()
    assert len(nouns) == len(set(nouns))
    assert list(prefix_errors()) == []


TYPE = re.compile(
    r"\b(?:struct|union|enum) (um[ix]_\w+) \{"
    r"|\} *(um[ix]_\w+);"
    r"|\btypedef [^;{]*\(\*(um[ix]_\w+)\)"
)


def test_a_type_has_one_meaning():
    files: dict[str, set[str]] = {}
    for path in sources("src/*/*.[ch]", "include/umx/*.h"):
        code = code_of(path)
        for names in TYPE.findall(code):
            for name in filter(None, names):
                files.setdefault(name, set()).add(path.name)
    assert len(files) > 150
    assert {name: where for name, where in files.items() if len(where) > 1} == {}


def test_names_of_libraries_on_top_begin_with_the_room():
    headers = sources(*(f"src/{room}/*.h" for room in SHARED))
    shared = set(PRIVATE.findall("".join(path.read_text() for path in headers)))
    wrong = {
        name
        for room in ON_TOP
        for path in sources(f"src/{room}/*.[ch]")
        for name in PRIVATE.findall(code_of(path))
        if not name.lower().startswith(f"umi_{room}") and name not in shared
    }
    assert wrong == set()


def test_public_headers_include_only_public_headers():
    private = [
        f"{path.name} includes {header}"
        for path in sources("include/umx/*.h")
        for header, first in includes(path)
        if first in UCX | PYTHON | set(MAY_INCLUDE)
    ]
    assert private == []


def test_extension_includes_neither_ucx_nor_headers_of_src():
    files = sources("ucp_ext/**/*.[ch]")
    assert files
    wrong = [
        f"{path.name} includes {header}"
        for path in files
        for header, first in includes(path)
        if first in UCX
        or (first in MAY_INCLUDE and not (ROOT / "ucp_ext" / header).exists())
    ]
    assert wrong == []


def exported(library: Path) -> set[str]:
    if shutil.which("nm") is None:
        pytest.skip("no nm")
    output = subprocess.run(
        ["nm", "-D", "--defined-only", str(library)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return {line.split()[-1] for line in output.splitlines()}


BUILT = ROOT / "src/build/package/libumx.so.0"
INSTALLED = Path(ucp.get_library_dir(), "libumx.so.0")


@pytest.mark.parametrize("library", [BUILT, INSTALLED], ids=["built", "installed"])
def test_library_exports_only_umx_names(library):
    if not library.exists():
        pytest.skip("make test has not run the C tests")
    names = exported(library)
    assert names
    assert [name for name in sorted(names) if not name.startswith("umx_")] == []


def test_extension_exports_its_init_function_only():
    assert exported(Path(_ext.__file__)) == {"PyInit__ext"}


def linked_rooms() -> Iterator[tuple[str, str]]:
    """Which room needs symbols of which other: what the linker sees."""
    objects = [
        path
        for path in sorted((ROOT / "src/build/asan").glob("*/*.o"))
        if (ROOT / "src" / path.parent.name / f"{path.stem}.c").exists()
    ]
    if shutil.which("nm") is None or not objects:
        pytest.skip("no nm, or make test has not run the C tests")
    lines = subprocess.run(
        ["nm", "-A", *objects], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    symbols = [
        (Path(line.partition(":")[0]).parent.name, *line.split()[-2:])
        for line in lines
        if line.split()[-1].startswith("um")
    ]
    owner = {name: room for room, kind, name in symbols if kind in "TDBRVW"}
    for room, kind, name in symbols:
        if kind == "U" and owner.get(name, room) != room:
            yield room, owner[name]


def test_rooms_are_linked_one_way():
    assert circles(linked_rooms()) == []


def test_header_and_package_have_one_version():
    text = (ROOT / "include/umx/version.h").read_text()
    numbers = re.findall(r"#define UMX_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", text)
    assert ".".join(numbers) == _version.__version__


LINES_MAX = 800


def right_of(column: tuple[str, ...], columns: tuple[tuple[str, ...], ...]) -> set[str]:
    return {room for each in columns[columns.index(column) + 1 :] for room in each}


def test_the_drawing_of_rooms_has_the_arrows(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    import docs_diagrams

    rooms, layers = docs_diagrams.ROOMS, docs_diagrams.LAYERS
    for column in rooms:
        for room in column:
            assert BELOW[room] - {"codec"} == right_of(column, rooms)
    for column in layers:
        for room in column:
            assert BELOW[room] & ON_TOP == right_of(column, layers)
    assert {room for column in layers for room in column} | {"shuffle"} == ON_TOP
    text = (docs_diagrams.FOLDER / "layers.svg").read_text()
    drawn = set(re.findall(r"\w+", " ".join(re.findall(r">([^<>]+)</text>", text))))
    assert {
        path.name for path in (ROOT / "src").iterdir() if path.is_dir()
    } <= drawn | {"build"}


def test_a_file_has_one_noun():
    files = sources("src/*/*.[ch]", "ucp_ext/**/*.[ch]")
    assert files
    long = {
        path.relative_to(ROOT).as_posix()
        for path in files
        if len(path.read_text().splitlines()) > LINES_MAX
    }
    assert long == set()


def test_comments_begin_with_what_they_are_about():
    tool = [sys.executable, ROOT / "tools/comments.py", "--list", "--max", "1"]
    result = subprocess.run(tool, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
