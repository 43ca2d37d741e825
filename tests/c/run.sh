#!/bin/sh
# run.sh CLOSING PROGRAM...: run cmocka programs, each with a time limit; print
# their output, then "N passed, N failed" (also written to CLOSING).
# A program that dies or hangs counts as one failure.
#
#   TEST_WRAPPER      a command that runs them, as `valgrind -q`
#   TEST_TIME_FACTOR  how many times the usual time limits they may take; the
#                     programs read it too
closing=$1
shift
log=$closing.log
passed=0
failed=0
skipped=0

count() { # the N of "[  WORD  ] N test(s)"
    sed -n "s/^\[ *$1 *\] \([0-9]*\) test(s).*/\1/p" "$log" | tail -n 1
}

for program in "$@"; do
    echo "== $(basename "$program")"
    # UCX keeps memory until exit; look for leaks where UCX is not loaded.
    leaks=1
    if readelf -d "$program" | grep -q 'NEEDED.*libuc'; then
        leaks=0
    fi
    ASAN_OPTIONS="detect_leaks=$leaks:allocator_may_return_null=1:${ASAN_OPTIONS:-}" \
        timeout $((120 * ${TEST_TIME_FACTOR:-1})) \
        ${TEST_WRAPPER:-} "$program" >"$log" 2>&1
    status=$?
    cat "$log"

    now_passed=$(count PASSED)
    now_failed=$(count FAILED)
    now_skipped=$(count SKIPPED)
    if [ "$status" -ne 0 ] && [ "${now_failed:-0}" -eq 0 ]; then
        now_failed=1
        if [ "$status" -eq 124 ]; then
            echo "$program: time limit"
        else
            echo "$program: exit status $status"
        fi
    fi
    passed=$((passed + ${now_passed:-0}))
    failed=$((failed + ${now_failed:-0}))
    skipped=$((skipped + ${now_skipped:-0}))
done

rm -f "$log"
line="$passed passed, $failed failed"
if [ "$skipped" -gt 0 ]; then
    line="$line, $skipped skipped"
fi
echo "$line" | tee "$closing"
[ "$failed" -eq 0 ]
