#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# arm.sh PYTHON [TEST...]: cross-compile libumx and tests in C for aarch64, a warning
# being an error, and run them under qemu: what `make arm` does. PYTHON is the venv's,
# whose pip downloads UCX for aarch64; without TEST the tests of the rooms in ROOMS
# run, those that need no other process. What qemu shows on x86 has x86's order of
# memory: tests/model/litmus.py is about that of Arm.
#
# It needs gcc-aarch64-linux-gnu and qemu-user-static; cmocka for aarch64 is
# downloaded by apt-get, and unpacked in build/arm. Nothing is installed.
set -eu
ROOMS="util codec data proxy"
# These look at what qemu does not have: valgrind, /proc and pages of the process.
WITHOUT="test_constant_time test_process test_trace"
python=$1
shift
top=$(cd "$(dirname "$0")/.." && pwd)
root=$top/build/arm
compiler=aarch64-linux-gnu-gcc

sh "$top/tools/require.sh" gcc-aarch64-linux-gnu "gcc for aarch64" \
    "command -v $compiler"
sh "$top/tools/require.sh" qemu-user-static "qemu for aarch64" \
    "command -v qemu-aarch64-static"

# apt-get for aarch64, with a state of its own.
apt_arm() {
    apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures::=arm64 \
        -o "Dir::State=$root/apt/state" -o "Dir::Cache=$root/apt/cache" \
        -o Dir::State::status=/dev/null -o APT::Sandbox::User=root "$@"
}

if [ ! -e "$root/.made" ]; then
    mkdir -p "$root/apt/state/lists/partial" "$root/apt/cache/archives/partial" \
        "$root/debs" "$root/ucx"
    apt_arm update
    (cd "$root/debs" && apt_arm download libcmocka0 libcmocka-dev)
    for deb in "$root"/debs/*.deb; do
        dpkg -x "$deb" "$root/cmocka"
    done
    "$python" -m pip download -q --no-deps --only-binary=:all: -d "$root/ucx" \
        --platform manylinux_2_28_aarch64 'libucx-cu12>=1.19'
    "$python" -m zipfile -e "$root"/ucx/*.whl "$root/ucx"
    touch "$root/.made"
fi

if [ $# -eq 0 ]; then
    for room in $ROOMS; do
        for file in "$top/tests/c/$room"/test_*.c; do
            name=$(basename "$file" .c)
            case " $WITHOUT " in
            *" $name "*) ;;
            *) set -- "$@" "$name" ;;
            esac
        done
    done
fi

cmocka=$root/cmocka/usr
export LD_LIBRARY_PATH="$cmocka/lib/aarch64-linux-gnu"
export TEST_WRAPPER="qemu-aarch64-static -L /usr/aarch64-linux-gnu"
export TEST_TIME_FACTOR=10
exec make --no-print-directory -C "$top/src" -j"$(nproc)" VARIANT=aarch64 \
    CC=$compiler UCP_WERROR=1 UCX_DIR="$root/ucx/libucx" TESTS="$*" \
    LDFLAGS="-L$cmocka/lib/aarch64-linux-gnu" CFLAGS="-O2 -g1 -idirafter $cmocka/include" \
    run-tests
