#!/usr/bin/env bash
# Runs every fuzz test of the module for a while, one after the other.
#
#   scripts/fuzz.sh [TIME] [PACKAGE-FOLDER...]     10s each, all packages
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
time=${1:-10s}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- .

passed=0 failed=0
while IFS=: read -r file name; do
  echo "== $(dirname "$file") $name"
  go test "./$(dirname "$file")" -run '^$' -fuzz "^$name\$" -fuzztime "$time" -fuzzminimizetime 5s </dev/null && passed=$((passed + 1)) || failed=$((failed + 1))
done < <(grep -roE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' "$@" | sed 's/:func /:/' | sort -u)
echo "$passed passed, $failed failed, 0 skipped"
[ "$passed" -gt 0 ] && [ "$failed" -eq 0 ]
