#!/bin/sh
# two_hosts.sh MPIEXEC PROGRAM...: a program of two processes on hosts that have nothing but a network in common.
#
# Hosts are namespaces of the network, with a link between them. All of it (names, links, processes) is within namespaces of
# this script's own, which end with it, however it ends: there is nothing to remove. hydra, the launcher of MPICH, calls this script
# again to start its part of the other host: `two_hosts.sh [options] ADDRESS COMMAND...`.
set -eu
if [ "${TWO_HOSTS:-}" = started ]; then
    while [ "${1#-}" != "$1" ]; do shift; done
    host="host${1##*.}"
    shift
    exec ip netns exec "$host" sh -c "$*"
fi
if [ "${TWO_HOSTS:-}" != inside ]; then
    user=""
    [ "$(id -u)" = 0 ] || user="--user --map-root-user"
    # shellcheck disable=SC2086
    TWO_HOSTS=inside exec unshare $user --net --mount --pid --fork --kill-child --mount-proc "$0" "$@"
fi
mount -t tmpfs none /run
for host in 1 2; do
    ip netns add "host$host"
    ip -n "host$host" link set lo up
done
ip link add one type veth peer name two
ip link set one netns host1
ip link set two netns host2
ip -n host1 address add 10.0.0.1/24 dev one
ip -n host2 address add 10.0.0.2/24 dev two
ip -n host1 link set one up
ip -n host2 link set two up
[ "$#" != 0 ] || exit 0
mpiexec=$1
shift
export TWO_HOSTS=started UCX_TLS=tcp,self
ip netns exec host1 "$mpiexec" -launcher ssh -launcher-exec "$0" -hosts 10.0.0.1,10.0.0.2 -n 2 "$@"
# What went over the link.
ip netns exec host1 cat /sys/class/net/one/statistics/tx_bytes
