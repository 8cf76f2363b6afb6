#!/usr/bin/env bash
# Runs every fuzz test of the repository for a while, one after the other.
#
#   scripts/fuzz.sh [TIME] [PACKAGE-DIR...]        10s each, all packages
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
time=${1:-10s}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- .

out=$(mktemp)
trap 'rm -f "$out"' EXIT
try() { # package test
  go test -C "$1" . -run '^$' -fuzz "^$2\$" -fuzztime "$time" -fuzzminimizetime 5s </dev/null 2>&1 | tee "$out"
}

# Go's tool takes its own deadline for a failure when it passes while an input is handed over.
# Such a failure has no input; the test is run once more.
hurried() { grep -q '^ *context deadline exceeded$' "$out" && ! grep -q 'Failing input written' "$out"; }

passed=0 failed=0
while IFS=: read -r file name; do
  echo "== $(dirname "$file") $name"
  package=./$(dirname "$file")
  if try "$package" "$name" || { hurried && try "$package" "$name"; }; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
done < <(grep -roE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' "$@" | sed 's/:func /:/' | sort -u)
echo "$passed passed, $failed failed, 0 skipped"
[ "$passed" -gt 0 ] && [ "$failed" -eq 0 ]
