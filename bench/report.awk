# SPDX-License-Identifier: Apache-2.0
# report.awk RESULTS: the rows of results.json as tables to read, with results.awk before it.
#
# form is "text", or "markdown": then with the machine before the tables.

/"op":/ {
    row_keep($0)
}

/"machine":/ {
    machine = $0
}

/"speedup_2_ranks":/ {
    trainer = $0
}

# ------------------------------------------------------------------------------------ tables

# Adds a cell to the line; the widths are those of text.
function cell(words, width) {
    if (form == "markdown") {
        line = line (line == "" ? "| " : " | ") words
    } else {
        line = line sprintf("%" width "s", words)
    }
}

function line_end() {
    print line (form == "markdown" ? " |" : "")
    line = ""
}

function head(op, has_limit, has_read) {
    if (form == "markdown") {
        printf "\n**%s**\n\n", op
        cell("ranks")
    } else {
        print ""
        cell(op, -15)
    }
    cell("dtype", -6)
    cell("size", 8)
    cell("ours", 10)
    cell("Open MPI", 10)
    cell("ratio", 8)
    cell("of rounds", 19)
    if (has_read) {
        cell("ours + read", 13)
        cell("MPI + read", 12)
    }
    if (has_limit) {
        cell("bus", 10)
        cell("share", 7)
    }
    cell("gloo", 10)
    cell("ratio", 9)
    if (form == "markdown") {
        cell("Open MPI's best")
    }
    line_end()
    if (form == "markdown") {
        rule(9 + 2 * has_limit + 2 * has_read)
    }
}

# Texts to the left, figures to the right; the last column is a text.
function rule(n_columns,    i, text) {
    text = "|---|---|"
    for (i = 3; i <= n_columns; i++) {
        text = text "---:|"
    }
    print text "---|"
}

function range_words(least, most) {
    return least == "" ? "-" : digits(least) " to " digits(most)
}

function ratio_words(ratio) {
    return ratio == "" ? "-" : digits(ratio)
}

function setting_words(peer) {
    return match(peer, /\(.*\)/) ? substr(peer, RSTART + 1, RLENGTH - 2) : "-"
}

function row_print(row, has_limit, has_read,    own, mpi, gloo, share) {
    own = line_of[row]
    mpi = peer_line_of[row, "openmpi"]
    gloo = peer_line_of[row, "gloo"]
    share = member(own, "share_of_limit")
    cell(member(own, "ranks") (form == "markdown" ? "" : " ranks"), -15)
    cell(member(own, "dtype"), -6)
    cell(size_words(member(own, "bytes")), 8)
    cell(time_words(member(own, "ours_us")), 10)
    cell(time_words(member(mpi, "peer_us")), 10)
    cell(ratio_words(member(mpi, "ratio")), 8)
    cell(range_words(member(mpi, "ratio_min"), member(mpi, "ratio_max")), 19)
    if (has_read) {
        cell(time_words(member(own, "first_read_us")), 13)
        cell(time_words(member(mpi, "peer_first_read_us")), 12)
    }
    if (has_limit) {
        cell(time_words(member(own, "limit_us")), 10)
        cell(share == "" ? "-" : sprintf("%.0f %%", 100 * share), 7)
    }
    cell(time_words(member(gloo, "peer_us")), 10)
    cell(ratio_words(member(gloo, "ratio")), 9)
    if (form == "markdown") {
        cell(setting_words(member(mpi, "peer")))
    }
    line_end()
}

# A column is there when a row has something for it.
function op_print(op,    i, has_limit, has_read) {
    has_limit = 0
    has_read = 0
    for (i = 1; i <= n_rows[op]; i++) {
        has_limit = has_limit || member(line_of[rows[op, i]], "limit_us") != ""
        has_read = has_read || member(line_of[rows[op, i]], "first_read_us") != ""
    }
    head(op, has_limit, has_read)
    for (i = 1; i <= n_rows[op]; i++) {
        row_print(rows[op, i], has_limit, has_read)
    }
}

# --------------------------------------------------------------------------------------- words

function machine_print() {
    printf "Measured on %s, with %s cores (%s), %s MiB of memory, %s; ", member(machine, "cpu"), \
        member(machine, "cores"), member(machine, "caches"), member(machine, "memory_mib"), \
        member(machine, "kernel")
    printf "huge pages: %s, in shared memory: %s; ", member(machine, "huge_pages"), \
        member(machine, "huge_pages_shared")
    printf "%s, `%s`; %s; %s; load when it began: %s; %s.\n", member(machine, "compiler"), \
        member(machine, "cflags"), member(machine, "mpi"), member(machine, "gloo"), \
        member(machine, "load_at_start"), member(machine, "date")
}

function skipped_print(    row, reason) {
    for (row in peer_line_of) {
        reason = member(peer_line_of[row], "skipped")
        if (reason != "" && !(reason in said)) {
            said[reason] = 1
            print "left out: " member(peer_line_of[row], "peer") ": " reason
        }
    }
}

END {
    if (form == "markdown" && machine != "") {
        machine_print()
    }
    for (i = 1; i <= n_ops; i++) {
        op_print(ops[i])
    }
    print ""
    skipped_print()
    if (trainer != "") {
        print "hsdp-gpt on 2 ranks: " digits(member(trainer, "speedup_2_ranks")) \
            " times the tokens per second of one"
    }
}
