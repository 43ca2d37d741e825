#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# arm.sh PYTHON [TEST...]: cross-compile libumx and tests in C for aarch64, a warning
# being an error, and run them under qemu: what `make arm` does. PYTHON is the venv's,
# whose pip downloads UCX for aarch64; without TEST the tests of the rooms in ROOMS
# run, those that need no other process, and then a wheel is built, and an exchange
# of messages by it is run. What qemu shows on x86 has x86's order of memory:
# tests/model/litmus.py is about that of Arm.
#
# It needs gcc-aarch64-linux-gnu and qemu-user-static; cmocka and Python for aarch64
# are downloaded by apt-get, and unpacked in build/arm. Nothing is installed.
set -eu
ROOMS="util codec data proxy"
# These look at what qemu does not have: valgrind, /proc and pages of the process.
WITHOUT="test_constant_time test_process test_trace"
# What Python needs, beside packages of its own.
LIBRARIES="libc6 libcrypt1 libexpat1 libffi8 libgcc-s1 libssl3 libuuid1 zlib1g"
python=$1
shift
only=$*
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
make --no-print-directory -C "$top/src" -j"$(nproc)" VARIANT=aarch64 \
    CC=$compiler UCP_WERROR=1 UCX_DIR="$root/ucx/libucx" TESTS="$*" \
    LDFLAGS="-L$cmocka/lib/aarch64-linux-gnu" CFLAGS="-O2 -g1 -idirafter $cmocka/include" \
    run-tests

[ -z "$only" ] || exit 0

# The wheel, by the Python of the venv, which is told that it is one for aarch64.
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
name=python$version
if [ ! -e "$root/$name" ]; then
    mkdir -p "$root/debs.$name"
    # shellcheck disable=SC2086
    (cd "$root/debs.$name" && apt_arm download $LIBRARIES "$name-minimal" \
        "lib$name-minimal" "lib$name-stdlib" "lib$name-dev" 2>/dev/null) || {
        echo "the wheel is left out: the suite in use has no $name for aarch64"
        exit 0
    }
    for deb in "$root/debs.$name"/*.deb; do
        dpkg -x "$deb" "$root/$name.part"
    done
    mv "$root/$name.part" "$root/$name"
fi
data=_sysconfigdata__aarch64-linux-gnu
mkdir -p "$root/sysconfig" "$root/tree"
cp "$root/$name/usr/lib/$name/$data.py" "$root/sysconfig"
find "$root/tree" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
(cd "$top" && git ls-files -z --cached --others --exclude-standard |
    xargs -0 cp -p --parents -t "$root/tree")
rm -rf "$root/wheel" "$root/installed"
(cd "$root/tree" &&
    PYTHONPATH="$root/sysconfig:$root/ucx" _PYTHON_SYSCONFIGDATA_NAME=$data \
        _PYTHON_HOST_PLATFORM=linux-aarch64 CC=$compiler \
        LDSHARED="$compiler -shared" UCP_UCX=wheel UCP_WERROR=1 \
        CFLAGS="-I$root/$name/usr/include/$name -I$root/$name/usr/include" \
        "$python" -P -m pip wheel -q --no-deps --no-build-isolation \
        -w "$root/wheel" .)
"$python" -m zipfile -e "$root"/wheel/*.whl "$root/installed"
unset LD_LIBRARY_PATH
said=$(PYTHONPATH="$root/installed:$root/ucx" timeout 300 \
    qemu-aarch64-static -L "$root/$name" "$root/$name/usr/bin/$name" -P -c '
import asyncio, platform, ucp

async def reverse(ep):
    for _ in range(2):
        await ep.send((await ep.recv_obj())[::-1])

async def main():
    async with ucp.create_listener(reverse) as listener:
        async with ucp.connect("127.0.0.1", listener.port) as ep:
            for data in (b"ucp", bytes(1_000_000) + b"end"):
                await ep.send(data)
                assert await ep.recv_obj() == data[::-1]
    print("ucp", ucp.__version__, "on", platform.machine(), "exchanges messages")

asyncio.run(main())')
echo "the wheel under qemu: $said"
