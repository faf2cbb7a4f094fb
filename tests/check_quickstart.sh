#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The arguments and the package handling of quickstart, with stand-ins for the package tools.
set -u

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/tap.sh
. "$here/tap.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT INT TERM
output=$scratch/output
calls=$scratch/calls
tools=$scratch/tools
cp "$here/../quickstart" "$scratch/quickstart"

# What quickstart needs before packages are there; nothing else of the system is on its path.
tools_fresh() {
    rm -rf "$tools" "$calls"
    mkdir "$tools"
    : >"$calls"
    for tool in bash cat dirname env find grep mkdir nproc tail; do
        ln -s "$(command -v $tool)" "$tools/$tool"
    done
}

# stand_in TOOL LINE...: a shell script in TOOL's place.
stand_in() {
    stand_in_tool=$tools/$1
    shift
    printf '%s\n' "#!$(command -v bash)" "$@" >"$stand_in_tool"
    chmod +x "$stand_in_tool"
}

# ends NAME STATUS PATTERN ARGUMENT...: quickstart ends with STATUS and says PATTERN.
ends() {
    name=$1
    wanted=$2
    pattern=$3
    shift 3
    PATH=$tools "$tools/bash" "$scratch/quickstart" "$@" >"$output" 2>&1
    [ $? -eq "$wanted" ] && grep -qE -- "$pattern" "$output"
    tap_report $? "quickstart: $name" "$output"
}

# called NAME PATTERN: a stand-in wrote such a line.
called() {
    grep -qE -- "$2" "$calls"
    tap_report $? "quickstart: $1" "$calls"
}

tools_fresh
ends "an unknown argument is status 2" 2 '^quickstart: "tset" is not known' tset
ends "no argument is status 2" 2 '^usage: '
ends "two arguments are status 2" 2 '^usage: ' build test
ends "--help is status 0" 0 '^usage: ' --help
[ ! -e "$scratch/build" ]
tap_report $? "quickstart: neither leaves a build folder"

ends "elsewhere than on Debian the packages are named" 1 \
    'install what Debian calls: build-essential autoconf automake libtool .*libyaml-dev libsodium-dev libjansson-dev$' build
ends "the tests want more of them" 1 'libyaml-dev libsodium-dev libjansson-dev abigail-tools check clang clang-format doxygen groff-base iproute2 python3 valgrind$' test

# shellcheck disable=SC2016
stand_in dpkg-query 'case ${!#} in libyaml-dev) exit 1 ;; *) printf installed ;; esac'
stand_in apt-get "echo \"apt-get \$*\" >>'$calls'"
stand_in id 'echo 1000'
ends "without root and sudo a missing package is named" 1 'needs root or sudo to install: libyaml-dev$' build
[ ! -s "$calls" ]
tap_report $? "quickstart: and nothing is installed" "$calls"

# shellcheck disable=SC2016
stand_in sudo "echo 'sudo' >>'$calls'" 'exec "$@"'
stand_in autoreconf "echo autoreconf >>'$calls'" 'echo no such macro' 'exit 1'
ends "a step that fails shows the end of its log" 1 'no such macro' build
called "the lists are updated when a package is missing" '^apt-get update$'
called "only what is missing is installed" '^apt-get install --yes --no-install-recommends libyaml-dev$'
called "sudo is used where the user is not root" '^sudo$'

: >"$calls"
stand_in dpkg-query 'printf installed'
ends "with all packages there it goes on" 1 'failed: generating configure' build
called "to autoreconf" '^autoreconf$'
! grep -q apt-get "$calls"
tap_report $? "quickstart: and never calls apt-get" "$calls"

tap_done
