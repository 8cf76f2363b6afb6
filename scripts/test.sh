#!/usr/bin/env bash
# Runs tests with gotestsum. A test that fails is run again at most twice, alone; one that then
# passes is listed as flaky. The last line is "N passed, N failed, N skipped".
#
#   scripts/test.sh "PACKAGE..." [GO-TEST-FLAGS]
#
# SLOW=1 lists the 20 slowest tests. EVIDENCE=1 shows what tests that pass print, allows no skip
# and runs nothing again.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
packages=$1
shift

free=$(df --output=avail -k "${TMPDIR:-/tmp}" 2>/dev/null | tail -n 1 || true)
if [ "${free:-99999999}" -lt $((10 << 20)) ]; then # see alarms.DiskLow
  echo "less than 10 GiB of ${TMPDIR:-/tmp} are free: tests that expect a healthy cloud fail; free some space" >&2
fi

"$top/scripts/need.sh" gotestsum
events=$(mktemp)
trap 'rm -f "$events"' EXIT

options=(--format pkgname-and-test-fails --hide-summary skipped,failed,output --rerun-fails=2 --rerun-fails-max-failures=5)
[ -z "${EVIDENCE:-}" ] || options=(--format standard-verbose --hide-summary all)
status=0
"$("$top/scripts/need.sh" bin)/gotestsum" "${options[@]}" --rerun-fails-abort-on-data-race --format-hide-empty-pkg --no-color \
  --jsonfile "$events" --packages "$packages" -- "$@" || status=$?
CGO_ENABLED=0 go run -C "$top" -trimpath ./internal/tools/testreport -status "$status" ${SLOW:+-slow} ${EVIDENCE:+-no-skips} "$events"
