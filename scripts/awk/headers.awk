# SPDX-License-Identifier: Apache-2.0
# The declarations of the public headers, without their comments: as a list, or as of a release.
#
#     awk -v mode=list -f headers.awk HEADER...
#         one line a name: NAME KIND [VALUE], where a field is STRUCT.FIELD. Only macros have a value,
#         which is their text; that of HSDP_ABI_MINOR, which each release changes, is *
#     awk -v mode=cut -v minor=N -v symbols=FILE -f headers.awk HEADER
#         the header as of minor N, one declaration a line; what is not in FILE counts as newer than all
#     awk -v mode=grow -f headers.awk HEADER
#         the header of a release that is yet to come: the next minor, and at the end of each struct
#         that can grow a field "later", of each table a function "later"
#
# Headers are written as .clang-format wants them: one declaration a statement, one directive a line.

BEGIN {
    newest = 1000000
    while (symbols != "" && (getline record < symbols) > 0) {
        if (record !~ /^#/ && split(record, part, " ") >= 3) {
            since[part[1]] = substr(part[3], index(part[3], ".") + 1) + 0
        }
    }
}

# The line without comments; in_comment goes on to the next one.
function uncommented(line,    out, at) {
    out = ""
    while (line != "") {
        at = index(line, in_comment ? "*/" : "/*")
        if (at == 0) {
            return in_comment ? out : out line
        }
        if (!in_comment) {
            out = out substr(line, 1, at - 1) " "
        }
        in_comment = !in_comment
        line = substr(line, at + 2)
    }
    return out
}

function squeezed(text) {
    gsub(/[ \t]+/, " ", text)
    sub(/^ /, "", text)
    sub(/ $/, "", text)
    gsub(/\( /, "(", text)
    return text
}

function since_of(name) {
    return name in since ? since[name] : newest
}

# One declaration that has a name; the struct that it stands in is `inside`.
function declare(name, kind, value, text,    full) {
    full = inside == "" || kind == "struct" ? name : inside "." name
    if (mode == "list") {
        print full, kind (value == "" ? "" : " " value)
    } else if (mode == "cut" && since_of(full) <= minor) {
        if (inside != "" && kind != "struct" && since_of(full) < newest_inside) {
            complain(full " is older than what stands before it: append to the end of struct " inside)
        }
        print (inside == "" || kind == "struct" ? "" : "    ") text
    }
    if (mode == "cut" && inside != "" && kind != "struct" && since_of(full) > newest_inside) {
        newest_inside = since_of(full)
    }
}

function complain(text) {
    print text > "/dev/stderr"
    is_wrong = 1
}

# What has no name of its own goes along.
function pass(text) {
    if (mode == "cut" && since_of(header) <= minor && (inside == "" || since_of(inside) <= minor)) {
        print text
    }
}

function macro(text,    name, value) {
    name = text
    sub(/^#define /, "", name)
    match(name, /^[A-Za-z0-9_]+/)
    value = squeezed(substr(name, RLENGTH + 1))
    name = substr(name, 1, RLENGTH)
    if (name ~ /_$/ || (name ~ /_H$/ && value == "")) {
        pass(text)
    } else if (name == "HSDP_ABI_MINOR") {
        declare(name, "macro", "*", "#define HSDP_ABI_MINOR " minor "u")
    } else {
        declare(name, "macro", value, text)
    }
}

function directive(text,    included) {
    if (text ~ /^#define /) {
        macro(text)
        return
    }
    if (text ~ /^#include "/) {
        included = text
        gsub(/^#include "|"$/, "", included)
        # Only a public header is looked at by itself, and can be left out of an older release.
        if (included ~ /^hsdp\/[a-z0-9_]+\.h$/ && since_of(included) > minor) {
            return
        }
    }
    if (text == "#ifdef __cplusplus") {
        in_cxx = 1
    } else if (text == "#else" || text == "#endif") {
        in_cxx = 0
    }
    pass(text)
}

# The name in a field, "uint32_t ranks[4];", or in a pointer to a function, "int (*close)(...);".
function field(text,    name) {
    name = text
    if (match(name, /\(\*[a-z0-9_]+\)\(/)) {
        declare(substr(name, RSTART + 2, RLENGTH - 4), "function", "", text)
        return
    }
    sub(/(\[[^]]*\])*;$/, "", name)
    sub(/^.*[ *]/, "", name)
    declare(name, "field", "", text)
}

function top_level(text,    name) {
    name = text
    if (text ~ /^struct [a-z0-9_]+ \{$/) {
        split(text, part, " ")
        inside = part[2]
        newest_inside = 0
        declare(inside, "struct", "", text)
    } else if (text ~ /^typedef struct /) {
        gsub(/^.* |;$/, "", name)
        declare(name, "handle", "", text)
    } else if (match(text, /^typedef .*\(\*[a-z0-9_]+\)\(/)) {
        sub(/\)\(.*/, "", name)
        sub(/^.*\(\*/, "", name)
        declare(name, "type", "", text)
    } else if (match(text, /hsdp_[a-z0-9_]+\(/) && text !~ /^extern/) {
        declare(substr(text, RSTART, RLENGTH - 1), "function", "", text)
    } else {
        pass(text)
    }
}

function statement(text) {
    if (inside == "") {
        top_level(text)
    } else if (text == "};") {
        pass(text)
        inside = ""
    } else {
        field(text)
    }
}

# A struct that can grow says its size first, or is an element that arrays have a stride for.
function grow(line,    name) {
    if (match(line, /^struct [a-z0-9_]+ \{$/)) {
        split(line, part, " ")
        growing = part[2]
        can_grow = growing == "hsdp_segment"
    } else if (line ~ /^    size_t struct_size;/) {
        can_grow = 1
    } else if (line == "};" && growing != "") {
        if (can_grow && growing ~ /(_ops|^hsdp_api)$/) {
            print "    int32_t (*later)(uint64_t *ret_value, struct hsdp_error *reterr);"
        } else if (can_grow) {
            print "    uint64_t later;"
        }
        growing = ""
    } else if (line ~ /^#define HSDP_ABI_MINOR /) {
        split(line, part, " ")
        line = "#define HSDP_ABI_MINOR " (part[3] + 1) "u"
    }
    print line
}

FNR == 1 {
    header = FILENAME
    sub(/^.*\/hsdp\//, "hsdp/", header)
    if (mode == "list") {
        print header, "header"
    }
}

mode == "grow" {
    grow($0)
    next
}

{
    line = uncommented($0)
    is_continued = sub(/\\$/, "", line)
    held = squeezed(held " " line)
    if (held == "" || is_continued) {
        next
    }
    if (held ~ /^#/) {
        directive(held)
    } else if (in_cxx) {
        pass(held)
    } else if (held ~ /[;{}]$/) {
        statement(held)
    } else {
        next
    }
    held = ""
}

END {
    exit is_wrong
}
