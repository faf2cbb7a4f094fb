# SPDX-License-Identifier: Apache-2.0
# The work of check-length: measures files and functions, forgives what the exceptions list.
#
# The layout that clang-format enforces is relied on: a function begins with "{" in column 1.

BEGIN {
    limit["file"] = 600
    limit["function"] = 60
    limit["params"] = 6
    limit["nesting"] = 3
    while ((getline line < exceptions) > 0) {
        exception_read(line)
    }
}

# WHAT PATH[:FUNCTION] REASON
function exception_read(line,    field, n) {
    if (line ~ /^[ \t]*(#|$)/) {
        return
    }
    n = split(line, field, /[ \t]+/)
    if (!(field[1] in limit) || n < 5) {
        complain(exceptions ": want WHAT PATH[:FUNCTION] and a reason of three words or more: " line)
        return
    }
    excepted[field[1] " " field[2]] = 1
}

function complain(text) {
    print text
    n_complaints++
}

function measure(what, place, value, unit) {
    if (value <= limit[what]) {
        return
    }
    if ((what " " place) in excepted) {
        used[what " " place] = 1
        return
    }
    complain(place ": " value " " unit ", at most " limit[what])
}

# The name before the first "(" that is not an attribute's; for Check the name of the test.
function function_name(text) {
    gsub(/__attribute__ *\(\([^)]*\)*\)/, "", text)
    if (text ~ /(START_TEST|START_LOOP_TEST) *\(/) {
        sub(/.*START[A-Z_]* *\(/, "", text)
        sub(/[^A-Za-z0-9_].*/, "", text)
        return text
    }
    sub(/ *\(.*/, "", text)
    sub(/.*[^A-Za-z0-9_]/, "", text)
    return text
}

function n_params(text,    depth, i, c, n) {
    gsub(/__attribute__ *\(\([^)]*\)*\)/, "", text)
    depth = 0
    n = 1
    for (i = 1; i <= length(text); i++) {
        c = substr(text, i, 1)
        if (c == "(") {
            depth++
        } else if (c == ")") {
            depth--
        } else if (c == "," && depth == 1) {
            n++
        }
    }
    return n
}

# Braces of if, else, for, while, do and switch nest; braces of an initializer do not.
function nesting_follow(code,    i, c, before) {
    for (i = 1; i <= length(code); i++) {
        c = substr(code, i, 1)
        if (c == "{") {
            before = substr(code, 1, i - 1)
            is_control[++depth] = before ~ /(\)|(^|[^A-Za-z0-9_])(else|do)) *$/
            nesting += is_control[depth]
            if (nesting > deepest) {
                deepest = nesting
            }
        } else if (c == "}") {
            nesting -= is_control[depth--]
        }
    }
}

function function_open() {
    in_function = 1
    first_line = FNR
    place = path ":" function_name(signature)
    measure("params", place, n_params(signature), "parameters")
    depth = nesting = deepest = 0
}

function function_close() {
    in_function = 0
    signature = ""
    measure("function", place, FNR - first_line + 1, "lines in the function")
    measure("nesting", place, deepest, "levels of nesting")
}

function file_close() {
    if (path != "") {
        measure("file", path, n_lines, "lines in the file")
    }
}

FNR == 1 {
    file_close()
    path = FILENAME
    code_reset()
    in_function = 0
    signature = ""
}

{
    n_lines = FNR
    code = code_of($0)
    if (in_function) {
        if (code ~ /^[}]/) {
            function_close()
        } else {
            nesting_follow(code)
        }
    } else if (code ~ /^[{]/ && signature ~ /\(/) {
        function_open()
    } else if (code ~ /^[ \t]*$/ || code ~ /^[#}]/ || code ~ /[;}][ \t]*$/) {
        signature = ""
    } else {
        signature = signature " " code
    }
}

END {
    file_close()
    for (key in excepted) {
        if (!(key in used)) {
            complain(exceptions ": no longer needed: " key)
        }
    }
    exit (n_complaints > 0)
}
