# SPDX-License-Identifier: Apache-2.0
# code_of(LINE): the line without comments and with empty strings; call code_reset() for each file.

function code_reset() {
    code_in_comment = 0
}

function code_of(line,    out, c, two, quote) {
    out = ""
    quote = ""
    while (line != "") {
        c = substr(line, 1, 1)
        two = substr(line, 1, 2)
        if (code_in_comment) {
            if (two == "*/") {
                code_in_comment = 0
                line = substr(line, 3)
                continue
            }
        } else if (quote != "") {
            if (c == "\\") {
                line = substr(line, 3)
                continue
            }
            if (c == quote) {
                out = out c
                quote = ""
            }
        } else if (two == "/*") {
            code_in_comment = 1
            line = substr(line, 3)
            continue
        } else if (two == "//") {
            break
        } else {
            if (c == "\"" || c == "'") {
                quote = c
            }
            out = out c
        }
        line = substr(line, 2)
    }
    return out
}
