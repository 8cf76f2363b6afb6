#!/usr/bin/env bash
# Shows the main job on this machine: builds the programs and the guest, then runs
# "buildyard demo". Settings come from the environment:
#
#   ONCE=1         end after the instance has ended
#   DRIVER=sim     simulate the VMs where QEMU cannot be had
#   GUEST_USER, GUEST_PASSWORD   of the guest; default demo, and one made now
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
driver=${DRIVER:-qemu} user=${GUEST_USER:-demo}
work=$(mktemp -d "${TMPDIR:-/tmp}/buildyard-demo.XXXXXX")
chmod 755 "$work" # the unprivileged hypervisor reads the guest's disk in it
trap 'rm -rf "$work"' EXIT

# step NAME COMMAND...: runs a command quietly and says how long it took.
step() {
  local name=$1 began=$SECONDS
  shift
  echo "   $name: $*"
  "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; echo "failed: $name" >&2; exit 1; }
  printf 'ok %-9s done (%ss)\n' "$name" $((SECONDS - began))
}

step build env CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o bin/ ./cmd/...
args=(--driver "$driver")
if [ "$driver" = sim ]; then
  echo "   DRIVER=sim: the VMs are simulated; no guest is built and nothing real boots"
else
  scripts/need.sh demo
  password=${GUEST_PASSWORD:-$(od -An -tx8 -N8 /dev/urandom | tr -d ' \n')}
  step guest guest/build.sh --user "$user" --password "$password" "$work/guest.qcow2"
  args+=(--scanner bin/imagescan --guest "$work/guest.qcow2" --user "$user" --password "$password")
fi
[ -z "${ONCE:-}" ] || args+=(--once)
bin/buildyard demo "${args[@]}"
