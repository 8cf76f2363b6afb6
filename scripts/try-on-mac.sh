#!/bin/bash
# Tries on a Mac what the driver for tart relies on, and prints a report in Markdown for an issue. It needs tart and
# a stopped macOS VM with tart's guest agent, which it clones and does not change; with buildnode in PATH it tries
# import and export too. It works with bash 3.2, which is part of macOS.
set -u -m # -m: each background job is a process group, so that a time limit ends all of it

usage() {
  cat <<'END'
Usage: try-on-mac.sh --vm NAME [--starts N] [--output FILE] [--yes]

Tries what Buildyard's driver for tart relies on, and prints a report in
Markdown to paste into an issue. It takes about 30 minutes.

  --vm NAME       stopped macOS VM of tart with its guest agent; it is cloned,
                  not changed
  --starts N      stops and starts of one VM (default 10)
  --output FILE   write the report to FILE instead of the standard output
  --yes           do not ask before VMs are made and started
  --help          print this text

It makes VMs named try-on-mac-* and deletes them at its end. It restarts
nothing: steps that need a restart or a second Mac are printed in the report.
The report has no addresses of the screen, machine identifiers or home directory.
END
}

fail() {
  echo "try-on-mac.sh: $*" >&2
  exit 2
}

source_vm='' starts=10 output='' ask=yes
while [ $# -gt 0 ]; do
  case $1 in
  --vm | --starts | --output) [ $# -ge 2 ] || fail "$1 needs a value; see --help" ;;
  esac
  case $1 in
  --vm) source_vm=$2 && shift ;;
  --starts) starts=$2 && shift ;;
  --output) output=$2 && shift ;;
  --yes) ask=no ;;
  --help | -h) usage && exit 0 ;;
  *) fail "unknown argument $1; see --help" ;;
  esac
  shift
done
case $source_vm in
'') fail "--vm is missing: name a stopped macOS VM of tart; \"tart list\" shows them" ;;
*[!A-Za-z0-9._-]* | [.-]*) fail "invalid --vm $source_vm: want letters, digits, '.', '_' and '-'" ;;
esac
case $starts in
'' | *[!0-9]* | ????*) fail "invalid --starts $starts: want a number up to 999" ;;
esac
command -v tart >/dev/null || fail "tart is not in PATH; install it, or add its directory to PATH"

home=${TART_HOME:-$HOME/.tart}
[ -d "$home/vms/$source_vm" ] || fail "tart has no VM $source_vm: $home/vms/$source_vm is not a directory"
work=$(mktemp -d "${TMPDIR:-/tmp}/try-on-mac.XXXXXX") || exit 1
prefix=try-on-mac-$$
: >"$work/table"
: >"$work/details"
: >"$work/vms"

# --- Commands with time limits

# limited SECONDS COMMAND...: runs a command; exit code 124 when the time limit has ended it and all its processes.
limited() {
  local seconds=$1 job watcher status
  shift
  rm -f "$work/timed-out"
  "$@" </dev/null &
  job=$!
  (
    sleep "$seconds"
    : >"$work/timed-out"
    kill -KILL -- "-$job"
  ) >/dev/null 2>&1 &
  watcher=$!
  wait "$job" 2>/dev/null
  status=$?
  kill -KILL -- "-$watcher" 2>/dev/null
  wait "$watcher" 2>/dev/null
  [ ! -e "$work/timed-out" ] || status=124
  return $status
}

# hide prints standard input without what a public report should not have, and not more than 60 lines.
hide() {
  local text tilde='~'
  text=$(head -c 20000 | LC_ALL=C tr -d '\000-\010\013-\037')
  printf '%s\n' "${text//"$HOME"/$tilde}" | LC_ALL=C sed -E \
    -e 's#vnc://[^@ ]*@#vnc://(hidden)@#' -e 's#("ecid" *: *)"[^"]*"#\1"(hidden)"#' \
    -e 's#~~~~#~ ~ ~ ~#' -e '60q' | LC_ALL=C cut -c 1-300
}

# shown WORDS...: prints a command for the report.
shown() { printf '%s ' "$@" | tr '`' "'" | hide | sed 's/ *$//'; }

# try SECONDS COMMAND...: runs a command, and adds it with its output to the report. It sets $code, $took in seconds
# and the file $work/out.
try() {
  local seconds=$1 began=$SECONDS
  shift
  limited "$seconds" "$@" >"$work/out" 2>&1
  code=$? took=$((SECONDS - began))
  {
    printf '\n`%s`: exit code %s, %s s\n\n~~~~\n' "$(shown "$@")" "$code" "$took"
    hide <"$work/out"
    printf '~~~~\n'
  } >>"$work/details"
}

# note TEXT: adds a paragraph to the report.
note() { printf '\n%s\n' "$*" >>"$work/details"; }

# expect CODES WHAT: makes the row differ unless the last exit code is one of these, separated by spaces.
expect() {
  case " $1 " in
  *" $code "*) ;;
  *) differ "$2: exit code $code, want $1" ;;
  esac
}

# expect_output PATTERN WHAT: makes the row differ unless the last output matches.
expect_output() { grep -Eq "$1" "$work/out" || differ "$2: the output does not match $1"; }

differ() {
  result='**differs**'
  note "Differs: $*."
}

# row TITLE FUNCTION: adds a row to the report.
row() {
  local began=$SECONDS
  number=$((number + 1))
  result='as expected'
  printf '%s: %s\n' "$number" "$1" >&2
  printf '\n## %s. %s\n' "$number" "$1" >>"$work/details"
  "$2"
  printf '| %s | %s | %s | %s |\n' "$number" "$1" "$result" $((SECONDS - began)) >>"$work/table"
}

# --- VMs

# clone NAME: makes a VM that is deleted at the end.
clone() {
  echo "$1" >>"$work/vms"
  try 600 tart clone "$source_vm" "$1"
  [ "$code" = 0 ] || differ "tart clone failed"
}

# start NAME: starts tart run in the background.
start() {
  tart run --no-graphics --no-audio --no-clipboard --vnc-experimental "$1" </dev/null >"$work/$1.log" 2>&1 &
  echo $! >"$work/$1.pid"
}

is_running() { [ -s "$work/$1.pid" ] && kill -0 "$(cat "$work/$1.pid")" 2>/dev/null; }

# await_guest NAME: waits until the guest agent answers. It sets $took in seconds.
await_guest() {
  local began=$SECONDS
  until limited 5 tart exec "$1" /usr/bin/true >/dev/null 2>&1; do
    took=$((SECONDS - began))
    is_running "$1" && [ $took -lt 240 ] || return 1
    sleep 1
  done
  took=$((SECONDS - began))
}

# boot NAME: starts a VM and waits for its guest.
boot() {
  start "$1"
  if await_guest "$1"; then
    note "$1: the guest agent answered after $took s."
  else
    differ "$1: the guest agent did not answer within $took s"
  fi
  show_run "$1"
}

# show_run NAME: adds what tart run has printed to the report.
show_run() {
  printf '\n`tart run %s` printed:\n\n~~~~\n' "$1" >>"$work/details"
  hide <"$work/$1.log" >>"$work/details"
  printf '~~~~\n' >>"$work/details"
}

# await_end NAME SECONDS: waits until tart run has ended. It sets $took in seconds.
await_end() {
  local began=$SECONDS
  while is_running "$1"; do
    took=$((SECONDS - began))
    [ $took -lt "$2" ] || return 1
    sleep 0.2
  done
  took=$((SECONDS - began))
}

# pull_plug NAME: ends a VM by force.
pull_plug() {
  limited 30 tart stop --timeout 3 "$1" >/dev/null 2>&1
  await_end "$1" 10 || kill -KILL "$(cat "$work/$1.pid")" 2>/dev/null
}

clean_up() {
  local name
  while read -r name; do
    is_running "$name" && pull_plug "$name"
    limited 120 tart delete "$name" >/dev/null 2>&1
  done <"$work/vms"
  rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# --- The rows

check_files() {
  try 10 tart --version
  expect 0 "the version"
  try 10 sw_vers
  try 10 sysctl -n kern.osversion machdep.cpu.brand_string hw.memsize
  try 10 tart get "$source_vm" --format json
  expect 0 "tart get"
  try 10 ls -ln "$home/vms/$source_vm"
  try 10 cat "$home/vms/$source_vm/config.json"
  expect_output '"hardwareModel"' "config.json"
}

check_missing() {
  try 20 tart run --no-graphics "$prefix-missing"
  expect '1 2' "run"
  try 20 tart stop "$prefix-missing"
  expect 2 "stop"
  try 20 tart exec "$prefix-missing" /usr/bin/true
  expect 2 "exec"
  try 20 tart ip "$prefix-missing"
  expect '1 2' "ip"
}

check_keychain() {
  result='by hand'
  if command -v buildnode >/dev/null; then
    try 60 buildnode service status
  fi
  note "By hand: \`buildnode service install\`, restart the Mac, let it log in automatically, touch nothing, and start an
instance. Note whether it starts, and the message if it does not."
}

check_screen() {
  boot "$prefix-1"
  try 10 grep -c '^VNC server is running at vnc://' "$work/$prefix-1.log"
  expect 0 "the line with the address of the screen"
  try 20 lsof -nP -a -p "$(cat "$work/$prefix-1.pid")" -iTCP -sTCP:LISTEN
  note "Which address listens decides whether others reach the screen: 127.0.0.1, or * for all."
}

send_bytes() { head -c 8388608 /dev/zero | tart exec -i "$prefix-1" /usr/bin/wc -c; }

check_exec() {
  try 20 tart exec "$prefix-1" /bin/sh -c 'exit 7'
  expect 7 "an exit code"
  try 20 tart exec "$prefix-1" /bin/sh -c 'kill -9 $$'
  expect 255 "a signal"
  try 20 tart exec "$prefix-1" /nosuch
  expect 1 "a missing program"
  try 5 tart exec "$prefix-1" /bin/sh -c 'sleep 60 &'
  expect 124 "a background child that holds the outputs"
  try 120 send_bytes
  expect_output 8388608 "8 MiB of input"
  try 20 tart exec "$prefix-1" /usr/bin/id -un
  try 20 tart exec "$prefix-1" sudo -n /usr/bin/true
  expect 0 "sudo without a password"
  try 20 tart exec "$prefix-1" /usr/bin/perl -e 'use POSIX; print POSIX::getpid(), "\n"'
}

# receive COMMAND...: sends 100 MB by a command to port 5999 of the guest, and prints the bytes that arrive.
receive() {
  # With an input that ends, nc would end the connection before the bytes are sent.
  tart exec "$prefix-1" /bin/sh -c 'nc -d -l 5999 | wc -c' &
  sleep 2
  TIMEFORMAT='%R s'
  time "$@"
  wait
}

send_by_exec() { head -c 100000000 /dev/zero | tart exec -i "$prefix-1" /usr/bin/nc 127.0.0.1 5999; }

send_directly() { head -c 100000000 /dev/zero >"/dev/tcp/$address/5999"; }

check_ports() {
  try 180 receive send_by_exec
  expect_output 100000000 "100 MB by exec"
  try 30 tart ip --wait 20 "$prefix-1"
  expect 0 "the address of the guest"
  address=$(grep -Eo '^[0-9.]+$' "$work/out" | head -1)
  if [ -n "$address" ]; then
    try 180 receive send_directly
    expect_output 100000000 "100 MB to the address"
  fi
  note "Did macOS ask for a permission (Local Network)? Please note it here."
}

# count_guests prints the number of guests of the Virtualization framework, whatever program runs them.
count_guests() { ps -axo comm= | grep -c com.apple.Virtualization.VirtualMachine; }

check_limit() {
  local i failures=0
  try 10 count_guests
  boot "$prefix-2"
  start "$prefix-3"
  await_end "$prefix-3" 60 || differ "a third guest runs"
  show_run "$prefix-3"
  grep -q 'exceeds the system limit' "$work/$prefix-3.log" || differ "the text of the limit"
  is_running "$prefix-3" && pull_plug "$prefix-3"
  pull_plug "$prefix-2"
  try 10 count_guests
  i=0
  while [ $i -lt "$starts" ]; do
    i=$((i + 1))
    pull_plug "$prefix-1"
    start "$prefix-1"
    if await_guest "$prefix-1"; then
      note "Start $i: $took s."
    else
      failures=$((failures + 1))
      note "Start $i failed after $took s."
      show_run "$prefix-1"
    fi
  done
  [ $failures = 0 ] || differ "$failures of $starts starts failed"
}

check_shutdown() {
  try 30 tart exec "$prefix-1" /usr/bin/open -a TextEdit
  try 60 tart exec "$prefix-1" sudo -n /sbin/shutdown -h now
  if await_end "$prefix-1" 300; then
    note "The VM ended $took s after the answer."
  else
    differ "the guest did not shut down within 300 s"
    pull_plug "$prefix-1"
  fi
  show_run "$prefix-1"
}

check_template() {
  note "By hand, on a second Mac: pull a version that was saved on this one, start it, and note whether it boots."
  if ! command -v buildnode >/dev/null; then
    result='not done'
    note "Not done here: buildnode is not in PATH."
    return
  fi
  echo "$prefix-exported" >>"$work/vms"
  try 900 env XDG_DATA_HOME="$work/data" buildnode vm import --tart "$source_vm" --name "$prefix"
  expect 0 "import"
  try 900 env XDG_DATA_HOME="$work/data" buildnode vm export "$prefix" --tart "$home/vms/$prefix-exported"
  expect 0 "export"
  boot "$prefix-exported"
  pull_plug "$prefix-exported"
}

check_identity() {
  try 20 tart set "$prefix-2" --random-serial
  expect 0 "a new machine identifier"
  boot "$prefix-2"
  try 20 tart exec "$prefix-2" /usr/bin/sw_vers
  pull_plug "$prefix-2"
  note "Please repeat the whole with guests of macOS 14, 15 and 26."
}

check_node() {
  result='by hand'
  note "By hand, with an instance that runs on a node that was installed with \`buildnode service install\`:
\`buildnode service status\` names its process. End it with \`kill -9\`, and look for \`tart run\` in
\`ps -axo command\`. Then \`launchctl bootout gui/\$(id -u) FILE\` with the file that the status names, and look again.
The VM should live both times."
}

# --- The report

if limited 20 tart get "$source_vm" --format json 2>/dev/null | grep -q '"Running" *: *true'; then
  fail "the VM $source_vm runs; shut it down first"
fi
if [ $ask = yes ]; then
  [ -t 0 ] || fail "the question cannot be asked: the standard input is not a terminal; add --yes"
  printf 'Clone the VM %s three times, run up to three macOS guests, and delete the clones? [y/N] ' "$source_vm" >&2
  read -r answer
  case $answer in
  y | Y | yes) ;;
  *) exit 1 ;;
  esac
fi

make_clones() {
  local i
  for i in 1 2 3; do clone "$prefix-$i"; done
}

number=0 code=0 took=0 address='' result=''
row "Versions and files" check_files
row "A missing VM" check_missing
row "Keychain after a restart" check_keychain
row "Clones of the VM" make_clones
row "Address of the screen" check_screen
row "Commands in the guest" check_exec
row "Ports: by commands and directly" check_ports
row "Third VM, $starts stops and starts" check_limit
row "Shutdown with an open app" check_shutdown
row "Template: import, export, second Mac" check_template
row "New identity" check_identity
row "VMs outlive the node's agent" check_node

report() {
  printf '# Buildyard on a Mac\n\n| no. | check | result | seconds |\n|---|---|---|---|\n'
  cat "$work/table" "$work/details"
}
if [ -n "$output" ]; then
  report >"$output" || exit 1
  echo "The report is in $output." >&2
else
  report
fi
