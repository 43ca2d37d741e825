#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# run.sh CLOSING PROGRAM...: run cmocka programs, each with a time limit beside
# those of its tests; print their output, the end of what those wrote that failed,
# then "N passed, N failed" (also written to CLOSING; the seconds of each program,
# and those of CPU, are written to CLOSING.times).
#
#   TEST_JOBS         how many run at a time; default: two per core, since they
#                     wait for something most of the time
#   TEST_WRAPPER      a command that runs them, as `valgrind -q`
#   TEST_TIME_FACTOR  how many times the usual time limits they may take; the
#                     programs read it too

# run.sh --one LOGS PROGRAM: its output to LOGS/name, when it has ended to
# standard output too. The last line says how it ended if it failed no test.
if [ "$1" = --one ]; then
    log=$2/$(basename "$3")
    # UCX keeps memory until exit; look for leaks where UCX is not loaded.
    leaks=1
    if readelf -d "$3" | grep -q 'NEEDED.*libuc'; then
        leaks=0
    fi
    # Workers are small, as in tests/workers.py, but in every eighth program.
    if [ $(($(basename "$3" | cksum | cut -d " " -f 1) % 8)) -ne 0 ]; then
        export UCX_WARN_UNUSED_ENV_VARS=n
        export UCX_MM_FIFO_SIZE="${UCX_MM_FIFO_SIZE:-64}"
        export UCX_MM_RX_BUFS_GROW="${UCX_MM_RX_BUFS_GROW:-64}"
        export UCX_NET_DEVICES="${UCX_NET_DEVICES:-lo}"
    fi
    echo "== $(basename "$3")" >"$log"
    begin=$(date +%s%N)
    ASAN_OPTIONS="detect_leaks=$leaks:allocator_may_return_null=1:${ASAN_OPTIONS:-}" \
        timeout $((300 * ${TEST_TIME_FACTOR:-1})) \
        ${TEST_WRAPPER:-} "$3" >>"$log" 2>&1
    status=$?
    ms=$((($(date +%s%N) - begin) / 1000000))
    # The second line is of what this shell has waited for: the program, and little
    # beside it. In a pipe or a substitution it would be another shell's.
    times >"$log.cpu"
    cpu=$(awk 'NR == 2 { for (i = 1; i <= 2; i++) { split($i, t, /[ms]/)
            sum += 60 * t[1] + t[2] } printf "%.3f", sum }' "$log.cpu")
    rm "$log.cpu"
    printf '%d.%03d %s %s\n' $((ms / 1000)) $((ms % 1000)) "$cpu" \
        "$(basename "$3")" >>"${2%.logs}.times"
    if [ "$status" -eq 124 ]; then
        echo "[ DIED ] 1 test(s). $3: time limit" >>"$log"
    elif [ "$status" -ne 0 ] && ! grep -q '^\[  *FAILED *\] [0-9]' "$log"; then
        echo "[ DIED ] 1 test(s). $3: exit status $status" >>"$log"
    fi
    flock "$2" cat "$log"
    exit 0
fi

closing=$1
shift
logs=$closing.logs
rm -rf "$logs" "$closing.times"
mkdir -p "$logs"
printf '%s\n' "$@" |
    xargs -P "${TEST_JOBS:-$((2 * $(nproc)))}" -n 1 sh "$0" --one "$logs"

# Whoever sees the end of this output only sees what failed, too.
grep -lE '^\[ *(FAILED|DIED) *\]' "$logs"/* | while read -r log; do
    echo "== $(basename "$log") failed; what it wrote, but for tests that passed:"
    grep -vE '^(==|\[ *(RUN|OK|=*|PASSED) *\])' "$log" | tail -n 60
done

count() { # the sum of N in all "[  WORD  ] N test(s)"
    cat "$logs"/* | sed -n "s/^\[ *$1 *\] \([0-9]*\) test(s).*/\1/p" |
        awk '{ n += $1 } END { print n + 0 }'
}

failed=$(($(count FAILED) + $(count DIED)))
skipped=$(count SKIPPED)
line="$(count PASSED) passed, $failed failed"
if [ "$skipped" -gt 0 ]; then
    line="$line, $skipped skipped"
fi
rm -rf "$logs"
echo "$line" | tee "$closing"
[ "$failed" -eq 0 ]
