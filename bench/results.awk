# SPDX-License-Identifier: Apache-2.0
# What report.awk and plot.awk share: rows of results.json, which collect writes one a line, and words.

# Which list of results.json the lines belong to: several benches have an "op".
/^  "[a-z_]*": \[/ {
    list = $1
}

/^  \]/ {
    list = ""
}

# The value of a member of the object in a line: a number, or a text without its quotes; "" for null.
function member(line, key,    at, value) {
    at = index(line, "\"" key "\":")
    if (at == 0) {
        return ""
    }
    value = substr(line, at + length(key) + 3)
    if (value ~ /^ *"/) {
        sub(/^ *"/, "", value)
        value = value ~ /^"/ || !match(value, /[^\\]"/) ? "" : substr(value, 1, RSTART)
        gsub(/\\"/, "\"", value)
        return value
    }
    sub(/[,}].*/, "", value)
    return value == "null" ? "" : value
}

# Keeps a row under op, dtype, ranks and bytes: first what is ours, then what is of this peer.
function row_keep(line,    op, row, peer) {
    op = member(line, "op")
    row = op SUBSEP member(line, "dtype") SUBSEP member(line, "ranks") SUBSEP member(line, "bytes")
    if (!(op in n_rows)) {
        ops[++n_ops] = op
    }
    if (!(row in line_of)) {
        rows[op, ++n_rows[op]] = row
        line_of[row] = line
    }
    peer = member(line, "peer")
    sub(/ .*/, "", peer)
    peer_line_of[row, peer] = line
}

# Values that were read are texts, which compare as texts unless they are made numbers.

function size_words(bytes) {
    bytes += 0
    return bytes >= 1048576 ? sprintf("%.0f MiB", bytes / 1048576) : sprintf("%.0f KiB", bytes / 1024)
}

# Three digits that count.
function digits(value) {
    value += 0
    if (value >= 100) {
        return sprintf("%.0f", value)
    }
    return sprintf(value >= 10 ? "%.1f" : "%.2f", value)
}

function time_words(us) {
    if (us == "") {
        return "-"
    }
    us += 0
    return us >= 1000 ? digits(us / 1000) " ms" : digits(us) " us"
}
