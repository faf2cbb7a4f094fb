# SPDX-License-Identifier: Apache-2.0
# The work of check-braces: collects the head of each statement, which must end with "{".

function parens(text,    opened, closed) {
    opened = gsub(/\(/, "", text)
    closed = gsub(/\)/, "", text)
    return opened - closed
}

function head_close() {
    if (head !~ /[{][ \t\\]*$/ && head !~ /^[ \t]*[}] while /) {
        print FILENAME ":" head_line ": a statement without braces: " head
        n_complaints++
    }
    head = ""
}

FNR == 1 {
    code_reset()
    head = ""
}

{
    code = code_of($0)
    if (head != "") {
        sub(/^[ \t]*/, " ", code)
        head = head code
    } else if (code ~ /^[ \t]*([}] )?(if|for|while|else|do)([^A-Za-z0-9_]|$)/) {
        head = code
        head_line = FNR
    }
    if (head != "" && parens(head) == 0) {
        head_close()
    }
}

END {
    exit (n_complaints > 0)
}
