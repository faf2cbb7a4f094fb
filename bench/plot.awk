# SPDX-License-Identifier: Apache-2.0
# plot.awk RESULTS: the rows of results.json as a picture (SVG), with results.awk before it.
#
# A panel for each operation and number of ranks: time over bytes, both in powers of ten. A step is no
# collective.

list == "\"rows\":" && /"op":/ && !/"op":"step"/ {
    row_keep($0)
    ranks = member($0, "ranks")
    if (!(ranks in is_ranks)) {
        is_ranks[ranks] = 1
        ranks_list[++n_ranks] = ranks
    }
}

/"machine":/ {
    machine = $0
}

function escape(text) {
    gsub(/&/, "\\&amp;", text)
    gsub(/</, "\\&lt;", text)
    gsub(/>/, "\\&gt;", text)
    return text
}

function words(x, y, text, class) {
    printf "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">%s</text>\n", x, y, class, escape(text)
}

function stroke(x1, y1, x2, y2, class) {
    printf "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>\n", x1, y1, x2, y2, \
        class
}

function log10(value) {
    return log(value) / log(10)
}

# ---------------------------------------------------------------------------------- one panel

function x_of(bytes) {
    return left + width * (log10(bytes) - x_least) / (x_most - x_least)
}

function y_of(us) {
    return top + height * (1 - (log10(us) - y_least) / (y_most - y_least))
}

function power_words(power) {
    if (power >= 6) {
        return 10 ^ (power - 6) " s"
    }
    return power >= 3 ? 10 ^ (power - 3) " ms" : 10 ^ power " us"
}

function axes_draw(op, n,    power, i) {
    words(left + width / 2, top - 10, op ", " n " ranks", "title")
    for (power = y_least; power <= y_most; power++) {
        stroke(left, y_of(10 ^ power), left + width, y_of(10 ^ power), "grid")
        words(left - 6, y_of(10 ^ power) + 4, power_words(power), "y")
    }
    for (i = 1; i <= n_sizes; i++) {
        stroke(x_of(sizes[i]), top, x_of(sizes[i]), top + height, "grid")
        words(x_of(sizes[i]), top + height + 16, size_words(sizes[i]), "x")
    }
    printf "<rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%d\" class=\"frame\"/>\n", left, top, \
        width, height
}

# The time of a contender in a row; "" when it has none.
function value_of(row, who) {
    if (who == "ours") {
        return member(line_of[row], "ours_us")
    }
    if (who == "bus") {
        return member(line_of[row], "limit_us")
    }
    return member(peer_line_of[row, who], "peer_us")
}

function curve_draw(op, n, dtype, who,    i, row, us, points, marks) {
    for (i = 1; i <= n_sizes; i++) {
        row = op SUBSEP dtype SUBSEP n SUBSEP sizes[i]
        us = (row in line_of) ? value_of(row, who) : ""
        if (us != "" && us > 0) {
            points = points sprintf(" %.1f,%.1f", x_of(sizes[i]), y_of(us))
            marks = marks sprintf("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" class=\"%s mark\"/>\n", \
                x_of(sizes[i]), y_of(us), who)
        }
    }
    if (points != "") {
        printf "<polyline points=\"%s\" class=\"%s %s\"/>\n%s", substr(points, 2), who, dtype, marks
    }
}

function panel_draw(op, n,    i, k) {
    axes_draw(op, n)
    for (i = 1; i <= n_who; i++) {
        for (k = 1; k <= n_dtypes; k++) {
            curve_draw(op, n, dtypes[k], who[i])
        }
    }
}

# ------------------------------------------------------------------------------------- scales

function sizes_find(    op, i, k, field, seen, size) {
    x_least = 99
    for (op in n_rows) {
        for (i = 1; i <= n_rows[op]; i++) {
            split(rows[op, i], field, SUBSEP)
            size = field[4] + 0
            if (!(size in seen)) {
                seen[size] = 1
                for (k = ++n_sizes; k > 1 && sizes[k - 1] > size; k--) {
                    sizes[k] = sizes[k - 1]
                }
                sizes[k] = size
            }
        }
    }
    x_least = log10(sizes[1]) - 0.15
    x_most = log10(sizes[n_sizes]) + 0.15
}

# Whole powers of ten around all values of an operation, whatever the ranks.
function times_find(op,    i, k, us) {
    y_least = 99
    y_most = -99
    for (i = 1; i <= n_rows[op]; i++) {
        for (k = 1; k <= n_who; k++) {
            us = value_of(rows[op, i], who[k])
            if (us != "" && us > 0) {
                us = log10(us)
                y_least = us < y_least ? floor(us) : y_least
                y_most = us > y_most ? -floor(-us) : y_most
            }
        }
    }
    if (y_most == y_least) { # a single time, of a whole power
        y_most++
    }
}

function floor(value,    whole) {
    whole = int(value)
    return whole > value ? whole - 1 : whole
}

# -------------------------------------------------------------------------------------- frame

function style_write() {
    print "<style>"
    print "text { font-family: sans-serif; font-size: 12px; fill: #222 }"
    print ".heading { font-size: 17px; font-weight: bold }"
    print ".title { font-size: 14px; font-weight: bold; text-anchor: middle }"
    print ".x { text-anchor: middle } .y { text-anchor: end }"
    print ".grid { stroke: #ddd } .frame { fill: none; stroke: #888 }"
    print "polyline, .key { fill: none; stroke-width: 2 } .bf16 { stroke-dasharray: 6 4 }"
    print ".ours { stroke: #0b5cad } .openmpi { stroke: #d1600a } .gloo { stroke: #777 }"
    print ".bus { stroke: #2a8a4a } .mark { fill: white; stroke-width: 1.5 }"
    print ".dtype { stroke: #222 }"
    print "</style>"
}

function key_draw(x, y, text, class) {
    stroke(x, y - 4, x + 34, y - 4, "key " class)
    words(x + 40, y, text, "")
}

function machine_words() {
    if (machine == "") {
        return ""
    }
    return member(machine, "cpu") ", " member(machine, "cores") " cores; "
}

function keys_draw(y) {
    key_draw(left_margin, y, "libhsdp", "ours")
    key_draw(left_margin + 130, y, "Open MPI, its best setting", "openmpi")
    key_draw(left_margin + 365, y, "gloo", "gloo")
    key_draw(left_margin + 470, y, "the memory bus: least bytes moved", "bus")
    key_draw(left_margin + 750, y, "fp32", "dtype")
    key_draw(left_margin + 860, y, "bf16", "dtype bf16")
}

BEGIN {
    n_who = split("gloo openmpi bus ours", who, " ")
    n_dtypes = split("fp32 bf16", dtypes, " ")
    width = 290
    height = 220
    left_margin = 66
    top_margin = 110
    column = 376
    line = 280
}

END {
    sizes_find()
    total_width = left_margin + (n_ops - 1) * column + width + 30
    total_height = top_margin + (n_ranks - 1) * line + height + 40
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\">\n", total_width, \
        total_height
    style_write()
    printf "<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n", total_width, total_height
    words(left_margin, 28, "Collectives among the ranks of one host: time of the slowest rank", \
        "heading")
    words(left_margin, 48, machine_words() "medians; lower is better", "")
    keys_draw(74)
    left = left_margin
    for (i = 1; i <= n_ops; i++) {
        times_find(ops[i])
        for (k = 1; k <= n_ranks; k++) {
            top = top_margin + (k - 1) * line
            panel_draw(ops[i], ranks_list[k])
        }
        left += column
    }
    print "</svg>"
}
