# SPDX-License-Identifier: Apache-2.0
# The figures of bench/trainer: prints a table, and writes trainer.object, one JSON object.
#     awk -v n_warm_up=STEPS -f trainer.awk gpt.yaml hsdp-1.json hsdp-2.json fsdp-2.json
#
# A log, STRATEGY-RANKS.json, holds one run for each round; a run begins with step 1. The first log is
# what the others are compared with, round by round. Exit status: 0, or 1 where the runs do not belong
# together.

# The number behind "key": on this line; a key that is missing ends everything.
function number_of(key,    at) {
    at = index($0, "\"" key "\": ")
    if (at == 0) {
        fail(FILENAME " has no " key)
    }
    return substr($0, at + length(key) + 4) + 0
}

function fail(why) {
    print "trainer: " why > "/dev/stderr"
    failed = 1
    exit 1
}

# Sorts values[1..n].
function sort(values, n,    i, j, kept) {
    for (i = 2; i <= n; i++) {
        kept = values[i]
        for (j = i - 1; j >= 1 && values[j] > kept; j--) {
            values[j + 1] = values[j]
        }
        values[j + 1] = kept
    }
}

function median(values, n) {
    sort(values, n)
    return n % 2 ? values[(n + 1) / 2] : (values[n / 2] + values[n / 2 + 1]) / 2
}

# The run that ends here: a figure of it is the median of its steps.
function run_close(    i, column, values) {
    if (n_measured == 0) {
        fail("a run of " log_name " has no more steps than warm up")
    }
    for (i = 1; i <= n_columns; i++) {
        column = columns[i]
        for (step = 1; step <= n_measured; step++) {
            values[step] = measured[column, step]
        }
        figure[n_logs, column, n_runs[n_logs]] = median(values, n_measured)
    }
    loss[n_logs, n_runs[n_logs]] = last_loss
    n_measured = -1
}

# Median, least and most of a figure over the rounds: sets middle, low, high.
function spread(log_index, column,    i, values) {
    for (i = 1; i <= n_rounds; i++) {
        values[i] = figure[log_index, column, i]
    }
    middle = median(values, n_rounds)
    low = values[1]
    high = values[n_rounds]
}

function percent(log_index, column) {
    spread(log_index, column)
    return middle * 100
}

# The ratio of every round, and that the losses of a round are the same but for rounding.
function rounds_compare(log_index,    i, gap) {
    for (i = 1; i <= n_rounds; i++) {
        gap = loss[log_index, i] / loss[1, i] - 1
        if (gap > 1e-4 || gap < -1e-4) {
            fail(names[log_index] " learned something else: its last loss is " loss[log_index, i] \
                 ", that of " names[1] " " loss[1, i])
        }
        figure[log_index, "speedup", i] = figure[log_index, "speed", i] / figure[1, "speed", i]
    }
}

function table_write(    i) {
    printf "%-28s%9s%18s%10s%15s%8s%8s%8s\n", "hsdp-gpt, " n_rounds " rounds", "tokens/s", "spread", \
           "speedup", "spread", "compute", "comm.", "optim."
    for (i = 1; i <= n_logs; i++) {
        printf "%-28s", strategy[i] ", " ranks[i] (ranks[i] == 1 ? " rank" : " ranks")
        spread(i, "speed")
        printf "%9.0f%18s", middle, sprintf("%.0f to %.0f", low, high)
        spread(i, "speedup")
        printf "%10.3f%15s", middle, sprintf("%.3f to %.3f", low, high)
        printf "%7.1f%%%7.1f%%%7.1f%%\n", percent(i, "compute"), percent(i, "communication"), \
               percent(i, "optimizer")
    }
}

# "name":median,"name_min":least,"name_max":most
function spread_json(name, log_index, column, format) {
    spread(log_index, column)
    return sprintf("\"%s\":" format ",\"%s_min\":" format ",\"%s_max\":" format, name, middle, name, \
                   low, name, high)
}

function run_json(log_index,    text) {
    text = sprintf("{\"strategy\":\"%s\",\"ranks\":%d,%s,%s", strategy[log_index], ranks[log_index], \
                   spread_json("tokens_per_second", log_index, "speed", "%.1f"), \
                   spread_json("speedup", log_index, "speedup", "%.4f"))
    spread(log_index, "compute")
    text = text sprintf(",\"compute_share\":%.4f", middle)
    spread(log_index, "communication")
    text = text sprintf(",\"communication_share\":%.4f", middle)
    spread(log_index, "optimizer")
    return text sprintf(",\"optimizer_share\":%.4f}", middle)
}

function object_write(    i) {
    printf "{%s,\"rounds\":%d,\"config\":{%s},\n\"runs\":[", \
           spread_json("speedup_2_ranks", 2, "speedup", "%.4f"), n_rounds, config > "trainer.object"
    for (i = 1; i <= n_logs; i++) {
        printf "%s%s", i == 1 ? "" : ",\n", run_json(i) > "trainer.object"
    }
    print "]}" > "trainer.object"
}

BEGIN {
    n_columns = split("speed compute communication optimizer", columns, " ")
}

FILENAME ~ /yaml$/ {
    config = config (config == "" ? "" : ",") "\"" substr($1, 1, length($1) - 1) "\":" \
             ($2 ~ /^[0-9.]+$/ ? $2 : "\"" $2 "\"")
    next
}

{
    n = number_of("step")
    if (n == 1 && n_logs > 0) {
        run_close()
    }
}

FNR == 1 {
    log_name = FILENAME
    n_logs++
    names[n_logs] = FILENAME
    split(FILENAME, parts, /[-.]/)
    strategy[n_logs] = parts[1]
    ranks[n_logs] = parts[2]
}

n == 1 {
    n_runs[n_logs]++
    n_measured = 0
}

{
    last_loss = number_of("cross_entropy_loss")
}

n > n_warm_up {
    n_measured++
    whole = number_of("step_seconds")
    measured["speed", n_measured] = number_of("tokens_per_second")
    measured["compute", n_measured] = number_of("compute_seconds") / whole
    measured["communication", n_measured] = number_of("communication_seconds") / whole
    measured["optimizer", n_measured] = number_of("optimizer_seconds") / whole
}

END {
    if (failed || n_logs < 2) {
        exit 1
    }
    run_close()
    n_rounds = n_runs[1]
    for (i = 1; i <= n_logs; i++) {
        if (n_runs[i] != n_rounds) {
            fail(names[i] " has " n_runs[i] " runs, " names[1] " has " n_rounds)
        }
        rounds_compare(i)
    }
    table_write()
    object_write()
}
