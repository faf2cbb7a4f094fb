#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Feeds each check of scripts/ a tree it must refuse, and one it must accept.
set -u

here=$(cd "$(dirname "$0")" && pwd)
scripts=$here/../scripts
# shellcheck source=tests/tap.sh
. "$here/tap.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT INT TERM
tree=$scratch/tree
output=$scratch/output

# tree_fresh: a small tree that every check accepts.
tree_fresh() {
    rm -rf "$tree"
    mkdir -p "$tree/include/hsdp" "$tree/abi/export" "$tree/abi/loader" "$tree/plugin/base" \
        "$tree/plugin/plan" "$tree/plugin/device" "$tree/plugin/comm" "$tree/plugin/shard" \
        "$tree/tests" "$tree/scripts" "$tree/tools/run"
    echo '# SPDX-License-Identifier: Apache-2.0' >"$tree/scripts/length-exceptions"
    write include/hsdp/thing.h <<'TEXT'
#ifndef HSDP_THING_H
#define HSDP_THING_H

#include <stddef.h>
#include <stdint.h>

struct hsdp_thing_spec {
    size_t struct_size; /* sizeof(struct hsdp_thing_spec) */
    uint64_t n_things;
};

#ifdef __cplusplus
template <class T> inline T hsdp_init_()
{
    T t = T();
    t.struct_size = sizeof(T);
    return t;
}
#define HSDP_INIT_(T) hsdp_init_<struct T>()
#else
#define HSDP_INIT_(T)                                                                              \
    {                                                                                              \
        .struct_size = sizeof(struct T)                                                            \
    }
#endif
#define HSDP_THING_SPEC_INIT HSDP_INIT_(hsdp_thing_spec)

#endif /* HSDP_THING_H */
TEXT
    write plugin/base/error.h <<'TEXT'
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

int error_set(int status);

#endif /* BASE_ERROR_H */
TEXT
    write plugin/base/error.c <<'TEXT'
#include "base/error.h"

#include "hsdp/thing.h"

int error_set(int status)
{
    if (status > 0) {
        return 0;
    }
    return status;
}
TEXT
    for module in plan device comm shard; do
        echo "int ${module}_count(void);" | write plugin/$module/$module.h
    done
}

# write FILE: the licence, a sentence, and what comes on standard input.
write() {
    {
        echo '/* SPDX-License-Identifier: Apache-2.0 */'
        echo '/* A file of the tree that the checks are tried on. */'
        cat
    } >"$tree/$1"
}

accepts() {
    name=$1
    shift
    "$@" >"$output" 2>&1
    accepts_status=$?
    if [ $accepts_status -eq 77 ]; then
        tap_skip "$name" "$(cat "$output")"
        return
    fi
    tap_report $accepts_status "$name" "$output"
}

# refuses NAME PATTERN COMMAND...: status 1, and a line that names the offender.
refuses() {
    name=$1
    pattern=$2
    shift 2
    "$@" >"$output" 2>&1
    refuses_status=$?
    if [ $refuses_status -eq 77 ]; then
        tap_skip "$name" "$(cat "$output")"
        return
    fi
    [ $refuses_status -eq 1 ] && grep -q -- "$pattern" "$output"
    tap_report $? "$name" "$output"
}

# cannot_look NAME COMMAND...: status 2, neither accepted nor refused.
cannot_look() {
    name=$1
    shift
    "$@" >"$output" 2>&1
    [ $? -eq 2 ]
    tap_report $? "$name" "$output"
}

# lines N TEXT: the text N times.
lines() {
    awk -v n="$1" -v text="$2" 'BEGIN { for (i = 0; i < n; i++) print text }'
}

# ------------------------------------------------------------------------------------- includes

check=$scripts/check-includes

# includes_refused FROM WHAT PATTERN
includes_refused() {
    tree_fresh
    echo "#include $2" | write "$1"
    refuses "includes: $1 may not include $2" "$3" "$check" "$tree"
}

# includes_accepted FROM WHAT
includes_accepted() {
    tree_fresh
    echo "#include $2" | write "$1"
    accepts "includes: $1 may include $2" "$check" "$tree"
}

tree_fresh
accepts "includes: a tree that goes down is accepted" "$check" "$tree"
includes_accepted plugin/shard/x.c '"comm/comm.h"'
includes_accepted plugin/shard/x.c '"plan/plan.h"'
includes_accepted plugin/comm/x.c '"device/device.h"'
includes_accepted plugin/plan/x.c '"base/error.h"'
includes_accepted abi/export/x.c '"shard/shard.h"'
includes_accepted tools/run/x.c '<hsdp/thing.h>'
includes_accepted plugin/comm/x.c '<nccl.h>'
includes_accepted plugin/device/x.cu '"base/error.c"'
includes_refused plugin/base/x.c '"plan/plan.h"' 'plugin/base may not include plugin/plan'
includes_refused plugin/plan/x.c '"device/device.h"' 'plugin/plan may not include plugin/device'
includes_refused plugin/plan/x.c '"../comm/comm.h"' 'plugin/plan may not include plugin/comm'
includes_refused plugin/device/x.c '"plan/plan.h"' 'plugin/device may not include plugin/plan'
includes_refused plugin/comm/x.c '"shard/shard.h"' 'plugin/comm may not include plugin/shard'
includes_refused plugin/shard/x.c '"tests/t.h"' 'no file of this tree'
includes_refused abi/loader/x.c '"base/error.h"' 'abi/loader may not include plugin/base'
includes_refused tools/run/x.c '"base/error.h"' 'tools/run may not include plugin/base'
includes_refused include/hsdp/x.h '<stdio.h>' 'only stddef.h and stdint.h'
includes_refused include/hsdp/x.h '"base/error.h"' 'include may not include plugin/base'
includes_refused include/hsdp/x.h '<dlpack/dlpack.h>' 'only stddef.h and stdint.h'
includes_refused plugin/shard/x.c '<nccl.h>' 'vendor'
includes_refused plugin/plan/x.c '<sys/socket.h>' 'without input or output'
includes_refused plugin/base/x.c '"base/error.c"' 'includes a source file'
tree_fresh
echo 'int t;' | write tests/t.h
echo '#include "tests/t.h"' | write plugin/shard/x.c
refuses "includes: the engine may not include a test" "may not include tests" "$check" "$tree"
cannot_look "includes: a folder that is missing is an error" "$check" "$scratch/nowhere"
mkdir "$scratch/empty"
cannot_look "includes: a folder without code is an error" "$check" "$scratch/empty"

# --------------------------------------------------------------------------------------- length

check=$scripts/check-length

# function_of N-LINES: a function whose braces and body take so many lines.
function_of() {
    echo 'int long_one(int x)'
    echo '{'
    lines $(($1 - 3)) '    x++;'
    echo '    return x;'
    echo '}'
}

tree_fresh
function_of 60 | write plugin/base/x.c
accepts "length: a function of 60 lines is accepted" "$check" "$tree"
function_of 61 | write plugin/base/x.c
refuses "length: a function of 61 lines is refused" 'x.c:long_one: 61 lines' "$check" "$tree"
echo 'function plugin/base/x.c:long_one one switch over all operations' >>"$tree/scripts/length-exceptions"
accepts "length: an exception with a reason forgives" "$check" "$tree"
function_of 10 | write plugin/base/x.c
refuses "length: an exception that is not needed is refused" 'no longer needed' "$check" "$tree"
tree_fresh
function_of 61 | write plugin/base/x.c
echo 'function plugin/base/x.c:long_one' >>"$tree/scripts/length-exceptions"
refuses "length: an exception without a reason is refused" 'a reason' "$check" "$tree"

tree_fresh
lines 598 'extern int x;' | write plugin/base/x.c
accepts "length: a file of 600 lines is accepted" "$check" "$tree"
lines 599 'extern int x;' | write plugin/base/x.c
refuses "length: a file of 601 lines is refused" 'x.c: 601 lines' "$check" "$tree"

tree_fresh
write plugin/base/x.c <<'TEXT'
static int count(int a, int (*b)(int, int), int c, int d, int e,
                 int f)
{
    return a;
}
TEXT
accepts "length: six parameters are accepted" "$check" "$tree"
write plugin/base/x.c <<'TEXT'
static int count(int a, int (*b)(int, int), int c, int d, int e,
                 int f, int g)
{
    return a;
}
TEXT
refuses "length: seven parameters are refused" 'x.c:count: 7 parameters' "$check" "$tree"

# nested N: a function with N levels of if.
nested() {
    echo 'int deep(int x)'
    echo '{'
    lines "$1" 'if (x) {'
    echo 'struct { int a; } s = { 1 };'
    lines "$1" '}'
    echo 'return x;'
    echo '}'
}

tree_fresh
nested 3 | write plugin/base/x.c
accepts "length: three levels of nesting are accepted" "$check" "$tree"
nested 4 | write plugin/base/x.c
refuses "length: four levels of nesting are refused" 'x.c:deep: 4 levels' "$check" "$tree"
write plugin/base/x.c <<'TEXT'
START_TEST(name_condition_result)
{
    for (;;) {
        do {
            switch (1) {
            default:
                while (1) {
                }
            }
        } while (0);
    }
}
TEXT
refuses "length: loops and switches nest as well" 'name_condition_result: 4 levels' "$check" "$tree"

# --------------------------------------------------------------------------------------- braces

check=$scripts/check-braces

# body TEXT...: a function of these lines.
body() {
    echo 'int body(int x)'
    echo '{'
    printf '%s\n' "$@"
    echo '}'
}

tree_fresh
body '    do {' '        x--;' '    } while (x > 0);' '    if (x &&' '        x < 3) {' '        x = 1;' \
    '    } else if (x) { /* why */' '        x = 2;' '    } else {' '        x = 3;' '    }' '    return x;' |
    write plugin/base/x.c
accepts "braces: all forms with braces are accepted" "$check" "$tree"
body '    if (x)' '        x = 1;' | write plugin/base/x.c
refuses "braces: an if without them is refused" 'x.c:5' "$check" "$tree"
body '    if (x &&' '        x < 3)' '        x = 1;' | write plugin/base/x.c
refuses "braces: an if over two lines without them is refused" 'x.c:5' "$check" "$tree"
body '    if (x) {' '        x = 1;' '    } else' '        x = 2;' | write plugin/base/x.c
refuses "braces: an else without them is refused" 'x.c:7' "$check" "$tree"
body '    for (; x < 3; x++)' '        ;' | write plugin/base/x.c
refuses "braces: a for without them is refused" 'x.c:5' "$check" "$tree"
body '    while (x--);' | write plugin/base/x.c
refuses "braces: a while without them is refused" 'x.c:5' "$check" "$tree"

# --------------------------------------------------------------------------------------- format

check=$scripts/check-format
tree_fresh
accepts "format: formatted code is accepted" "$check" "$tree"
body '    return   x;' | write plugin/base/x.c
refuses "format: an extra space is refused" 'x.c:5' "$check" "$tree"

# -------------------------------------------------------------------------------------- headers

check=$scripts/check-headers
tree_fresh
accepts "headers: clean headers are accepted" "$check" "$tree"
echo 'size_t no_include(void);' | write include/hsdp/x.h
refuses "headers: one that does not compile alone is refused" 'include/hsdp/x.h' "$check" "$tree"
echo 'struct hsdp_p { char a; int b; };' | write include/hsdp/x.h
refuses "headers: implicit padding is refused" 'include/hsdp/x.h' "$check" "$tree"
echo 'int new(int class);' | write include/hsdp/x.h
refuses "headers: a word of C++ is refused" 'c++17 refuses it' "$check" "$tree"
echo 'static inline int f(void) { return ({ 1; }); }' | write include/hsdp/x.h
refuses "headers: an extension of the compiler is refused" 'c99 refuses it' "$check" "$tree"
write include/hsdp/x.h <<'TEXT'
#include <stddef.h>
struct hsdp_x_spec {
    size_t struct_size; /* sizeof(struct hsdp_x_spec) */
};
TEXT
refuses "headers: a spec without an initializer is refused" 'has no HSDP_X_SPEC_INIT' "$check" "$tree"
echo '#define HSDP_X_SPEC_INIT {0, 0}' >>"$tree/include/hsdp/x.h"
refuses "headers: an initializer that does not fit is refused" 'include/hsdp/x.h' "$check" "$tree"
tree_fresh
write include/hsdp/x.h <<'TEXT'
#include <stddef.h>
#define HSDP_X_SIZE 7u
#define HSDP_HAS(table, entry) ((table)->struct_size > offsetof(struct hsdp_x_ops, entry))
struct hsdp_x_ops {
    size_t struct_size;
    int (*create)(int size);
};
TEXT
accepts "headers: a table and a number that can be used are accepted" "$check" "$tree"
sed -i 's/->struct_size >/->n_bytes >/' "$tree/include/hsdp/x.h"
refuses "headers: HSDP_HAS that does not fit a table is refused" 'include/hsdp/x.h' "$check" "$tree"
echo '#define HSDP_X_NAME name_of(x' | write include/hsdp/x.h
refuses "headers: a macro that is no value is refused" 'include/hsdp/x.h' "$check" "$tree"
echo '#define HSDP_X_SIZE 7(int)' | write include/hsdp/x.h
refuses "headers: a number that #if cannot use is refused" 'include/hsdp/x.h' "$check" "$tree"
tree_fresh
rm "$tree"/include/hsdp/*
cannot_look "headers: a tree without headers is an error" "$check" "$tree"
tree_fresh
cannot_look "headers: no compiler is an error" env HSDP_C_COMPILERS= "$check" "$tree"

# --------------------------------------------------------------------------------------- layout

# tree_layout: a tree whose header and frozen layout fit together.
tree_layout() {
    tree_fresh
    write include/hsdp/thing.h <<'TEXT'
#include <stddef.h>
#include <stdint.h>
#define HSDP_THINGS_MAX 16u /* of one box */
struct hsdp_thing {
    size_t struct_size;
    void (*use)(void *user,
                int n_times);
    char name[8];
};
struct hsdp_still {
    uint64_t value;
};
TEXT
    echo '#define LAYOUT_THING_1_0 24u' | write abi/export/layout.h
    mkdir -p "$tree/docs"
    printf '%s\n' '| other |' '|---|' '| `hsdp_other` | 7 |' '' '| struct | 1.0 | 1.1 |' '|---|---|---|' \
        '| `hsdp_thing` | 24 | |' '| `hsdp_still` | 8 | |' >"$tree/docs/abi.md"
    write abi/export/layout.c <<'TEXT'
#include "layout.h"
#include "hsdp/thing.h"
#define ENDS(name, field, n_bytes)                                                                 \
    _Static_assert(offsetof(struct name, field) + sizeof(((struct name *)0)->field) == (n_bytes),  \
                   #name " has another size")
#define SIZE(name, n_bytes) _Static_assert(sizeof(struct name) == (n_bytes), #name " has grown")
#define FIELD(name, field, offset, n_bytes)                                                        \
    _Static_assert(offsetof(struct name, field) == (offset) &&                                     \
                       sizeof(((struct name *)0)->field) == (n_bytes),                             \
                   #field " has moved")
#define VALUE(macro, value) _Static_assert((macro) == (value), #macro " has another value")
FIELD(hsdp_thing, struct_size, 0, 8);
FIELD(hsdp_thing, use, 8, 8);
FIELD(hsdp_thing, name, 16, 8);
ENDS(hsdp_thing, name, LAYOUT_THING_1_0);
FIELD(hsdp_still, value, 0, 8);
SIZE(hsdp_still, 8);
VALUE(HSDP_THINGS_MAX, 16u);
TEXT
}

# tree_edit FILE EXPRESSION: a fresh such tree, with one difference.
tree_edit() {
    tree_layout
    sed -i "$2" "$tree/$1"
}

check=$scripts/check-layout
tree_layout
"$check" "$tree" >"$output" 2>&1
layout_status=$?
if [ $layout_status -eq 77 ]; then
    tap_skip "layout: what it refuses" "$(cat "$output")"
else
    tap_report $layout_status "layout: one that holds is accepted" "$output"
    tree_edit include/hsdp/thing.h 's/size_t struct_size;/int struct_size, n;/'
    refuses "layout: another size on x86-64 is refused" 'does not hold on x86_64' "$check" "$tree"
    refuses "layout: and on aarch64" 'does not hold on aarch64' "$check" "$tree"
    tree_edit include/hsdp/thing.h 's/char name.8.;/long double name; char n[8];/'
    refuses "layout: a type that machines have in other ways is refused" 'does not hold on' \
        "$check" "$tree"
    tree_edit include/hsdp/thing.h 's/char name/wchar_t wide[2]; char name/'
    refuses "layout: a field in the middle is refused" 'name has moved' "$check" "$tree"
    tree_edit abi/export/layout.c '/use, 8/d'
    refuses "layout: a function that it misses is refused" 'no FIELD(hsdp_thing, use,' \
        "$check" "$tree"
    tree_edit abi/export/layout.c '/name, 16/d'
    refuses "layout: a field that it misses is refused" 'no FIELD(hsdp_thing, name,' \
        "$check" "$tree"
    tree_edit abi/export/layout.c '/^VALUE/d'
    refuses "layout: a number that it misses is refused" 'no VALUE(HSDP_THINGS_MAX,' \
        "$check" "$tree"
    tree_edit include/hsdp/thing.h 's/16u/17u/'
    refuses "layout: another number is refused" 'has another value' "$check" "$tree"
    tree_layout
    rm "$tree"/include/hsdp/*
    : >"$tree/abi/export/layout.c"
    : >"$tree/docs/abi.md"
    cannot_look "layout: a tree without structs is an error" "$check" "$tree"
    rm "$tree/abi/export/layout.c"
    cannot_look "layout: a tree without a layout is an error" "$check" "$tree"
fi
tree_edit docs/abi.md 's/24/25/'
refuses "layout: a size that is told wrong is refused" 'tells that hsdp_thing of 1.0 has 25 bytes' "$check" "$tree"
tree_edit docs/abi.md '/still/d'
refuses "layout: a size that is not told is refused" 'not tell that hsdp_still of 1.0 has 8 bytes' "$check" "$tree"
tree_edit docs/abi.md 's/24 | |/24 | 32 |/'
refuses "layout: a size of no release is refused" 'tells that hsdp_thing of 1.1 has 32 bytes' "$check" "$tree"
printf '%s\n' '#define LAYOUT_THING_1_1 32u' >>"$tree/abi/export/layout.h"
echo 'ENDS(hsdp_thing, more, LAYOUT_THING_1_1);' >>"$tree/abi/export/layout.c"
HSDP_LAYOUT_COMPILER=/nonexistent "$check" "$tree" >"$output" 2>&1
[ $? -eq 77 ]
tap_report $? "layout: the sizes of two releases are told" "$output"
tree_layout
rm "$tree/docs/abi.md"
cannot_look "layout: a tree without a table of sizes is an error" "$check" "$tree"
tree_layout
HSDP_LAYOUT_COMPILER=/nonexistent "$check" "$tree" >"$output" 2>&1
[ $? -eq 77 ]
tap_report $? "layout: no compiler that knows both machines is told" "$output"

# -------------------------------------------------------------------------------- paths, licences

check=$scripts/check-paths
tree_fresh
accepts "paths: a tree without them is accepted" "$check" "$tree"
printf 'AM_CFLAGS = -I/%s/someone/include\n' home >"$tree/plugin/Makefile.am"
refuses "paths: somebody's home is refused" 'plugin/Makefile.am:1' "$check" "$tree"

check=$scripts/check-licenses
tree_fresh
accepts "licenses: a tree that has them is accepted" "$check" "$tree"
printf '/* A file without a licence. */\nint x;\n' >"$tree/plugin/base/x.c"
refuses "licenses: a source without one is refused" 'x.c:1' "$check" "$tree"
printf '/* SPDX-License-Identifier: Apache-2.0 */\nint x;\n' >"$tree/plugin/base/x.c"
refuses "licenses: a source that does not say what it is is refused" 'x.c:2' "$check" "$tree"
tree_fresh
echo 'SUBDIRS = base' >"$tree/plugin/Makefile.am"
refuses "licenses: a makefile without one is refused" 'plugin/Makefile.am' "$check" "$tree"

# -------------------------------------------------------------------------------------- clauses

# tree_numbers: a tree whose numbers, cases and mutants fit together.
tree_numbers() {
    tree_fresh
    mkdir -p "$tree/docs" "$tree/tests/cases" "$tree/tests/mutants"
    echo 'START_TEST(sum_of_two_is_their_sum)' >"$tree/tests/check_sum.c"
    : >"$tree/tests/mutants/sum-is-off.patch"
    printf '|---|\n| 1.1 | It adds. | `sum_of_two_is_their_sum`; `sum-is-off` |\n' >"$tree/docs/numbers.md"
    printf '|---|\n| A1 | a report | 1 and 2 | `sum_of_two_is_their_sum` |\n' >"$tree/tests/cases/README.md"
}

check=$scripts/check-clauses
tree_numbers
accepts "clauses: tests and mutants that exist are accepted" "$check" "$tree"
echo '| 1.2 | It subtracts. | `difference_is_right` |' >>"$tree/docs/numbers.md"
refuses "clauses: a test that does not exist is refused" '1.2 names difference_is_right' "$check" "$tree"
tree_numbers
echo '| 1.2 | It subtracts. |  |' >>"$tree/docs/numbers.md"
refuses "clauses: a clause without a test is refused" '1.2 names no test' "$check" "$tree"
tree_numbers
: >"$tree/tests/mutants/other.patch"
refuses "clauses: a mutant of no clause is refused" 'other.patch' "$check" "$tree"
tree_numbers
echo '| A2 | a report | 1 and 1 | `sum_of_equals` |' >>"$tree/tests/cases/README.md"
refuses "clauses: a case without its test is refused" 'A2 names sum_of_equals' "$check" "$tree"
tree_numbers
printf '\n| 1.2 | It adds. | `sum_of_two_is_their_sum` |\n' >>"$tree/docs/numbers.md"
refuses "clauses: a row cut off from its table is refused" '1.2 stands outside' "$check" "$tree"
tree_numbers
: >"$tree/docs/numbers.md"
refuses "clauses: a document without rows is refused" 'holds no rows' "$check" "$tree"

# -------------------------------------------------------------------------------------- mutants

check=$scripts/check-mutants
MUTANTS_DRY=1
export MUTANTS_DRY
accepts "mutants: each still applies to the tree" "$check" "$here/.." "$scratch/mutants"
tree_fresh
mkdir -p "$tree/tests/mutants"
cannot_look "mutants: a tree without any is told" "$check" "$tree" "$scratch/m1"
printf 'Suites: check_x\n\n--- a/README.md\n+++ b/README.md\n@@ -1 +1 @@\n-one\n+two\n' \
    >"$tree/tests/mutants/two.patch"
echo three >"$tree/README.md"
refuses "mutants: one that no longer applies is refused" 'does not apply' "$check" "$tree" "$scratch/m2"
echo one >"$tree/README.md"
accepts "mutants: one that applies is accepted" "$check" "$tree" "$scratch/m3"
sed -i '/^Suites/d' "$tree/tests/mutants/two.patch"
refuses "mutants: one without suites is refused" 'names no suites' "$check" "$tree" "$scratch/m4"
unset MUTANTS_DRY

# -------------------------------------------------------------------------------------- exports

check=$scripts/check-exports

# object NAME TEXT OPTION...: compiles a shared object or an archive member.
object() {
    echo "$2" >"$scratch/$1.c"
    object_name=$1
    shift 2
    ${CC:-cc} -fPIC "$@" -o "$scratch/$object_name" "$scratch/$object_name.c"
}

# program NAME TEXT
program() {
    echo "$2" >"$scratch/$1.c"
    ${CC:-cc} -O0 -o "$scratch/$1" "$scratch/$1.c"
}

entry='int hsdp_plugin_v1(void); int hsdp_plugin_v1(void) { return 0; }'
object good.so "$entry" -shared -nostdlib
object extra.so "$entry int leaked; " -shared -nostdlib
object none.so "static int x; int *p(void); __attribute__((visibility(\"hidden\"))) int *p(void) { return &x; }" \
    -shared -nostdlib
object good.o 'int hsdp_load(void); int hsdp_load(void) { return 0; }' -c
object extra.o 'int load(void); int load(void) { return 0; }' -c
ar cr "$scratch/good.a" "$scratch/good.o"
ar cr "$scratch/extra.a" "$scratch/good.o" "$scratch/extra.o"
accepts "exports: the entry alone is accepted" "$check" "$scratch/good.so" "$scratch/good.a"
refuses "exports: one symbol more is refused" 'leaked' "$check" "$scratch/extra.so"
refuses "exports: no symbol is refused" 'nothing' "$check" "$scratch/none.so"
refuses "exports: a loader with a foreign name is refused" 'defines load' \
    "$check" "$scratch/good.so" "$scratch/extra.a"
echo text >"$scratch/text.so"
cannot_look "exports: a file that is no object is an error" "$check" "$scratch/text.so"
cannot_look "exports: a file that is missing is an error" "$check" "$scratch/missing.so"

# ------------------------------------------------------------------------------------- valgrind

check=$scripts/check-valgrind
program clean 'int main(void) { return 0; }'
program leaks '#include <stdlib.h>
int main(void) { char *volatile p = malloc(8); p = 0; return p != 0; }'
program reads '#include <stdlib.h>
int main(void) { int *p = malloc(4); int n = 0; if (*p > 0) { n++; } free(p); return n > 1; }'
program fails 'int main(void) { return 3; }'
program hangs '#include <unistd.h>
int main(void) { return pause() + 1; }'
program child_leaks '#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
    int status = 0;
    if (fork() == 0) { char *volatile p = malloc(8); p = 0; exit(p != 0); }
    wait(&status);
    return status != 0;
}'
if command -v valgrind >/dev/null; then
    accepts "valgrind: a clean program is accepted" "$check" "$scratch/clean"
    refuses "valgrind: a leak is refused" 'leaks; see' "$check" "$scratch/clean" "$scratch/leaks"
    refuses "valgrind: a branch on what was never set is refused" 'reads; see' "$check" "$scratch/reads"
    refuses "valgrind: a leak in a forked case is refused" 'child_leaks; see' "$check" "$scratch/child_leaks"
    refuses "valgrind: a program that fails is refused" 'fails; see' "$check" "$scratch/fails"
    refuses "valgrind: a program that hangs is refused" 'hangs; see' \
        env HSDP_VALGRIND_SECONDS=2 "$check" "$scratch/hangs"
    cannot_look "valgrind: a program that is missing is an error" "$check" "$scratch/missing"
else
    tap_skip "valgrind: what it refuses" "valgrind is not installed"
fi

# -------------------------------------------------------------------------------------- variant

# variant STATUS-OF-CHECK STATUS-OF-SUMMARY: check-variant in a tree whose make answers so.
variant() {
    rm -rf "$scratch/variant" "$tree"
    mkdir -p "$tree/scripts"
    cp "$scripts/check-variant" "$tree/scripts"
    printf '%s\n' '#!/bin/sh' "mkdir tests" ": >config.status" "[ \"\$*\" != '--quiet --bad' ] || exit 1" \
        "printf 'check:\n\texit $1\n' >Makefile" \
        "printf 'summary:\n\t@echo 1 passed, 0 failed; exit $2\n' >tests/Makefile" >"$tree/configure"
    chmod +x "$tree/configure"
    (unset MAKEFLAGS MFLAGS && "$tree/scripts/check-variant" "$scratch/variant" "$3")
}

accepts "variant: a suite that passes is accepted" variant 0 0 --good
refuses "variant: a suite that fails is refused" '1 passed' variant 1 0 --good
refuses "variant: a closing line with failures is refused" '1 passed' variant 0 1 --good
variant 0 0 --bad >"$output" 2>&1
[ $? -eq 1 ] && ! grep -q passed "$output"
tap_report $? "variant: options that configure refuses are an error" "$output"
cannot_look "variant: no option is an error" "$scripts/check-variant" "$scratch/variant"

# -------------------------------------------------------------------------------------- summary

check=$scripts/test-summary

# run_of NAME RESULT LINE...: what a program leaves behind.
run_of() {
    printf ':test-result: %s\n:global-test-result: %s\n' "$2" "$2" >"$scratch/$1.trs"
    run_log=$scratch/$1.log
    shift 2
    printf '%s\n' "$@" >"$run_log"
}

# summarises NAME STATUS CLOSING-LINE LOG...
summarises() {
    name=$1
    wanted_status=$2
    wanted=$3
    shift 3
    "$check" "$@" >"$output" 2>&1
    [ $? -eq "$wanted_status" ] && [ "$(tail -n 1 "$output")" = "$wanted" ]
    tap_report $? "summary: $name" "$output"
}

run_of good PASS 'Running suite(s): good' '100%: Checks: 12, Failures: 0, Errors: 0'
run_of bad FAIL '75%: Checks: 12, Failures: 1, Errors: 2'
run_of crashed FAIL 'Segmentation fault'
run_of empty PASS 'Running suite(s): empty' '100%: Checks: 0, Failures: 0, Errors: 0'
run_of late FAIL '100%: Checks: 3, Failures: 0, Errors: 0'
run_of absent SKIP 'no such device here'
run_of tap PASS 'ok 1 - a' 'ok 2 - b # SKIP why' '1..2'
printf ':test-result: %s\n' PASS SKIP >"$scratch/tap.trs"
run_of died ERROR 'ok 1 - a'
printf ':test-result: %s\n' PASS ERROR >"$scratch/died.trs"
run_of refused FAIL 'not ok 1 - a' 'not ok 2 - b' '1..2'
printf ':test-result: %s\n' FAIL FAIL >"$scratch/refused.trs"
summarises "cases that pass are counted" 0 '12 passed, 0 failed' "$scratch/good.log"
summarises "cases that fail are counted" 1 '21 passed, 3 failed' "$scratch/good.log" "$scratch/bad.log"
summarises "a program that crashed has failed" 1 '12 passed, 1 failed' \
    "$scratch/good.log" "$scratch/crashed.log"
summarises "a program that ran no case has failed" 1 '12 passed, 1 failed' \
    "$scratch/good.log" "$scratch/empty.log"
summarises "a failure after the last case is one" 1 '3 passed, 1 failed' "$scratch/late.log"
summarises "a program without a result has failed" 1 '12 passed, 1 failed' \
    "$scratch/good.log" "$scratch/never_ran.log"
summarises "a skipped program is counted apart" 0 '12 passed, 0 failed, 1 skipped' \
    "$scratch/good.log" "$scratch/absent.log"
summarises "shell cases are counted one by one" 0 '13 passed, 0 failed, 1 skipped' \
    "$scratch/good.log" "$scratch/tap.log"
summarises "a shell test that died has failed" 1 '1 passed, 1 failed' "$scratch/died.log"
summarises "shell cases that fail are counted" 1 '12 passed, 2 failed' \
    "$scratch/good.log" "$scratch/refused.log"
summarises "nothing at all is a failure" 1 '0 passed, 0 failed'
summarises "only skipped cases are a failure" 1 '0 passed, 0 failed, 1 skipped' "$scratch/absent.log"

# ------------------------------------------------------------------------------ coverage-report

# covered FILE PERCENT LINES...: what a stand-in for gcov tells of files that were compiled.
covered() {
    rm -rf "$scratch/covered"
    mkdir -p "$scratch/covered/plugin" "$scratch/covered/abi" "$scratch/tools"
    : >"$scratch/covered/plugin/all.gcda"
    echo '#!/bin/sh' >"$scratch/tools/gcov"
    while [ $# -gt 0 ]; do
        echo "echo \"File '$1'\"; echo 'Lines executed:$2% of $3'" >>"$scratch/tools/gcov"
        shift 3
    done
    chmod +x "$scratch/tools/gcov"
}

# reports NAME STATUS PATTERN
reports() {
    PATH=$scratch/tools:$PATH "$scripts/coverage-report" "$scratch/covered" >"$output" 2>&1
    [ $? -eq "$2" ] && grep -qE -- "$3" "$output"
    tap_report $? "coverage-report: $1" "$output"
}

covered ../plugin/comm/nccl.c 95.00 100 ../plugin/device/space_cuda.c 85.00 300 ../plugin/plan/plan.c 10.00 900
reports "less of the transport than there has to be" 1 '^ 87[.]50% of +400 lines  the CUDA and NCCL transport$'
reports "says so" 1 '^below the 90% '
covered ../plugin/comm/nccl.c 95.00 300 ../plugin/device/gpu.c 85.00 100 ../plugin/plan/plan.c 10.00 900
reports "enough of it" 0 '^ 92[.]50% of +400 lines  the CUDA and NCCL transport$'
reports "each file has a line" 0 '^ 10[.]00% of +900 lines  plugin/plan/plan[.]c$'
covered ../plugin/device/gpu_kernels_table.c 90.00 10 ../plugin/comm/nccl_engine.c 90.00 10
reports "the least that is enough" 0 '^ 90[.]00% of +20 lines  the CUDA and NCCL transport$'
covered ../plugin/plan/plan.c 100.00 900
reports "none of the transport" 1 '^no file of the CUDA and NCCL transport'

tap_done
