#!/usr/bin/env bash
# Runs a test 200 times with the race detector while every core is busy, and stops at the first
# failure with its output and the seed of its order.
#
#   scripts/stress.sh PACKAGE [TEST]      TEST is a regular expression of whole names; all without it
#   scripts/stress.sh                     every line of scripts/stress.txt: PACKAGE TEST
#
# COUNT=200 sets how often.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
count=${COUNT:-200}
temp=$(mktemp -d) load=()
trap 'kill "${load[@]}" 2>/dev/null || true; rm -rf "$temp"' EXIT
for ((i = $(nproc); i > 0; i--)); do
  (while :; do :; done) &
  load+=($!)
done

# stress PACKAGE TEST
stress() {
  local bin dir i seed
  bin=$temp/$(echo "$1" | tr -c 'a-zA-Z0-9\n' _).test
  [ -x "$bin" ] || CGO_ENABLED=1 go test -race -c -trimpath -vet=off -o "$bin" "$1"
  dir=$(go list -f '{{.Dir}}' "$1")
  for ((i = 1; i <= count; i++)); do
    seed=$RANDOM$RANDOM
    if ! (cd "$dir" && TMPDIR=$temp GORACE=atexit_sleep_ms=10 "$bin" -test.run "^($2)\$" -test.shuffle "$seed" -test.timeout 5m) >"$temp/out" 2>&1 ||
      grep -q 'no tests to run' "$temp/out"; then
      cat "$temp/out"
      echo "$1 $2: run $i failed; again: go test -race $1 -run '^($2)\$' -shuffle $seed"
      return 1
    fi
  done
  echo "$1 $2: $count runs"
}

passed=0 failed=0
while read -r package test; do
  if stress "$package" "${test:-.*}"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
done < <(if [ $# -gt 0 ]; then echo "$1 ${2:-}"; else cat "$top/scripts/stress.txt"; fi)
echo "$passed passed, $failed failed, 0 skipped"
[ "$passed" -gt 0 ] && [ "$failed" -eq 0 ]
