# SPDX-License-Identifier: Apache-2.0
# Shows Doxygen our headers as it wants them: they are written for the eyes of who opens them.
#
# Every comment becomes documentation: the first ones of a file are the file's, one behind a member
# or constant is that of what it follows, and of "Errors: ..." the first word becomes a title. Lines
# stay where they are, so that warnings name the right ones.

# Text that is no code example must not look like HTML or a command.
function escape(line) {
    if (line !~ /^ *\* {5}/) {
        gsub(/</, "\\\\<", line)
    }
    return line
}

# "Versions   Fields are ..." and "  units    parameters ..." are items of a list.
function item(line,    word) {
    if (line ~ /^ \* (  )?[A-Za-z]+ ( +[^ ]|")/ && line !~ /^ \* {5}/) {
        word = line
        sub(/^ \* +/, "", word)
        sub(/ .*/, "", word)
        sub(/^ \* +[A-Za-z]+ +/, " * - **" word "** ", line)
    }
    return line
}

# The second line becomes two, so the first is none.
FNR == 1 {
    next
}

FNR == 2 && /^\/\* / {
    sub(/^\/\* /, "/** @file\n")
    is_open = !/\*\//
    print
    next
}

# A block of prose is about the file.
/^\/\*$/ {
    is_open = is_prose = 1
    print "/** @file"
    next
}

/^ *\/\*\*/ || (/^\/\* / && !/^\/\* -/) {
    if (!/^ *\/\*\*/) {
        sub(/\/\* /, "/** ")
    }
    is_open = !/\*\//
    print escape($0)
    next
}

is_open {
    if (is_prose) {
        $0 = item($0)
    }
    if (/^ *\* (Shapes|Units|Ownership|Blocks|Errors|Threads|Since): /) {
        sub(/\* [A-Z][a-z]+:/, "* @hsdpnote{&}")
        sub(/@hsdpnote\{\* /, "@hsdpnote{")
        sub(/:\}/, "}")
    }
    if (/\*\//) {
        is_open = is_prose = 0
    }
    print escape($0)
    next
}

# Behind a member, a constant or the end of a parameter list.
/[;,] +\/\* / || /^#define .* \/\* / {
    $0 = escape($0)
    sub(/\/\* /, "/**< ")
    is_open = !/\*\//
    print
    next
}

{
    print
}
