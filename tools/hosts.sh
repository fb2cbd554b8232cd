#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# hosts.sh [--rate RATE] [--ipv6] N COMMAND...: runs a command on each of N "hosts" of one machine: network namespaces
# that are joined by a cable (two of them) or a switch (more), each way at RATE (1gbit) at most where that is given.
#
# A command finds HOST (0 to N-1), N_HOSTS and HOSTS (host0,host1,...) in its environment, rules its own network (ip link
# set eth0 down), and writes to this script's outputs. The exit code is the first that is not 0, in the order of the
# hosts; 77, and the reason on standard error, where the kernel forbids such networks.
#
# All of it lives in namespaces of its own, processes too: when this script ends, however it ends, the kernel clears up.
set -euo pipefail

if [[ ${1-} != --inside ]]; then
  namespaces=(--net --pid --fork --kill-child --mount-proc)
  ((EUID == 0)) || namespaces+=(--user --map-root-user)
  export PATH=$PATH:/usr/sbin:/sbin
  why=$(unshare "${namespaces[@]}" sh -c '
    ip link add end0 type veth peer name end1 && ip link add switch type bridge &&
      tc qdisc add dev end0 root tbf rate 1gbit burst 256kb latency 50ms' 2>&1) || {
    echo "skipped: no network namespaces here: ${why//$'\n'/; }" >&2
    exit 77
  }
  exec unshare "${namespaces[@]}" bash "$0" --inside "$@"
fi
shift

rate=
ipv6=false
while [[ ${1-} == --* ]]; do
  case $1 in
    --rate)
      rate=$2
      shift
      ;;
    --ipv6) ipv6=true ;;
    *)
      echo "hosts.sh: unknown option '$1', expected --rate RATE or --ipv6" >&2
      exit 2
      ;;
  esac
  shift
done
count=$1
shift
trap 'exit 143' TERM INT HUP # a namespace's first process takes no signal that it has no handler for

# A host is a network namespace; a process that sleeps in it keeps it.
keepers=()
on() { # on HOST COMMAND...
  local keeper=${keepers[$1]}
  shift
  nsenter --net=/proc/"$keeper"/ns/net -- "$@"
}
limit() { # limit DEVICE [on HOST]: what leaves through the device keeps to the rate
  # What may leave at once: at slow rates the usual amount would be a good part of a second.
  local burst=256kb
  [[ $rate != *mbit ]] || burst=16kb
  local device=$1
  shift
  [[ -z $rate ]] || "$@" tc qdisc add dev "$device" root tbf rate "$rate" burst "$burst" latency 50ms
}
for ((host = 0; host < count; ++host)); do
  unshare --net sleep infinity &
  keepers+=($!)
  until [[ $(readlink /proc/${keepers[host]}/ns/net) != "$(readlink /proc/self/ns/net)" ]]; do sleep 0.01; done
done

if ((count == 2)); then
  ip link add end0 type veth peer name end1
  ip link set end0 netns "${keepers[0]}" name eth0
  ip link set end1 netns "${keepers[1]}" name eth0
else
  ip link add switch type bridge
  ip link set switch up
  for ((host = 0; host < count; ++host)); do
    ip link add port"$host" type veth peer name end0
    ip link set end0 netns "${keepers[host]}" name eth0
    ip link set port"$host" master switch up
    limit port"$host"
  done
fi

# Names for the addresses, seen by these processes alone; there is no name server to ask.
mount -t tmpfs none /mnt
echo 'hosts: files' >/mnt/nsswitch.conf
mount --bind /mnt/nsswitch.conf /etc/nsswitch.conf
printf '127.0.0.1 localhost\n::1 localhost\n' >/mnt/hosts
names=()
for ((host = 0; host < count; ++host)); do
  address=10.77.0.$((host + 1))
  $ipv6 && address=fd77::$((host + 1))
  names+=(host"$host")
  echo "$address host$host" >>/mnt/hosts
  on "$host" ip link set lo up
  on "$host" ip link set eth0 up
  if $ipv6; then on "$host" ip address add "$address"/64 dev eth0 nodad; else on "$host" ip address add "$address"/24 dev eth0; fi
  limit eth0 on "$host"
done
mount --bind /mnt/hosts /etc/hosts
HOSTS=$(IFS=, && echo "${names[*]}")
export HOSTS N_HOSTS=$count

commands=()
for ((host = 0; host < count; ++host)); do
  HOST=$host on "$host" "$@" </dev/null &
  commands+=($!)
done
code=0
for command in "${commands[@]}"; do
  wait "$command" || { ((code != 0)) || code=$?; }
done
exit "$code"
