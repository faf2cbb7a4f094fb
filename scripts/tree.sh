# SPDX-License-Identifier: Apache-2.0
# The tree that a check looks at: source it, call tree_open, then list files with the functions.
# shellcheck shell=sh

# tree_open [ROOT]: enters ROOT, by default the tree that holds the scripts.
tree_open() {
    if ! cd "${1:-$here/..}" 2>/dev/null; then
        echo "${0##*/}: ${1-}: no such folder" >&2
        exit 2
    fi
    if [ -z "$(tree_code)" ]; then
        echo "${0##*/}: $(pwd): holds no C file to look at" >&2
        exit 2
    fi
}

# tree_code: every C file and header of ours, sorted, one a line.
tree_code() {
    for tree_folder in include abi plugin tools examples tests bench; do
        if [ -d "$tree_folder" ]; then
            find "$tree_folder" -type f \( -name '*.[ch]' -o -name '*.cu' \)
        fi
    done | sort
}

# tree_text: every text file of ours that is written by hand, sorted, one a line.
tree_text() {
    find . -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.am' -o -name '*.ac' -o -name '*.m4' \
        -o -name '*.md' -o -name '*.sh' -o -name '*.awk' -o -name '*.in' -o -name '*.map' \
        -o -path './scripts/*' -o -path './.ci/*' -o -name quickstart -o -name '*.yaml' \) |
        sed 's,^\./,,' | grep -vE '^(build|build-aux|autom4te\.cache|libhsdp-[^/]*)/' |
        grep -vE '(^|/)(Makefile\.in|aclocal\.m4|m4/(libtool|lt[^/]*)\.m4)$' | sort
}
