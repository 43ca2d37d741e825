#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# require.sh PACKAGE WHAT CHECK: run the shell command CHECK; if it fails,
# install Debian's PACKAGE where this user may, or say what to install.
package=$1
what=$2
check=$3

if sh -c "$check" >/dev/null 2>&1; then
    exit 0
fi

if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
    echo "$what is missing: installing $package"
    export DEBIAN_FRONTEND=noninteractive
    apt-get install -qq -y "$package" >/dev/null 2>&1 ||
        { apt-get update -qq && apt-get install -qq -y "$package" >/dev/null; }
    if sh -c "$check" >/dev/null 2>&1; then
        exit 0
    fi
fi

echo "$what is missing. Install it and run make again, for example:" >&2
echo "    sudo apt-get install $package" >&2
exit 1
