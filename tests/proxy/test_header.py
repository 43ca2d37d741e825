# SPDX-License-Identifier: BSD-3-Clause
"""include/umx/ring.h alone: as C, as C++, and as CUDA by NVRTC."""

import re
import shutil
import subprocess

import pytest
from gpu_producer import compiled, nvrtc
from paths import ROOT

USER = """
#include <umx/ring.h>
int main(void)
{
    umx_ring ring;
    umx_ring_producer producer;
    static umx_ring_u64 memory[UMX_RING_BYTES(4) / 8];
    umx_ring_command put = umx_ring_put(1, 0, 16, 32, 48);
    umx_ring_init(&ring, memory, 2, UMX_RING_SEVERAL, 0);
    umx_ring_producer_init(&producer, &ring);
    return umx_ring_push(&producer, &put, 1) != 0 ||
           umx_ring_try_push(&producer, &put, 9) != 3 ||
           umx_ring_is_retired(&ring, 0);
}
"""

KERNEL = """
extern "C" __global__ void produce(umx_ring_producer p, unsigned n) {
    for (unsigned i = 0; i < n; i++) {
        umx_ring_command put = umx_ring_put(1, 0, 7168, 0, 16 * i);
        if (umx_ring_push(&p, &put, 1) != 0) return;
    }
    umx_ring_wait(&p.ring, p.head - 1);
}
"""


@pytest.mark.parametrize(
    ("compiler", "standard", "suffix"),
    [("cc", "c11", ".c"), ("c++", "c++17", ".cc")],
)
def test_the_header_stands_alone(tmp_path, compiler, standard, suffix):
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    source = (tmp_path / "user").with_suffix(suffix)
    source.write_text(USER)
    flags = [f"-std={standard}", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    where = [f"-I{ROOT / 'include'}", "-o", tmp_path / "user"]
    subprocess.run([compiler, *flags, source, *where], check=True)
    subprocess.run([tmp_path / "user"], check=True, timeout=10)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_nvrtc_makes_the_three_instructions(arch):
    library = nvrtc()
    if library is None:
        pytest.skip("NVRTC is not installed: pip install nvidia-cuda-nvrtc-cu12")
    log, ptx, cubin = compiled(library, KERNEL, arch)
    assert "warning" not in log
    found = set(re.findall(r"\b((?:st|ld|atom)\.[\w.]*sys[\w.]*)", ptx))
    assert found == {
        "st.relaxed.sys.global.u64",
        "st.release.sys.global.u64",
        "ld.acquire.sys.global.u64",
        "atom.add.relaxed.sys.global.u64",
    }
    release = ptx.index("st.release.sys")
    assert ptx.rindex("st.relaxed.sys", 0, release) < release
    assert cubin.startswith(b"\x7fELF")
