#!/usr/bin/env bash
# Prints what the programs say about themselves, from git: lines "version", "commit" and "date".
#
#   scripts/version.sh           VERSION, COMMIT and DATE, one per line
#   scripts/version.sh ldflags   the options of the linker that put them into a program
#
# A clean commit with a tag vX.Y.Z is that release. Anything else is X.Y.Z-dev, where X.Y.Z is the
# next release, and has ".dirty" after its commit if files differ from it. Without git there is only
# the version.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# The clone may belong to another user than the one who builds.
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'

next=$(sed -nE 's|^\tgithub.com/buildyard/buildyard/client v([0-9]+\.[0-9]+\.[0-9]+)$|\1|p' go.mod)
version=$next-dev commit='' date=''
if top=$(git rev-parse --show-toplevel 2>/dev/null) && [ "$top" -ef . ]; then
  commit=$(git rev-parse HEAD)
  date=$(TZ=UTC git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ)
  if [ -n "$(git status --porcelain)" ]; then
    commit+=.dirty
  elif tag=$(git describe --tags --exact-match --match 'v[0-9]*.[0-9]*.[0-9]*' 2>/dev/null) &&
    [[ $tag =~ ^v[0-9]+\.[0-9]+\.[0-9]+$ ]]; then
    version=${tag#v}
  fi
fi

case "${1:-}" in
'') printf '%s\n' "$version" "$commit" "$date" ;;
ldflags)
  obs=github.com/buildyard/buildyard/internal/obs
  echo "-X $obs.Version=$version -X $obs.Commit=$commit -X $obs.Date=$date"
  ;;
*) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" >&2 && exit 2 ;;
esac
