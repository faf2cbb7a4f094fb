# SPDX-License-Identifier: Apache-2.0
# report.awk RESULTS: the rows of results.json as tables to read, with results.awk before it.
#
# form is "text", or "markdown": then with the machine before the tables.

list == "\"rows\":" && /"op":/ {
    row_keep($0)
    n_rounds = member($0, "rounds") == "" ? n_rounds : member($0, "rounds")
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

# The columns of an operation, which are there when a row has something for them.
function columns_find(op,    i, row) {
    delete has
    for (i = 1; i <= n_rows[op]; i++) {
        row = rows[op, i]
        has["bus"] = has["bus"] || member(line_of[row], "limit_us") != ""
        has["norm"] = has["norm"] || member(line_of[row], "with_norm_us") != ""
        has["read"] = has["read"] || member(line_of[row], "first_read_us") != ""
        has["mpi"] = has["mpi"] || member(peer_line_of[row, "openmpi"], "peer_us") != ""
        has["gloo"] = has["gloo"] || member(peer_line_of[row, "gloo"], "peer_us") != ""
    }
}

function head(op) {
    if (form == "markdown") {
        printf "\n**%s**\n\n", op
        cell("ranks")
    } else {
        print ""
        cell(op, -15)
    }
    cell("dtype", -6)
    cell("size", 9)
    cell("ours", 10)
    if (has["mpi"]) {
        cell("Open MPI", 10)
        cell("ratio", 8)
        cell("of rounds", 19)
    }
    if (has["read"]) {
        cell("ours + read", 13)
        if (has["mpi"]) {
            cell("MPI + read", 12)
        }
    }
    if (has["bus"]) {
        cell("bus", 10)
        cell("share", 7)
    }
    if (has["norm"]) {
        cell("with norm", 10)
    }
    if (has["gloo"]) {
        cell("gloo", 10)
        cell("ratio", 9)
    }
    if (form == "markdown" && has["mpi"]) {
        cell("Open MPI's best")
    }
    line_end()
}

# Below the head of Markdown: texts to the left, figures to the right.
function rule(    n_figures, i) {
    n_figures = 2 + 3 * has["mpi"] + 2 * has["bus"] + 2 * has["gloo"] + has["norm"]
    n_figures += has["read"] * (1 + has["mpi"])
    printf "|---|---|"
    for (i = 1; i <= n_figures; i++) {
        printf "---:|"
    }
    print has["mpi"] ? "---|" : ""
}

function range_words(least, most) {
    return least == "" ? "-" : digits(least) " to " digits(most)
}

function ratio_words(ratio) {
    return ratio == "" ? "-" : digits(ratio)
}

function share_words(share) {
    return share == "" ? "-" : sprintf("%.0f %%", 100 * share)
}

function setting_words(peer) {
    return match(peer, /\(.*\)/) ? substr(peer, RSTART + 1, RLENGTH - 2) : "-"
}

function peers_print(own, mpi, gloo) {
    if (has["mpi"]) {
        cell(time_words(member(mpi, "peer_us")), 10)
        cell(ratio_words(member(mpi, "ratio")), 8)
        cell(range_words(member(mpi, "ratio_min"), member(mpi, "ratio_max")), 19)
    }
    if (has["read"]) {
        cell(time_words(member(own, "first_read_us")), 13)
        if (has["mpi"]) {
            cell(time_words(member(mpi, "peer_first_read_us")), 12)
        }
    }
    if (has["bus"]) {
        cell(time_words(member(own, "limit_us")), 10)
        cell(share_words(member(own, "share_of_limit")), 7)
    }
    if (has["norm"]) {
        cell(time_words(member(own, "with_norm_us")), 10)
    }
    if (has["gloo"]) {
        cell(time_words(member(gloo, "peer_us")), 10)
        cell(ratio_words(member(gloo, "ratio")), 9)
    }
    if (form == "markdown" && has["mpi"]) {
        cell(setting_words(member(mpi, "peer")))
    }
}

function ranks_words(n) {
    if (form == "markdown") {
        return n
    }
    return n (n == 1 ? " rank" : " ranks")
}

function row_print(row,    own) {
    own = line_of[row]
    cell(ranks_words(member(own, "ranks")), -15)
    cell(member(own, "dtype"), -6)
    cell(size_words(member(own, "bytes")), 9)
    cell(time_words(member(own, "ours_us")), 10)
    peers_print(own, peer_line_of[row, "openmpi"], peer_line_of[row, "gloo"])
    line_end()
}

function op_print(op,    i) {
    columns_find(op)
    head(op)
    if (form == "markdown") {
        rule()
    }
    for (i = 1; i <= n_rows[op]; i++) {
        row_print(rows[op, i])
    }
}

# --------------------------------------------------------------------------------------- words

function machine_line(what, words) {
    print "| " what " | " words " |"
}

function machine_print() {
    print "| measured on | " member(machine, "date") " |\n|---|---|"
    machine_line("CPU", member(machine, "cpu") ", " member(machine, "cores") " cores")
    machine_line("caches", member(machine, "caches"))
    machine_line("memory", member(machine, "memory_mib") " MiB")
    machine_line("huge pages", member(machine, "huge_pages") "; in shared memory: " \
        member(machine, "huge_pages_shared"))
    machine_line("kernel", member(machine, "kernel"))
    machine_line("compiler", member(machine, "compiler") ", " member(machine, "cflags"))
    machine_line("MPI", member(machine, "mpi"))
    machine_line("gloo", member(machine, "gloo"))
    machine_line("busy before it began", member(machine, "busy_percent") " %")
    machine_line("rounds of the collectives", n_rounds)
}

function skipped_print(    i, k, row, peers, peer, reason) {
    split("openmpi gloo", peers, " ")
    for (k = 1; k <= 2; k++) {
        peer = peers[k]
        for (i = 1; i <= n_ops; i++) {
            row = rows[ops[i], 1]
            reason = member(peer_line_of[row, peer], "skipped")
            if (reason != "" && !((peer, reason) in said)) {
                said[peer, reason] = 1
                print "left out: " peer ": " reason (form == "markdown" ? "\n" : "")
            }
        }
    }
}

END {
    if (form == "text") {
        print "\nmedians of " n_rounds (n_rounds == 1 ? " round" : " rounds") \
            "; ratio: how many times as long as ours the other takes"
    } else if (machine != "") {
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
