#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Several hosts: two network namespaces that a cable joins, hsdp-run in each, and what goes wrong.
set -u

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/tap.sh
. "$here/tap.sh"
scratch=$(mktemp -d)
hosts="hsdp-test-$$-0 hsdp-test-$$-1"
host0=${hosts% *}
host1=${hosts#* }
output=$scratch/output
program=$HSDP_TEST_BUILDDIR/hosts_host
slack_ms=4000 # of a busy machine

# Whatever happens: nobody stays in the namespaces, and the namespaces do not stay.
hosts_remove() {
    for host in $hosts; do
        ip netns pids "$host" 2>/dev/null | xargs -r kill -9
        ip netns del "$host" 2>/dev/null
    done
    rm -rf "$scratch"
}

skip_all() {
    tap_skip "hosts" "$1"
    tap_done
    exit
}

# ------------------------------------------------------------------------------------- the hosts

cable_plug() {
    ip -n "$host0" link add cable type veth peer name cable netns "$host1" &&
        ip -n "$host0" addr add 10.77.0.1/24 dev cable &&
        ip -n "$host1" addr add 10.77.0.2/24 dev cable &&
        ip -n "$host0" link set cable up && ip -n "$host1" link set cable up || return 1
    has_v6=yes
    ip -n "$host0" addr add fd77::1/64 dev cable nodad 2>/dev/null &&
        ip -n "$host1" addr add fd77::2/64 dev cable nodad 2>/dev/null || has_v6=no
}

hosts_make() {
    ip netns add "$host0" && ip netns add "$host1" && ip -n "$host0" link set lo up &&
        ip -n "$host1" link set lo up && cable_plug
}

[ "$(id -u)" -eq 0 ] || skip_all "namespaces are root's to make"
command -v ip >/dev/null 2>&1 || skip_all "there is no ip (Debian: iproute2)"
command -v ss >/dev/null 2>&1 || skip_all "there is no ss (Debian: iproute2)"
trap hosts_remove EXIT
trap 'exit 1' HUP INT TERM
hosts_make >"$output" 2>&1 || skip_all "namespaces are not allowed: $(tail -n 1 "$output")"

# host_run NODE COMMAND...: on a host of that name, with /etc/hosts of the test where there is one.
host_run() {
    host_node=$1
    shift
    # shellcheck disable=SC2016
    ip netns exec "hsdp-test-$$-$host_node" unshare --mount --uts sh -c '
        echo "host$1" >/proc/sys/kernel/hostname
        [ ! -e "$2" ] || mount --bind "$2" /etc/hosts || exit 1
        shift 2
        exec "$@"' sh "$host_node" "$scratch/hosts" "$@"
}

# -------------------------------------------------------------------------------------- the runs

now_ms() { date +%s%3N; }

# A case begins: its variables are those that cases change.
fresh() {
    rm -f "$scratch"/ready.* "$scratch/go" "$scratch/abort" "$scratch/hosts" "$scratch"/hsdp-*
    : >"$output"
    address=10.77.0.1
    seconds=20
    silence=1
    token0=$scratch/token
    token1=$scratch/token
    ranks0=2
    ranks1=2
    extra0=HSDP_TEST=0
    extra1=HSDP_TEST=0
    pids=
}

# node_start NODE RANKS TOKEN VARIABLE=VALUE ACTION...
node_start() {
    node=$1
    node_ranks=$2
    node_token=$3
    variable=$4
    shift 4
    host_run "$node" env "$variable" HSDP_PLUGIN="$HSDP_TEST_PLUGIN" HOSTS_FOLDER="$scratch" \
        HSDP_NCCL_TIMEOUT_SECONDS="$seconds" HSDP_PEER_SILENCE_SECONDS="$silence" \
        ${node_token:+"HSDP_TOKEN_FILE=$node_token"} timeout -k 2 40 "$HSDP_RUN" -q --keep-going \
        -n "$node_ranks" --nnodes=2 --node-rank="$node" --master-addr="$address" \
        --master-port=29500 "$program" "$@" >>"$output" 2>&1 &
    pids="$pids $!"
}

# start ACTION...: on both hosts.
start() {
    node_start 0 "$ranks0" "$token0" "$extra0" "$@"
    node_start 1 "$ranks1" "$token1" "$extra1" "$@"
}

# ranks_start NODE FIRST_RANK RANKS ACTION...: of a world of 4, as another launcher starts them.
ranks_start() {
    node=$1
    first=$2
    node_ranks=$3
    shift 3
    for rank in $(seq "$first" $((first + node_ranks - 1))); do
        host_run "$node" env HSDP_PLUGIN="$HSDP_TEST_PLUGIN" HOSTS_FOLDER="$scratch" \
            HSDP_NCCL_TIMEOUT_SECONDS="$seconds" HSDP_TOKEN_FILE="$scratch/token" \
            RANK="$rank" WORLD_SIZE=4 LOCAL_RANK=$((rank - first)) LOCAL_WORLD_SIZE="$node_ranks" \
            GROUP_RANK="$node" MASTER_ADDR="$address" MASTER_PORT=29500 timeout -k 2 40 \
            "$program" "$@" >>"$output" 2>&1 &
        pids="$pids $!"
    done
}

# until_true SECONDS COMMAND...
until_true() {
    tries=$(($1 * 20))
    shift
    until "$@"; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || return 1
        sleep 0.05
    done
}

# says COUNT PATTERN: so many lines.
says() { [ "$(grep -cE -- "$2" "$output")" -eq "$1" ]; }

is_ready() { [ "$(find "$scratch" -name 'ready.*' | wc -l)" -eq 4 ]; }

# ready: all four have connected and said so.
ready() { until_true 15 is_ready; }

rank_kill() { kill "-$1" "$(cat "$scratch/ready.$2")"; }

nobody_is_left() {
    for host in $hosts; do
        [ -z "$(ip netns pids "$host")" ] || return 1
        [ -z "$(ip netns exec "$host" ss -Htan state all exclude time-wait)" ] || return 1
        [ -z "$(ip netns exec "$host" ss -Hxa)" ] || return 1
    done
}

# finish: the ranks end, and leave nothing behind.
finish() {
    touch "$scratch/go"
    for pid in $pids; do
        wait "$pid"
    done
    until_true 10 nobody_is_left && return
    for host in $hosts; do
        echo "left on $host: processes $(ip netns pids "$host" | tr '\n' ' ')"
        ip netns exec "$host" ss -Htanp state all exclude time-wait
        ip netns exec "$host" ss -Hxap
    done >>"$output"
    return 1
}

report() { tap_report "$1" "$2" "$output"; }

"$HSDP_RUN" --make-token="$scratch/token"
"$HSDP_RUN" --make-token="$scratch/other-token"

# ------------------------------------------------------------------------------- what goes well

ends_well() { says 4 ' connect status 0 ' && says 4 ' exchange status 0 ' && says 4 ' close status 0 '; }

for address_now in 10.77.0.1 fd77::1; do
    if [ "$address_now" = fd77::1 ] && [ "$has_v6" = no ]; then
        tap_skip "2 + 2 ranks over IPv6" "there is no IPv6"
        tap_skip "1 + 3 ranks over IPv6" "there is no IPv6"
        continue
    fi
    fresh
    address=$address_now
    start connect exchange=20 close
    finish && ends_well
    report $? "2 + 2 ranks meet at $address, exchange and close"
    fresh
    address=$address_now
    ranks_start 0 0 1 connect exchange=20 close
    ranks_start 1 1 3 connect exchange=20 close
    finish && ends_well
    report $? "1 + 3 ranks meet at $address, exchange and close"
done

fresh
address=root.hsdp.test
printf '127.0.0.1 localhost\n10.77.0.1 root.hsdp.test\n' >"$scratch/hosts"
if host_run 1 getent hosts root.hsdp.test >/dev/null 2>&1; then
    start connect exchange=20 close
    finish && ends_well
    report $? "ranks meet at a host name"
else
    tap_skip "ranks meet at a host name" "/etc/hosts cannot be replaced in a namespace"
fi

fresh
address=192.0.2.1 # nowhere: the store says where
extra0=HOSTS_STORE=1
extra1=HOSTS_STORE=1
start connect exchange=20 close
finish && ends_well
report $? "ranks meet by a key/value store that both hosts see"

fresh
start connect group model exchange=3 close
finish && says 4 ' group status -3 ' && says 4 ' model status -3 ' && ends_well
report $? "moving data is refused on all ranks, and the job goes on"

# strangers: what comes to a port in a network, from the other host; "done" when all has come in.
strangers() {
    # shellcheck disable=SC2016
    host_run 1 timeout 20 bash -c '
        trap "" PIPE # who speaks noise is cut off in the middle of it
        port=/dev/tcp/10.77.0.1/29500
        until : >"$port"; do sleep 0.05; done
        for i in $(seq 40); do : >"$port" || exit 1; done
        exec 4<>"$port" || exit 1 # says nothing
        for i in $(seq 10); do
            exec 3<>"$port" || exit 1
            head -c 5000 /dev/urandom >&3
        done
        exec 3<>"$port" || exit 1
        printf "GET / HTTP/1.1\r\nHost: x\r\n\r\n" >&3
        timeout 5 cat <&3
        echo done' 2>/dev/null
}

is_closed() { ! host_run 1 bash -c ': >/dev/tcp/10.77.0.1/29500' 2>/dev/null; }

fresh
node_start 0 2 "$token0" "$extra0" connect mark=ready exchange=20 await=go exchange close
strangers >"$scratch/strangers"
! is_closed
result=$?
node_start 1 2 "$token1" "$extra1" connect mark=ready exchange=20 await=go exchange close
ready && is_closed && [ "$result" -eq 0 ]
result=$?
finish && says 4 ' connect status 0 ' && says 8 ' exchange status 0 ' && says 4 ' close status 0 ' &&
    grep -qx 'done' "$scratch/strangers" && [ "$result" -eq 0 ]
report $? "who scans the port, speaks HTTP or noise disturbs nobody, and later finds nobody"

# ----------------------------------------------------------------------------- who may not come

fresh
seconds=2
token0=
token1=
start connect
finish && says 2 '^rank [01] connect status -5 .* missing 2 3: .*without a token' &&
    says 2 '^rank [23] connect status -5 .* missing 0: .*token'
report $? "hosts without a token are refused, and both are told why"

fresh
seconds=2
token1=$scratch/other-token
start connect
finish && says 2 '^rank [01] connect status -5 .* missing 2 3: .*with another token' &&
    says 2 '^rank [23] connect status -5 .* missing 0: .*another token'
report $? "a host with another token is turned away, and both are told why"

fresh
ranks1=3
start connect
finish && says 5 ' connect status -7 .*the world has 4 ranks on rank 0, 6 on rank 3'
report $? "worlds of other sizes: all ranks hear both"

fresh
extra1=HSDP_FLIGHT_RECORDS=100
start connect
finish && says 4 ' connect status -7 .*flight_records is "2000" on rank 0, "100" on rank 2'
report $? "settings that differ: all ranks hear both values"

fresh
seconds=2
extra0=HSDP_ATTEMPT=2
extra1=HSDP_ATTEMPT=1
start connect
finish && says 2 '^rank [01] connect status -5 .* missing 2 3: ' &&
    says 2 '^rank [23] connect status -7 .*rank 2 is of attempt "1", rank 0 of attempt "2"'
report $? "survivors of an earlier attempt hear what they are, the others whom they miss"

# ------------------------------------------------------------------------------------- failures

# waiting: rank 3 is late for an exchange, the others wait in it.
waiting() {
    start connect exchange=3 mark=ready "$@" 3:await=go exchange
    ready && sleep 0.3
}

# soon MS COUNT PATTERN: since $since so many say so, in MS and some slack.
soon() {
    until_true 12 says "$2" "$3" || return 1
    [ $(($(now_ms) - since)) -le $(($1 + slack_ms)) ]
}

lost_silent() {
    soon $((silence * 1000)) 2 \
        '^rank [01] exchange status -6 .* missing 2 3: .*ranks 2, 3 on host1: .*silent' &&
        soon $((silence * 1000)) 1 '^rank 2 exchange status -6 .* missing 0: .*rank 0.*silent' &&
        [ $(($(now_ms) - since)) -ge 300 ]
}

fresh
waiting
since=$(now_ms)
ip -n "$host0" link set cable down
lost_silent
result=$?
ip -n "$host0" link set cable up
[ "$has_v6" = no ] || ip -n "$host0" addr add fd77::1/64 dev cable nodad 2>/dev/null
finish && [ "$result" -eq 0 ] && says 1 '^rank 3 exchange status -8 '
report $? "a cable that is cut: both hosts name each other as silent"

fresh
waiting
since=$(now_ms)
ip -n "$host0" link del cable
lost_silent
result=$?
cable_plug
finish && [ "$result" -eq 0 ]
report $? "a cable that is pulled out: likewise"

# Here the system of the root finds out first: its silence is a node's, too.
fresh
waiting
ip -n "$host0" link set cable down
sleep 0.6 # beats that nobody confirms are under way
rank_kill STOP 0
sleep 2.5
rank_kill CONT 0
since=$(now_ms)
soon 1000 2 '^rank [01] exchange status -6 .* missing 2 3: .*ranks 2, 3 on host1: .*silent'
result=$?
ip -n "$host0" link set cable up
finish && [ "$result" -eq 0 ]
report $? "a cable that is cut while the root is stopped: it names the node"

fresh
silence=5
waiting set=peer_silence_seconds,1
until_true 15 says 4 ' set status 0 '
sleep 0.3
since=$(now_ms)
silence=1
ip -n "$host0" link set cable down
lost_silent
result=$?
ip -n "$host0" link set cable up
finish && [ "$result" -eq 0 ]
report $? "peer_silence_seconds that is set at run time counts from then on"

# A rank, a leader and the root; rank 3 is in no call then.
for victim in 1 2 0; do
    fresh
    waiting
    since=$(now_ms)
    rank_kill KILL "$victim"
    soon 1000 2 "^rank [012] exchange status -6 .* missing $victim: "
    result=$?
    finish && [ "$result" -eq 0 ] && says 1 '^rank 3 exchange status -[68] '
    report $? "kill -9 of rank $victim is known on both hosts within a second"
done

fresh
waiting 2:fork
since=$(now_ms)
rank_kill KILL 2
soon 1000 2 '^rank [01] exchange status -6 .* missing 2: '
result=$?
finish && [ "$result" -eq 0 ]
report $? "kill -9 of a leader whose child lives on is known as soon"

fresh
waiting 2:await=abort 2:abort=enough
since=$(now_ms)
touch "$scratch/abort"
soon 1000 2 '^rank [01] exchange status -8 .*rank 2 has aborted: enough'
result=$?
finish && [ "$result" -eq 0 ]
report $? "an abort on one host ends what waits on the other"

fresh
seconds=2
start connect exchange=3 mark=ready 3:stop exchange
ready
since=$(now_ms)
soon 2000 3 '^rank [012] exchange status -5 .* missing 3: .*rank 3, which is stopped'
result=$?
rank_kill KILL 3
finish && [ "$result" -eq 0 ] && [ $(($(now_ms) - since)) -ge 1500 ]
report $? "a stopped rank: all hosts name it at the deadline"

fresh
seconds=3
start connect exchange=3 mark=ready 2:stop exchange
ready
since=$(now_ms)
soon 1000 2 '^rank [01] exchange status -6 .* missing 2 3: .*ranks 2, 3 on host1: .*silent' &&
    soon 3000 1 '^rank 3 exchange status -5 .* missing 2: .*rank 2, which is stopped'
result=$?
rank_kill KILL 2
finish && [ "$result" -eq 0 ]
report $? "a stopped leader: silent with its node, which names it itself"

tap_done
