# SPDX-License-Identifier: Apache-2.0
# The work of check-includes: finds which module each included file belongs to.

BEGIN {
    # module -> what it may include beside itself
    allowed["include"] = " "
    allowed["plugin/base"] = " include "
    allowed["plugin/plan"] = " include plugin/base "
    allowed["plugin/device"] = " include plugin/base "
    allowed["plugin/net"] = " include plugin/base "
    allowed["plugin/comm"] = " include plugin/base plugin/net plugin/plan plugin/device "
    allowed["plugin/shard"] = " include plugin/base plugin/plan plugin/device plugin/comm "
    allowed["abi/export"] = allowed["plugin/shard"] "plugin/shard "
    allowed["abi/loader"] = " include "
    allowed["abi/baseline"] = " include "
    allowed["tools"] = " include "
    allowed["examples"] = " include "

    # headers of the system: what the public headers may include, what pure arithmetic may not, and
    # where a vendor's header may be named at all
    public_system = "^(stddef|stdint)[.]h$"
    impure_system = "^(dlfcn|fcntl|poll|pthread|semaphore|signal|threads|unistd|(sys|linux|net|netinet|arpa)/.*)[.]h$"
    vendor = "^(cuda|nccl|mpi|dlpack|hip|rccl|nv[mt])"
    vendor_modules = " plugin/device plugin/comm tests bench "

    n_roots = split("include plugin abi tools/conform tools/conform/training tests .", roots, " ")
}

# tools/run is one module, so is examples/gpt; the rules know them by their first folder.
function module_of(path,    part) {
    split(path, part, "/")
    if (part[1] == "include" || part[1] == "tests" || part[1] == "bench") {
        return part[1]
    }
    return part[1] "/" part[2]
}

function rules_of(module) {
    return (module in allowed) ? module : substr(module, 1, index(module, "/") - 1)
}

function exists(path,    line, status) {
    status = (getline line < path)
    close(path)
    return status >= 0
}

function normal(path) {
    while (sub(/[^\/]+\/\.\.\//, "", path) || sub(/(^|\/)\.\//, "", path)) {
    }
    return path
}

function find(name, is_quoted,    folder, i) {
    folder = FILENAME
    sub(/\/[^\/]*$/, "/", folder)
    if (is_quoted && exists(folder name)) {
        return normal(folder name)
    }
    for (i = 1; i <= n_roots; i++) {
        if (exists(roots[i] "/" name)) {
            return normal(roots[i] "/" name)
        }
    }
    return ""
}

function complain(text) {
    print FILENAME ":" FNR ": " text
    n_complaints++
}

function system_check(from, name) {
    if (from == "include" && name !~ public_system) {
        complain("a public header includes <" name ">; only stddef.h and stdint.h are allowed")
    } else if (tolower(name) ~ vendor && index(vendor_modules, " " from " ") == 0) {
        complain("<" name "> is a vendor's header; " from " may not include it")
    } else if (from == "plugin/plan" && name ~ impure_system) {
        complain("plugin/plan is arithmetic without input or output; it may not include <" name ">")
    }
}

function own_check(from, path,    to) {
    to = module_of(path)
    if (path ~ /[.]c$/ && from != "tests" && FILENAME !~ /[.]cu$/) { # devices get what the host has
        complain("includes a source file, " path)
    } else if (from == to || from == "tests" || from == "bench") {
        return
    } else if (index(allowed[rules_of(from)], " " to " ") == 0) {
        complain(from " may not include " to " (" path ")")
    }
}

/^[ \t]*#[ \t]*include[ \t]*["<]/ {
    name = $0
    sub(/^[^"<]*/, "", name)
    is_quoted = substr(name, 1, 1) == "\""
    name = substr(name, 2)
    sub(/[">].*/, "", name)
    from = module_of(FILENAME)
    path = find(name, is_quoted)
    if (path != "") {
        own_check(from, path)
    } else if (is_quoted) {
        complain("\"" name "\" is no file of this tree")
    } else {
        system_check(from, name)
    }
}

END {
    exit (n_complaints > 0)
}
