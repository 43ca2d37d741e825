# SPDX-License-Identifier: BSD-3-Clause
# tests: ucp/distance ucp/drawing ucp/hwloc ucp/labels ucp/net_devices ucp/text
# tests: ucp/topological_distance ucp/tree
"""Distances between devices, by hwloc: on this host and of XML files."""

import contextlib
import gc
import os
import subprocess
import sys
import threading
from pathlib import Path
from xml.etree import ElementTree

import pytest

import ucp
from ucp import _ext
from ucp.__main__ import main
from ucp._topology import cuda, hwloc, net_devices
from ucp._topology.labels import ranges
from ucp._topology.tree import PciAddress, Tree

XML = Path(__file__).parent / "xml"
DGX1 = XML / "dgx1.xml"
ONE_PACKAGE = XML / "one_package.xml"


def rows(*pairs):
    return [{"distance": distance, "name": name} for name, distance in pairs]


@pytest.fixture(autouse=True)
def needs_hwloc():
    try:
        hwloc.load()
    except ImportError as error:  # no wheel of it for this machine
        pytest.skip(str(error))


@pytest.fixture
def dgx1():
    return ucp.TopologicalDistance(DGX1)


@pytest.fixture
def one_package():
    return ucp.TopologicalDistance(ONE_PACKAGE)


@pytest.fixture
def changed(tmp_path):
    """Make a topology of a file in which words are replaced."""

    def make(source, *pairs):
        text = source.read_text()
        for old, new in pairs:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / "changed.xml"
        path.write_text(text)
        return ucp.TopologicalDistance(path)

    return make


def python(code, *arguments, **environ):
    """Run `code` in a fresh Python."""
    return subprocess.run(
        [sys.executable, "-P", "-c", code, *arguments],
        env=os.environ | environ,
        capture_output=True,
        text=True,
        timeout=50,
    )


# Distances.

DGX1_NETWORK = rows(
    ("ib0", 2), ("enp1s0f0", 4), ("enp1s0f1", 4), ("ib1", 4), ("ib2", 4), ("ib3", 4)
)
DGX1_OPENFABRICS = rows(("mlx5_0", 2), ("mlx5_1", 4), ("mlx5_2", 4), ("mlx5_3", 4))


def test_distances_in_a_dgx1(dgx1):
    get = dgx1.get_cuda_distances_from_device_index
    assert get(0, "network") == DGX1_NETWORK
    assert get(0, "openfabrics") == DGX1_OPENFABRICS
    assert get(0, "block") == rows(("sda", 4), ("sdb", 4))


def test_each_gpu_of_a_dgx1_has_its_own_closest_nic(dgx1):
    closest = [dgx1.closest(gpu, "openfabrics") for gpu in range(8)]
    assert closest == [[f"mlx5_{gpu // 2}"] for gpu in range(8)]


def test_distances_below_one_package(one_package):
    get = one_package.get_cuda_distances_from_device_index
    assert get(0, "network") == rows(("eth0", 2), ("eth1", 2), ("eth2", 4))
    assert get(0, "openfabrics") == rows(("mlx5_0", 2), ("mlx5_1", 2), ("mlx5_2", 4))
    assert get(0, "block") == rows(("nvme0n1", 4))
    assert get(1, "network") == rows(("eth2", 1), ("eth0", 2), ("eth1", 2))


def test_a_gpu_is_found_by_index_name_and_address(dgx1):
    expected = dgx1.get_cuda_distances_from_device_index(5, "network")
    assert expected[0] == {"distance": 2, "name": "ib2"}
    by_address = dgx1.get_cuda_distances_from_pci_info
    assert by_address(0, 0x87, 0, "network") == expected
    assert by_address(domain=0, bus=0x87, device=0, device_type="network") == expected
    for device in (5, "cuda5", "0000:87:00.0", "00000000:87:00.0", "87:00.0"):
        assert dgx1.distances(device, "network") == expected


def test_distances_between_gpus_have_a_direction(one_package):
    assert one_package.distances("cuda0", "cuda") == rows(("cuda1", 4))
    assert one_package.distances("cuda1", "cuda") == rows(("cuda0", 2))


def test_gpus_at_equal_distances_are_in_the_order_of_their_numbers(changed):
    """By text, cuda10 would come before cuda2."""
    topology = changed(DGX1, ("0207 [15b3:1013]", "0302 [10de:1db1]"))
    names = [row["name"] for row in topology.distances(0, "cuda")]
    assert len(topology.gpus) == 12
    assert names == [f"cuda{n}" for n in range(1, 12)]


def test_distances_of_a_nic(dgx1):
    assert dgx1.distances("mlx5_1", "network")[0] == {"distance": 0, "name": "ib1"}
    assert dgx1.distances("ib1", "cuda")[:2] == rows(("cuda2", 2), ("cuda3", 2))
    assert "ib1" not in [row["name"] for row in dgx1.distances("ib1", "network")]


def test_closest_devices_of_two_types(one_package):
    both = one_package.closest("cuda0", "openfabrics", "network")
    assert both == ["mlx5_0", "mlx5_1", "eth0", "eth1"]
    assert one_package.closest(1, "openfabrics", "network", "block") == [
        *("mlx5_2", "eth2", "nvme0n1")
    ]


def test_cpus_are_those_of_the_package(dgx1, one_package):
    assert dgx1.cpus("cuda3") == {0}
    assert dgx1.cpus("ib2") == dgx1.cpus(4) == {1}
    assert one_package.cpus(0) == {0, 1, 2, 3}


def test_gpus_are_listed_by_address(one_package):
    assert one_package.gpus == ["0000:03:00.0", "0000:08:01.0"]
    assert repr(one_package) == f"<ucp.TopologicalDistance of {ONE_PACKAGE}: 2 GPUs>"


def test_the_path_of_ucxpy_leads_to_the_same_class():
    from ucp._libs.topological_distance import TopologicalDistance

    assert TopologicalDistance is ucp.TopologicalDistance


def test_a_wide_pci_domain_is_read_or_left_out(changed):
    """hwloc leaves it out unless it is built with domains of 32 bits."""
    topology = changed(DGX1, ('busid="0000:06:00.0"', 'busid="10000:06:00.0"'))
    assert len(topology.gpus) == 7 or "10000:06:00.0" in topology.gpus
    topology = changed(DGX1, ('busid="0000:06:00.0"', 'busid="abcd:06:00.0"'))
    assert "abcd:06:00.0" in topology.gpus
    assert topology.get_cuda_distances_from_pci_info(0xABCD, 6, 0, "network")


# What does not exist.


@pytest.mark.parametrize(
    ("device", "text"),
    [
        (8, "has no GPU cuda8: it has 8"),
        (-1, "has no GPU cuda-1: it has 8"),
        ("cuda8", "has no GPU cuda8: it has 8"),
        ("ib7", "has no device 'ib7'"),
        ("cuda" + 5000 * "9", f"has no device '{'cuda' + 5000 * '9'}'"),
        ("", "has no device ''"),
        ("0000:77:00.0", "has no PCI device 0000:77:00.0"),
        ("0000:04:10.0", "has no PCI device 0000:04:10.0"),  # a bridge
    ],
)
def test_a_device_that_does_not_exist_is_named(dgx1, device, text):
    for call in (dgx1.distances, dgx1.closest):
        with pytest.raises(LookupError) as caught:
            call(device, "network")
        assert str(caught.value) == f"the topology of {DGX1} {text}"
    with pytest.raises(LookupError):
        dgx1.cpus(device)


def test_a_pci_address_that_does_not_exist_is_named(dgx1):
    with pytest.raises(LookupError, match=r"has no PCI device 0001:06:00\.0$"):
        dgx1.get_cuda_distances_from_pci_info(1, 6, 0, "network")
    with pytest.raises(LookupError):
        dgx1.get_cuda_distances_from_pci_info(1 << 80, -6, 256, "network")


def test_a_type_that_does_not_exist_is_named(dgx1):
    text = "device_type is one of network, openfabrics, block, cuda, not 'gpu'"
    with pytest.raises(ValueError) as caught:
        dgx1.get_cuda_distances_from_device_index(0, "gpu")
    assert str(caught.value) == text


def test_without_a_gpu_there_is_none(changed):
    topology = changed(DGX1, ("10de:1db1", "1002:1db1"))
    assert topology.gpus == []
    with pytest.raises(LookupError, match=r"has no GPU cuda0: it has none$"):
        topology.get_cuda_distances_from_device_index(0, "network")
    assert topology.distances("ib0", "cuda") == []


def test_without_a_nic_lists_are_empty(changed):
    topology = changed(ONE_PACKAGE, ('osdev_type="2"', 'osdev_type="1"'))
    assert topology.get_cuda_distances_from_device_index(0, "network") == []
    assert topology.closest(0, "network") == []


def test_arguments_of_a_wrong_type_are_refused(dgx1):
    with pytest.raises(TypeError):
        dgx1.get_cuda_distances_from_device_index("0", "network")
    with pytest.raises(TypeError):
        dgx1.get_cuda_distances_from_pci_info("0", 6, 0, "network")
    with pytest.raises(TypeError):
        dgx1.distances(0.0, "network")
    with pytest.raises(TypeError):
        dgx1.distances(None, "network")
    with pytest.raises(TypeError):
        ucp.TopologicalDistance(3)  # not a descriptor


def test_the_extension_checks_its_arguments():
    topology = _ext.Topology(DGX1.read_bytes())
    count = len(topology.objects())
    for wrong in (count, -1, 1 << 40):
        with pytest.raises(IndexError):
            topology.distances(wrong, 1)
        with pytest.raises(IndexError):
            topology.cpus(wrong)
    assert topology.distances(0, 77) == topology.distances(0, -1) == []
    for wrong in ("text", 3, memoryview(bytes(8))[::2]):
        with pytest.raises((TypeError, BufferError)):
            _ext.Topology(wrong)
    with pytest.raises(TypeError):
        topology.distances("0", 1)
    with pytest.raises(TypeError):
        _ext.load_hwloc(3)


# Files.


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.xml"):
        ucp.TopologicalDistance(tmp_path / "none.xml")
    with pytest.raises(IsADirectoryError):
        ucp.TopologicalDistance(str(tmp_path))


@pytest.mark.parametrize(
    "text",
    [
        *("", "\0", "nonsense", "<topology/>", '<topology version="2.0">'),
        DGX1.read_text()[:3000],
        DGX1.read_text()[:-20],
        "<a>" * 100_000,
    ],
)
def test_a_damaged_file_is_refused(tmp_path, text):
    path = tmp_path / "damaged.xml"
    path.write_text(text)
    with pytest.raises(ValueError) as caught:
        ucp.TopologicalDistance(path)
    assert str(caught.value) == f"{path}: hwloc cannot read this XML of a topology"


def test_a_file_that_crashes_hwloc_crashes_nothing_else(changed, capfd):
    """hwloc 2.11 and 2.12 crash without this attribute; others may read the rest."""
    with contextlib.suppress(ValueError):
        changed(DGX1, (' complete_nodeset="0x00000003"', ""))
    assert capfd.readouterr() == ("", "")  # of hwloc, or of a fault handler


def test_children_are_waited_for():
    program = f"""
import os, ucp
for source in {[str(DGX1), str(ONE_PACKAGE)]}:
    ucp.TopologicalDistance(source)
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("none left")
"""
    command = [sys.executable, "-P", "-c", program]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout == "none left\n"


def test_topologies_are_read_in_several_threads():
    found = []

    def read():
        for _ in range(5):
            topology = ucp.TopologicalDistance(DGX1)
            found.append(topology.distances(0, "network"))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [DGX1_NETWORK] * 20


def test_the_collector_may_run_at_each_allocation():
    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        topology = ucp.TopologicalDistance(DGX1)
        assert topology.distances(0, "network") == DGX1_NETWORK
        assert topology.cpus(0) == {0}
    finally:
        gc.set_threshold(*before)


def test_objects_do_not_leak_their_type():
    ucp.TopologicalDistance(DGX1)
    gc.collect()
    before = sys.getrefcount(_ext.Topology)
    for _ in range(20):
        _ext.Topology(DGX1.read_bytes()).objects()
        with pytest.raises(ValueError):
            _ext.Topology(b"")
    gc.collect()
    assert abs(sys.getrefcount(_ext.Topology) - before) <= 1


# The library.

PRINT_LISTS = """
import sys, ucp
from ucp._topology import hwloc
hwloc.candidates = lambda: iter([sys.argv[1] or None])
topology = ucp.TopologicalDistance(sys.argv[2])
print(topology.get_cuda_distances_from_device_index(0, "network"))
print(topology.get_cuda_distances_from_device_index(0, "openfabrics"))
ucp.TopologicalDistance()
"""


def test_every_hwloc_here_gives_the_same_lists():
    tried = 0
    for path in hwloc.candidates():
        done = python(PRINT_LISTS, path or "", str(DGX1))
        if "ucp finds no hwloc" in done.stderr:
            continue  # the package needs a library that the system has not
        assert done.stderr == ""
        assert done.stdout == f"{DGX1_NETWORK}\n{DGX1_OPENFABRICS}\n"
        tried += 1
    assert tried > 0


MISSING = """
from ucp._topology import hwloc
hwloc.candidates = lambda: iter(["/nowhere/libhwloc.so.15", "/etc/passwd"])
"""


def test_without_hwloc_the_error_says_what_to_install():
    done = python(f"{MISSING}\nimport ucp\nucp.TopologicalDistance()")
    said = done.stderr.splitlines()[-1]
    assert said.startswith("ImportError: ucp finds no hwloc (/nowhere/libhwloc.so.15: ")
    for word in ("/etc/passwd: ", "apt install libhwloc15", "umx[topology]"):
        assert word in said


def test_without_hwloc_init_and_the_command_say_so():
    done = python(f"{MISSING}\nimport ucp\nucp.init(net_devices='closest:cuda0')")
    assert "ImportError: ucp finds no hwloc" in done.stderr
    done = python(f"{MISSING}\nfrom ucp.__main__ import main\nexit(main(['topology']))")
    assert done.returncode == 1
    assert done.stderr.startswith("python -m ucp topology: ucp finds no hwloc")


def test_a_library_that_is_no_hwloc_is_refused():
    libc = python(
        f"{MISSING}hwloc.candidates = lambda: iter(['libc.so.6'])\nhwloc.load()"
    )
    said = "libc.so.6: it has no hwloc_get_api_version"
    assert said in libc.stderr


def test_importing_ucp_does_not_load_hwloc():
    done = python("import ucp; print('hwloc' in open('/proc/self/maps').read())")
    assert done.stdout == "False\n"


# This host.


def test_devices_of_this_host_are_those_of_the_system():
    tree = Tree()
    found = {obj.name for obj in tree.objects if obj.type == 2}
    assert found <= set(os.listdir("/sys/class/net"))
    topology = ucp.TopologicalDistance()
    assert repr(topology).startswith("<ucp.TopologicalDistance of this host: ")
    for name in found:
        assert topology.cpus(name) <= set(range(os.cpu_count() or 1))


def test_a_gpu_that_this_host_does_not_have():
    with pytest.raises(LookupError, match=r"^this host has no GPU cuda99: it has "):
        ucp.TopologicalDistance().get_cuda_distances_from_device_index(99, "network")


# CUDA's numbers.


@pytest.mark.parametrize(
    ("wanted", "numbers"),
    [
        (None, range(8)),
        ("", []),
        ("0", [0]),
        ("3,1", [3, 1]),
        (" 2 , 5 ", [2, 5]),
        ("1,9,2", [1]),
        ("-1", []),
        ("1,-1,2", [1]),
        ("1,1", [1]),
        ("1," + 5000 * "9", [1]),
        ("nonsense", []),
        ("MIG-1", []),
        ("GPU-aa,GPU-bb77", [1, 3]),
        ("GPU-bb", []),  # two of them
        ("GPU-aa01,0", [1, 0]),
    ],
)
def test_visible_devices_are_numbered_as_cuda_does(
    wanted, numbers, tmp_path, monkeypatch
):
    gpus = Tree(DGX1).gpus()
    for gpu, uuid in ((1, "GPU-aa01"), (2, "GPU-bb66"), (3, "GPU-bb77")):
        directory = tmp_path / str(gpus[gpu].pci)
        directory.mkdir()
        text = f"Model: \t\t X\nGPU UUID: \t {uuid}\n"
        (directory / "information").write_text(text)
    monkeypatch.setattr(cuda, "_PROC", tmp_path)
    environ = {} if wanted is None else {"CUDA_VISIBLE_DEVICES": wanted}
    assert cuda.visible(gpus, environ) == [gpus[number] for number in numbers]


def test_a_source_is_not_subject_to_visible_devices(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert len(ucp.TopologicalDistance(DGX1).gpus) == 8


def test_addresses_are_parsed_and_written():
    assert PciAddress.parse("0000:06:00.0") == PciAddress(0, 6, 0, 0)
    assert PciAddress.parse("AB:1F.7") == PciAddress(0, 0xAB, 0x1F, 7)
    assert str(PciAddress(0x10000, 1, 2, 3)) == "10000:01:02.3"
    for text in ("ib0", "0000:06:00", "0:0:0.0", "0000:06:00.8", "0000:06:00.0\n"):
        assert PciAddress.parse(text) is None


# init().


def test_closest_devices_are_written_as_ucx_names_them(dgx1, one_package):
    closest = net_devices.net_devices_of
    assert closest("closest:cuda0", dgx1) == "mlx5_0:1,ib0"
    assert closest("closest:0000:94:00.0", dgx1) == "mlx5_3:1,ib3"
    assert closest("closest:cuda0", one_package) == "mlx5_0:1,mlx5_1:1,eth0,eth1"
    assert closest("closest:cuda1", one_package) == "mlx5_2:1,eth2"
    assert closest("mlx5_0:1") == "mlx5_0:1"


def test_closest_devices_that_do_not_exist(dgx1, changed):
    with pytest.raises(LookupError, match=r"has no GPU cuda8: it has 8$"):
        net_devices.net_devices_of("closest:cuda8", dgx1)
    with pytest.raises(LookupError, match=r"has no device ''$"):
        net_devices.net_devices_of("closest:", dgx1)
    pairs = [(f'osdev_type="{n}"', 'osdev_type="4"') for n in (2, 3)]
    text = r"^net_devices='closest:cuda0': there is no network device$"
    with pytest.raises(LookupError, match=text):
        net_devices.net_devices_of("closest:cuda0", changed(DGX1, *pairs))


def test_init_passes_the_devices_to_ucx(fresh_ucx, changed, monkeypatch):
    pairs = [(f"eth{n}", "lo") for n in (0, 1)]
    pairs += [(f'"mlx5_{n}" osdev_type="3"', '"x" osdev_type="4"') for n in (0, 1)]
    topology = changed(ONE_PACKAGE, *pairs)
    monkeypatch.setattr(net_devices, "TopologicalDistance", lambda: topology)
    ucp.init(net_devices="closest:cuda0")
    assert ucp.get_config()["NET_DEVICES"] == "lo,lo"


def test_init_takes_the_option_itself(fresh_ucx):
    ucp.init(net_devices="lo")
    assert ucp.get_config()["NET_DEVICES"] == "lo"


def test_init_refuses_two_choices_of_devices(fresh_ucx):
    with pytest.raises(ValueError, match=r"^both net_devices and the option NET_DEV"):
        ucp.init({"NET_DEVICES": "lo"}, net_devices="lo")


def test_the_environment_may_have_precedence(fresh_ucx, monkeypatch):
    monkeypatch.setenv("UCX_NET_DEVICES", "lo")
    ucp.init(env_takes_precedence=True, net_devices="closest:cuda99")
    assert ucp.get_config()["NET_DEVICES"] == "lo"


def test_a_context_is_left_as_it_is_if_a_device_does_not_exist(fresh_ucx):
    with pytest.raises(LookupError):
        ucp.init(net_devices="closest:cuda99")
    ucp.init(net_devices="lo")


# python -m ucp topology.


def test_the_command_prints_the_tree_and_the_distances(capsys):
    assert main(["topology", "--source", str(ONE_PACKAGE)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["Machine", "0", "CPUs", "0-3"]
    assert "        0000:08:02.0                 nvme0n1" in lines
    assert "            0000:04:00.0             eth1, mlx5_1" in lines
    assert lines[-10].split() == ["distance", "from", "cuda0", "cuda1"]
    assert lines[-9].split() == ["openfabrics", "mlx5_0", "2", "2"]
    assert lines[-1].split() == ["cuda", "cuda1", "4", "-"]


def test_the_command_prints_this_host(capsys):
    assert main(["topology"]) == 0
    assert capsys.readouterr().out.startswith("Machine 0 ")


def test_the_command_names_a_file_that_it_cannot_read(capsys, tmp_path):
    path = tmp_path / "none.xml"
    assert main(["topology", "--source", str(path)]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("python -m ucp topology: ")
    assert str(path) in said.err


def test_the_command_names_a_file_that_it_cannot_write(capsys, tmp_path):
    svg = tmp_path / "none" / "host.svg"
    assert main(["topology", "--source", str(DGX1), "--svg", str(svg)]) == 1
    assert str(svg) in capsys.readouterr().err


def svg_of(source, tmp_path):
    path = tmp_path / "host.svg"
    assert main(["topology", "--source", str(source), "--svg", str(path)]) == 0
    return ElementTree.parse(path).getroot()


def texts(root):
    return [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]


def test_the_drawing_has_each_device(tmp_path):
    root = svg_of(DGX1, tmp_path)
    found = texts(root)
    for gpu in range(8):
        assert f"cuda{gpu}" in found
    for nic in range(4):
        assert f"ib{nic}, mlx5_{nic}" in found
    assert "sda, sdb" in found


def test_boxes_of_the_drawing_do_not_overlap(tmp_path):
    root = svg_of(DGX1, tmp_path)
    places = [
        (float(box.get("x")), float(box.get("y")))
        for box in root.iter("{http://www.w3.org/2000/svg}rect")
        if box.get("rx")
    ]
    assert len(places) == len(set(places)) == 42
    for n, (x, y) in enumerate(places):
        for left, top in places[:n]:
            assert abs(x - left) >= 150 or abs(y - top) >= 36
    assert max(x for x, _ in places) + 150 < float(root.get("width"))
    assert max(y for _, y in places) + 36 < float(root.get("height"))


def test_the_drawing_escapes_names(tmp_path):
    source = tmp_path / "evil.xml"
    text = ONE_PACKAGE.read_text()
    text = text.replace('"eth0"', '"&lt;script&gt;&amp;&quot;"')
    source.write_text(
        text.replace('"nvme0n1"', '"a very long name&#10; indeed, it is"')
    )
    root = svg_of(source, tmp_path)
    assert '<script>&", mlx5_0' in texts(root)
    assert not list(root.iter("{http://www.w3.org/2000/svg}script"))
    longest = max(texts(root), key=len)
    assert len(longest) <= 21


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([], "none"),
        ([5], "5"),
        ([0, 1, 2, 3], "0-3"),
        ([9, 0, 1, 7, 8], "0-1,7-9"),
        ([0, 2, 4], "0,2,4"),
    ],
)
def test_cpus_are_written_as_linux_writes_them(numbers, text):
    assert ranges(numbers) == text
