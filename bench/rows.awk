# SPDX-License-Identifier: Apache-2.0
# rows.awk SKIPPED LINES: the rows of results.json, of what contenders have measured in each round.
#
# SKIPPED has lines of contender and reason; LINES of round, contender, setting, op, dtype, ranks,
# bytes, us, us with one read of the result; all between tabs. The setting with the least median is
# the contender's time; of ours, "norm" does more than peers do and is told beside it. A row of JSON a
# line, for each row of ours and each peer:
#
#     ours_us, peer_us, limit_us   medians over the rounds, of the bus for the limit
#     ratio                        peer_us / ours_us; ratio_min and ratio_max of single rounds
#     share_of_limit               limit_us / ours_us
#     with_norm_us                 of a reduction: ours with the exact norm of its result
#     first_read_us                of an unshard: it and one read of all of it; of the peer likewise
#     settings                     of the peer: the median of each that was tried

BEGIN {
    FS = "\t"
    n_peers = split("mpi gloo", peers, " ")
    names["mpi"] = "openmpi"
    names["gloo"] = "gloo"
}

FILENAME == ARGV[1] {
    reasons[$1] = reasons[$1] (reasons[$1] == "" ? "" : "; ") $2
    next
}

{
    row = $4 FS $5 FS $6 FS $7
    if ($2 == "ours" && !(row in known)) {
        known[row] = 1
        rows[++n_rows] = row
    }
    key = $2 FS row
    if (!((key, $3) in n)) {
        settings[key, ++n_settings[key]] = $3
    }
    i = ++n[key, $3]
    us[key, $3, i] = $8
    read_us[key, $3, i] = $9
    round_us[key, $3, $1] = $8
    n_rounds = $1 > n_rounds ? $1 : n_rounds
}

# Of list[key, setting, 1 to count].
function median(list, key, setting, count,    sorted, i, j, value) {
    for (i = 1; i <= count; i++) {
        value = list[key, setting, i] + 0
        for (j = i; j > 1 && sorted[j - 1] > value; j--) {
            sorted[j] = sorted[j - 1]
        }
        sorted[j] = value
    }
    return (sorted[int((count + 1) / 2)] + sorted[int(count / 2) + 1]) / 2
}

# Sets best[key], best_us[key] and best_read_us[key].
function best_find(key,    i, setting, value) {
    for (i = 1; i <= n_settings[key]; i++) {
        setting = settings[key, i]
        value = median(us, key, setting, n[key, setting])
        medians[key, i] = value
        if (key ~ /^ours/ && setting == "norm") {
            with_norm_us[key] = value
            continue
        }
        if (!(key in best_us) || value < best_us[key]) {
            best[key] = setting
            best_us[key] = value
        }
        value = median(read_us, key, setting, n[key, setting])
        if (!(key in best_read_us) || value < best_read_us[key]) {
            best_read_us[key] = value
        }
    }
}

function number(value) {
    return value == "" ? "null" : sprintf("%.3f", value)
}

function text(value) {
    gsub(/[\\"]/, "\\\\&", value)
    gsub(/[\001-\037]/, " ", value)
    return "\"" value "\""
}

# Ratios of the rounds in which both contenders have run.
function ratios_write(ours, peer,    i, ratio, least, most) {
    for (i = 1; i <= n_rounds; i++) {
        if (((ours, best[ours], i) in round_us) && ((peer, best[peer], i) in round_us)) {
            ratio = round_us[peer, best[peer], i] / round_us[ours, best[ours], i]
            least = least == "" || ratio < least ? ratio : least
            most = most == "" || ratio > most ? ratio : most
        }
    }
    printf ",\"ratio\":%s,\"ratio_min\":%s,\"ratio_max\":%s", number(best_us[peer] / best_us[ours]), \
        number(least), number(most)
}

function peer_write(ours, peer, name, is_unshard,    i, setting) {
    printf ",\"peer\":%s,\"peer_us\":%s", text(name (best[peer] == "" ? "" : " (" best[peer] ")")), \
        number(best_us[peer])
    ratios_write(ours, peer)
    if (is_unshard) {
        printf ",\"peer_first_read_us\":%s", number(best_read_us[peer])
    }
    printf ",\"settings\":{"
    for (i = 1; i <= n_settings[peer]; i++) {
        setting = settings[peer, i]
        printf "%s%s:%s", i == 1 ? "" : ",", text(setting == "" ? "default" : setting), \
            number(medians[peer, i])
    }
    printf "}"
}

function limit_write(ours, bus) {
    if (bus in best_us) {
        printf ",\"limit_us\":%s,\"limit\":%s,\"share_of_limit\":%s", number(best_us[bus]), \
            text(best[bus]), number(best_us[bus] / best_us[ours])
    } else {
        printf ",\"limit_us\":null,\"limit\":null,\"share_of_limit\":null"
    }
}

function row_write(row, peer,    field, ours, is_unshard) {
    split(row, field, FS)
    ours = "ours" FS row
    is_unshard = field[1] == "unshard"
    printf "{\"op\":%s,\"dtype\":%s,\"ranks\":%d,\"bytes\":%d,\"rounds\":%d,\"ours_us\":%s", \
        text(field[1]), text(field[2]), field[3], field[4], n_rounds, number(best_us[ours])
    if (is_unshard) {
        printf ",\"first_read_us\":%s", number(best_read_us[ours])
    }
    if (ours in with_norm_us) {
        printf ",\"with_norm_us\":%s", number(with_norm_us[ours])
    }
    limit_write(ours, "bus" FS row)
    if ((peer FS row) in best_us) {
        peer_write(ours, peer FS row, names[peer], is_unshard)
    } else {
        printf ",\"peer\":%s,\"peer_us\":null,\"ratio\":null", text(names[peer])
    }
    if (peer in reasons) {
        printf ",\"skipped\":%s", text(reasons[peer])
    }
    printf "}\n"
}

END {
    for (key in n_settings) {
        best_find(key)
    }
    for (i = 1; i <= n_rows; i++) {
        for (k = 1; k <= n_peers; k++) {
            row_write(rows[i], peers[k])
        }
    }
}
