# SPDX-License-Identifier: Apache-2.0
# What report.awk leaves out of the page, with it and results.awk before it: small parameters, the norm,
# training and planning.
#
# The benches have printed both already, so that there is nothing to do where form is "text".

/"pass_us":/ {
    smalls[++n_smalls] = $0
}

/"norm":"/ {
    norms[++n_norms] = $0
}

/"communication_share":/ {
    runs[++n_runs] = $0
}

/"kind":"plan"/ {
    plans[++n_plans] = $0
}

/"kind":"mesh"/ {
    mesh = $0
}

# The head of a table: its columns, of which the first n_texts are words.
function columns_print(title, columns, n_texts,    names, n, i) {
    printf "\n**%s**\n\n", title
    n = split(columns, names, ", ")
    for (i = 1; i <= n; i++) {
        cell(names[i])
    }
    line_end()
    printf "|"
    for (i = 1; i <= n; i++) {
        printf i <= n_texts ? "---|" : "---:|"
    }
    print ""
}

# "6,021", or where it is less than a thousand as it is.
function thousands(number,    text) {
    text = sprintf("%.0f", number)
    return length(text) > 3 ? substr(text, 1, length(text) - 3) "," substr(text, length(text) - 2) : text
}

function small_print(row) {
    cell(thousands(member(row, "params")))
    cell(thousands(member(row, "units")))
    cell(time_words(member(row, "pass_us")))
    cell(time_words(member(row, "begin_us")))
    cell(time_words(member(row, "adamw_us")))
    cell(time_words(member(row, "end_us")))
    cell(time_words(member(row, "step_us")))
    line_end()
}

function norms_print(    i) {
    printf "\nThe exact norm takes, in ns an element:"
    for (i = 1; i <= n_norms; i++) {
        printf "%s %s %s", i == 1 ? "" : ",", digits(member(norms[i], "ns_per_elem")), \
            member(norms[i], "norm")
    }
    print "."
}

function share_cell(row, key) {
    cell(sprintf("%.1f %%", 100 * member(row, key)))
}

function run_print(row) {
    cell(member(row, "strategy"))
    cell(member(row, "ranks"))
    cell(thousands(member(row, "tokens_per_second")))
    cell(thousands(member(row, "tokens_per_second_min")) " to " \
         thousands(member(row, "tokens_per_second_max")))
    cell(digits(member(row, "speedup")))
    cell(digits(member(row, "speedup_min")) " to " digits(member(row, "speedup_max")))
    share_cell(row, "compute_share")
    share_cell(row, "communication_share")
    share_cell(row, "optimizer_share")
    line_end()
}

function ms_words(row, key) {
    return digits(member(row, key)) " ms"
}

function plan_print(row) {
    cell(member(row, "strategy"))
    cell(member(row, "blocks"))
    cell(thousands(member(row, "units")))
    cell(ms_words(row, "ms"))
    cell(digits(member(row, "ms_min")) " to " digits(member(row, "ms_max")))
    cell(ms_words(row, "segments_ms"))
    cell(ms_words(row, "report_ms"))
    cell(digits(member(row, "peak_bytes") / 1e6) " MB")
    cell(digits(member(row, "peak_bytes_on_1000_ranks") / 1e6) " MB")
    line_end()
}

END {
    if (form == "markdown" && n_smalls > 0) {
        columns_print("small parameters", "parameters, units, pass, begin and result, hsdp.adamw, end, step", 0)
        for (i = 1; i <= n_smalls; i++) {
            small_print(smalls[i])
        }
    }
    if (form == "markdown" && n_norms > 0) {
        norms_print()
    }
    if (form == "markdown" && n_runs > 0) {
        columns_print("training", "strategy, ranks, tokens/s, of rounds, beside one rank, of rounds, " \
                      "computing, communication, optimizer", 1)
        for (i = 1; i <= n_runs; i++) {
            run_print(runs[i])
        }
    }
    if (form == "markdown" && n_plans > 0) {
        columns_print("planning", "strategy, blocks, units, plan, of rounds, segments, report, " \
                      "memory, on 1000 ranks", 2)
        for (i = 1; i <= n_plans; i++) {
            plan_print(plans[i])
        }
        printf "\nA mesh of 1,000,000 ranks (%d bytes) answers in %s ns where a rank stands, in %s ns " \
               "which ten ranks are its group.\n", member(mesh, "held_bytes"), \
               digits(member(mesh, "coords_ns")), digits(member(mesh, "members_ns"))
    }
}
