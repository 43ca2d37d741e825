# SPDX-License-Identifier: BSD-3-Clause
# coverage.awk: what `gcov -b -n` says, one line a file and one for all. Only
# sources of src/, which gcov names by their path from there. A header's lines
# count in each file that includes it: left out.
function covered(text,    parts) { # "83.33% of 12"; sets `count`
    split(text, parts, "% of ")
    count = parts[2] + 0
    return int(parts[1] * count / 100 + 0.5)
}

function percent(part, all) {
    return all ? 100 * part / all : 100
}

function row(name, line_hits, line_count, branch_hits, branch_count) {
    return sprintf("%-22s %5d of %5d lines %6.1f %%  %5d of %5d branches %6.1f %%",
        name, line_hits, line_count, percent(line_hits, line_count),
        branch_hits, branch_count, percent(branch_hits, branch_count))
}

/^File / {
    name = substr($2, 2, length($2) - 2)
    is_ours = name ~ /^[a-z]+\/[a-z_]+\.c$/
}

/^Lines executed:/ && is_ours {
    hits[name] = covered(substr($0, 16))
    lines[name] = count
}

/^Taken at least once:/ && is_ours {
    taken[name] = covered(substr($0, 21))
    branches[name] = count
}

END {
    for (name in lines) {
        print row(name, hits[name], lines[name], taken[name], branches[name]) | "sort"
        all_hits += hits[name]; all_lines += lines[name]
        all_taken += taken[name]; all_branches += branches[name]
    }
    close("sort")
    print row("all", all_hits, all_lines, all_taken, all_branches)
}
