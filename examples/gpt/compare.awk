# SPDX-License-Identifier: Apache-2.0
# Sets JSON logs of hsdp-gpt side by side, one column a file, named after the file:
#     awk [-v trained=FILE [-v least=LOSS]] -f compare.awk fsdp.json hsdp.json
# A file may hold several runs, one after the other. Speed and traffic are medians over the steps that
# all files have, but for the first five of each run. `trained` is the log of a run whose losses are
# told; the exit status is 1 unless the mean of its last 20 is below `least`.

# The number behind "key": on this line.
function number_of(line, key,    at) {
    at = index(line, "\"" key "\": ")
    return at == 0 ? 0 : substr(line, at + length(key) + 4) + 0
}

# Adds up what moved in all groups on this line, and remembers each group.
function traffic_of(line, file,    at, rows, n, i, colon, name, total) {
    at = index(line, "\"traffic\": ")
    line = substr(line, at + 12)
    n = split(line, rows, ", ")
    total = 0
    for (i = 1; i <= n; i++) {
        colon = index(rows[i], "\": ")
        if (colon > 0) {
            name = substr(rows[i], 2, colon - 2)
            moved[file, steps[file], name] = substr(rows[i], colon + 3) + 0
            total += moved[file, steps[file], name]
            if (!(name in is_group)) {
                is_group[name] = 1
                groups[++n_groups] = name
            }
        }
    }
    return total
}

function median(values, n,    i, j, kept) {
    for (i = 2; i <= n; i++) {
        kept = values[i]
        for (j = i - 1; j >= 1 && values[j] > kept; j--) {
            values[j + 1] = values[j]
        }
        values[j + 1] = kept
    }
    return n % 2 ? values[(n + 1) / 2] : (values[n / 2] + values[n / 2 + 1]) / 2
}

# 1234567 becomes 1,234,567.
function grouped(number,    digits, text) {
    digits = sprintf("%.0f", number)
    while (length(digits) > 3) {
        text = "," substr(digits, length(digits) - 2) text
        digits = substr(digits, 1, length(digits) - 3)
    }
    return digits text
}

# Median over the common steps of one file: `what` is a speed or the bytes of a group.
function middle(file, what,    i, n, values) {
    n = 0
    for (i = 1; i <= n_common; i++) {
        if (number[file, i] <= 5) {
            continue
        }
        values[++n] = what == "speed" ? speed[file, i] : \
                      what == "total" ? total_moved[file, i] : moved[file, i, what] + 0
    }
    return median(values, n)
}

# How far apart the losses of the first and the last file are over the common steps.
function losses_compare(    i, gap, largest) {
    largest = 0
    for (i = 1; i <= n_common; i++) {
        gap = (loss[1, i] - loss[n_files, i]) / loss[1, i]
        gap = gap < 0 ? -gap : gap
        largest = gap > largest ? gap : largest
    }
    if (largest == 0) {
        printf "The losses of steps 1 to %d are the same, to the last bit.\n", last_step
    } else {
        printf "The losses of steps 1 to %d differ by at most %.1e of their size.\n", last_step, largest
    }
}

# Tells how far the loss of the trained run has fallen; the mean of its last 20 steps.
function trained_tell(    line, losses, n, i, mean, held_out) {
    while ((getline line < trained) > 0) {
        losses[++n] = number_of(line, "cross_entropy_loss")
        held_out = index(line, "\"validation_loss\"") ? number_of(line, "validation_loss") : held_out
    }
    if (n < 20) {
        print "compare: " trained " has " n + 0 " steps; 20 are needed" > "/dev/stderr"
        return 1e9
    }
    for (i = n - 19; i <= n; i++) {
        mean += losses[i] / 20
    }
    printf "%s: the loss fell from %.4f to %.4f, the mean of the last 20 of %d steps", \
           name_of(trained), losses[1], mean, n
    printf held_out == "" ? ".\n" : ";\nit is %.4f on the text that was held out.\n", held_out
    return mean
}

# logs/hsdp.json becomes hsdp.
function name_of(path) {
    sub(/.*\//, "", path)
    sub(/\.json$/, "", path)
    return path
}

function row(title, kind, what,    file, value) {
    printf "%-34s", title
    for (file = 1; file <= n_files; file++) {
        value = kind == "middle" ? middle(file, what) : memory[file, what]
        printf "%18s", grouped(value)
    }
    printf "\n"
}

FNR == 1 {
    n_files++
    names[n_files] = name_of(FILENAME)
}

{
    steps[n_files]++
    number[n_files, steps[n_files]] = number_of($0, "step")
    loss[n_files, steps[n_files]] = number_of($0, "cross_entropy_loss")
    speed[n_files, steps[n_files]] = number_of($0, "tokens_per_second")
    total_moved[n_files, steps[n_files]] = traffic_of($0, n_files)
    memory[n_files, "parameters"] = number_of($0, "parameters")
    memory[n_files, "gradients"] = number_of($0, "gradients")
    memory[n_files, "optimizer"] = number_of($0, "optimizer")
    memory[n_files, "unsharded"] = number_of($0, "unsharded")
    memory[n_files, "peak"] = number_of($0, "peak_memory_bytes")
}

END {
    n_common = steps[1]
    for (file = 2; file <= n_files; file++) {
        n_common = steps[file] < n_common ? steps[file] : n_common
    }
    if (n_common < 6) {
        print "compare: the logs have " n_common + 0 " steps in common; 6 are needed" > "/dev/stderr"
        exit 1
    }
    last_step = number[1, n_common]
    printf "%-34s", "medians of steps 6 to " last_step
    for (file = 1; file <= n_files; file++) {
        printf "%18s", names[file]
    }
    printf "\n"
    row("tokens per second", "middle", "speed")
    row("bytes moved per step, rank 0", "middle", "total")
    for (i = 1; i <= n_groups; i++) {
        row("  in group " groups[i], "middle", groups[i])
    }
    row("bytes held, rank 0: parameters", "memory", "parameters")
    row("  gradients", "memory", "gradients")
    row("  optimizer", "memory", "optimizer")
    row("  unsharded slots", "memory", "unsharded")
    row("  whole process at its peak", "memory", "peak")
    printf "%-34s", "loss at step " last_step
    for (file = 1; file <= n_files; file++) {
        printf "%18.6f", loss[file, n_common]
    }
    printf "\n\n"
    print "On one host, speeds that differ by less than 10 % are equal within the noise."
    losses_compare()
    if (trained != "" && !(trained_tell() < (least == "" ? 1e9 : least + 0))) {
        print "compare: the loss is not below " least > "/dev/stderr"
        exit 1
    }
}
