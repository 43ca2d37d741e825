#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# stress.sh RUNS LOG COMMAND...: run COMMAND RUNS times while a loop keeps each
# core busy; its output goes to LOG, the closing lines of each run are printed.
# Stops at the first run that fails, with the end of its output.
runs=$1
log=$2
shift 2
mkdir -p "$(dirname "$log")"

busy=
stop() {
    kill $busy 2>/dev/null
}
trap stop EXIT
trap 'exit 130' INT TERM
for core in $(seq "$(nproc)"); do
    while :; do :; done &
    busy="$busy $!"
done

for run in $(seq "$runs"); do
    echo "== run $run of $runs, $(date +%T)"
    if ! "$@" >"$log" 2>&1; then
        tail -n 100 "$log"
        echo "run $run of $runs failed; its output is in $log"
        exit 1
    fi
    grep -E '[0-9]+ passed' "$log" | tail -n 4
done
echo "$runs of $runs runs passed"
