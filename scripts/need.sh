#!/usr/bin/env bash
# Installs what a job needs on this machine, if it is missing.
#
#   scripts/need.sh test     gotestsum, C compiler for -race, busybox, ip, XFS, Btrfs, QEMU, nftables, the guest's packages, and
#                            programs that compress and read disk images
#   scripts/need.sh demo     QEMU, nftables and the guest's packages
#   scripts/need.sh images   qemu-img, and programs that read or write file systems, DMG, LVM, LUKS and container images
#   scripts/need.sh gotestsum  gotestsum, which runs the tests
#   scripts/need.sh test-mac  XFS
#   scripts/need.sh lint     golangci-lint and gofumpt, at the versions below
#   scripts/need.sh vuln     govulncheck
#   scripts/need.sh bench-scan  scalibr, npm for the tree of packages, and programs that make its forms
#   scripts/need.sh bench-host  npm for the same tree
#   scripts/need.sh bench-mac  XFS
#   scripts/need.sh bench-distribution  QEMU, ip, XFS, and what makes a Debian on a disk
#   scripts/need.sh peers    scalibr, syft and govulncheck, and npm
#   scripts/need.sh real     syft, rpm and what writes each form of its database, debootstrap, and recent lists of apt
#   scripts/need.sh openapi-clients  oapi-codegen, and npm with openapi-typescript and tsc at the versions of a lock file
#   scripts/need.sh e2e      Chromium, or what CHROMIUM names, Firefox, and curl
#   scripts/need.sh e2e-host  the package managers and archivers that the host scanner is tried with
#   scripts/need.sh rules    promtool, out of Debian's package of Prometheus, which is not installed
#   scripts/need.sh test-s3  versitygw, an S3 server
#   scripts/need.sh dist     nfpm, which writes deb and rpm packages
#   scripts/need.sh test-packages  nfpm, and the programs that install and check packages, images and signatures
#   scripts/need.sh docs-test  curl, jq, openssl, ip, mke2fs and qemu-img, which the commands of the documents use, and etcd
#   scripts/need.sh etcd     etcd servers of the supported minor versions, and etcdctl
#   scripts/need.sh test-ha  the same, an older etcd that is refused, HAProxy and ip
#   scripts/need.sh bench-ha an etcd server, and versitygw
#   scripts/need.sh bin      prints the directory of the Go tools
#
# Debian packages are installed when this runs as root; otherwise, and elsewhere,
# it says what is missing and fails. Go tools go into the user's cache.
set -euo pipefail

# The etcd servers that external stores are tried with: the newest of each supported minor version. The last is that of
# the embedded store.
etcd_versions="v3.5.35 v3.6.16 v3.7.3"

# module NAME: where a Go tool comes from, at its pinned version.
module() {
  case "$1" in
  golangci-lint) echo github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0 ;;
  gofumpt) echo mvdan.cc/gofumpt@v0.12.0 ;;
  gotestsum) echo gotest.tools/gotestsum@v1.13.0 ;;
  scalibr) echo github.com/google/osv-scalibr/binary/scalibr@v0.5.3 ;;
  syft) echo github.com/anchore/syft/cmd/syft@v1.52.0 ;;
  oapi-codegen) echo github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2 ;;
  versitygw) echo github.com/versity/versitygw/cmd/versitygw@v1.8.0 ;;
  nfpm) echo github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2 ;;
  govulncheck) echo golang.org/x/vuln/cmd/govulncheck@v1.8.0 ;;
  esac
}

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bin=${BUILDYARD_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/buildyard/tools}

# packages NAME...: installs the Debian packages that are missing.
packages() {
  local p missing=()
  if ! command -v dpkg-query >/dev/null; then
    echo "need.sh: not a Debian system; make sure that these are there: $*" >&2
    return 0
  fi
  for p; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing+=("$p")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" != 0 ]; then
    echo "need.sh: missing packages; run: apt-get install --no-install-recommends ${missing[*]}" >&2
    return 1
  fi
  echo "need.sh: installing ${missing[*]}" >&2
  export DEBIAN_FRONTEND=noninteractive
  apt-get -qq update >&2 </dev/null
  apt-get -qq install -y --no-install-recommends "${missing[@]}" >&2 </dev/null
}

# guest prints the packages that building and running the demo guest takes.
guest() {
  echo qemu-system-x86 qemu-utils nftables
  if [ -f "$top/guest/packages.txt" ]; then
    sed 's/#.*//' "$top/guest/packages.txt"
  fi
}

# npm installs npm, unless there is one from wherever.
npm() {
  type -P npm >/dev/null || packages npm
}

# modules DIR NAME: installs the npm packages of the lock file of a directory next to the Go tools.
modules() {
  local to=$bin/$2
  npm
  [ -e "$to/node_modules" ] && cmp -s "$1/package-lock.json" "$to/done" && return 0
  echo "need.sh: installing the npm packages of ${1#"$top"/}" >&2
  rm -rf "$to"
  mkdir -p "$to"
  cp "$1/package.json" "$1/package-lock.json" "$to"
  command npm ci --prefix "$to" --ignore-scripts --no-audit --no-fund --prefer-offline >&2
  cp "$1/package-lock.json" "$to/done"
}

# built FILE MODULE: whether a binary was built from that module@version.
built() {
  [ -x "$1" ] && go version -m "$1" 2>/dev/null |
    awk -v want="$2" '$1 == "path" { path = $2 } $1 == "mod" { if (path "@" $3 == want) found = 1 } END { exit !found }'
}

# tool NAME: builds a Go tool at its pinned version if it is missing.
tool() {
  local name=$1 module have
  module=$(module "$name")
  built "$bin/$name" "$module" && return 0
  mkdir -p "$bin"
  for have in "$(go env GOPATH)/bin/$name" "$(command -v "$name" || true)"; do
    if built "$have" "$module"; then
      ln -sfn "$have" "$bin/$name"
      return 0
    fi
  done
  echo "need.sh: building $module" >&2
  rm -f "$bin/$name"
  (cd / && GOBIN=$bin GOFLAGS= CGO_ENABLED=0 GOWORK=off go install "$module")
}

# etcd_program PACKAGE VERSION NAME: builds a program of etcd as its release does, with the dependencies of that version.
# Its modules replace each other, so that go install refuses them.
etcd_program() {
  local package=go.etcd.io/etcd/$1/v3 version=$2 name=$3 dir
  go version -m "$bin/$name" 2>/dev/null | awk -v m="$package" -v v="$version" \
    '$1 == "dep" && $2 == m && $3 == v { found = 1 } END { exit !found }' && return 0
  echo "need.sh: building $package@$version" >&2
  mkdir -p "$bin"
  dir=$(mktemp -d)
  (cd "$dir" && export GOFLAGS= CGO_ENABLED=0 GOWORK=off && go mod init etcd && go get "$package@$version" &&
    go build -trimpath -ldflags '-s -w' -o "$bin/$name" "$package") >/dev/null
  rm -rf "$dir"
}

# etcd_newest builds the etcd server of the embedded store's version, and etcdctl.
etcd_newest() {
  local version=${etcd_versions##* }
  etcd_program server "$version" "etcd-$version"
  etcd_program etcdctl "$version" etcdctl
  ln -sfn "etcd-$version" "$bin/etcd"
}

# etcd_programs builds every etcd server as etcd-VERSION, and etcdctl.
etcd_programs() {
  local version
  for version in $etcd_versions; do
    etcd_program server "$version" "etcd-$version"
  done
  etcd_newest
}

# etcd_old takes the etcd server of Debian 12 as etcd-3.4, without installing its service.
etcd_old() {
  local dir
  [ -x "$bin/etcd-3.4" ] && return 0
  dir=$(mktemp -d)
  (cd "$dir" && apt-get -qq download etcd-server >&2 && dpkg -x etcd-server_3.4*.deb . && mv usr/bin/etcd "$bin/etcd-3.4")
  rm -rf "$dir"
}

# promtool puts the promtool of PATH, or of Debian's package, next to the Go tools. The package is only unpacked: it
# would start a server.
promtool() {
  local dir
  mkdir -p "$bin"
  [ ! -x "$bin/promtool" ] || return 0
  if type -P promtool >/dev/null; then
    ln -sfn "$(type -P promtool)" "$bin/promtool"
    return 0
  fi
  dir=$(mktemp -d)
  echo "need.sh: downloading promtool" >&2
  (cd "$dir" && { apt-get -qq download prometheus || { apt-get -qq update && apt-get -qq download prometheus; }; } &&
    dpkg-deb -x prometheus_*.deb . && mv usr/bin/promtool "$bin/promtool") >&2
  rm -rf "$dir"
  [ -x "$bin/promtool" ]
}

# rpm_ndb builds rpm-ndb, which writes databases of rpm in the form "ndb", out of Debian's sources of rpm.
rpm_ndb() {
  local dir
  [ ! -x "$bin/rpm-ndb" ] || return 0
  echo "need.sh: building rpm-ndb" >&2
  dir=$(mktemp -d)
  mkdir -p "$bin" "$dir/lists/partial" "$dir/parts"
  apt-get indextargets --format 'deb-src $(SITE) $(CODENAME) $(COMPONENT)' 'Created-By: Packages' 'Origin: Debian' \
    'Label: Debian' | sort -u >"$dir/sources.list"
  (cd "$dir" && options=(-qq -o "Dir::Etc::sourcelist=$dir/sources.list" -o "Dir::Etc::sourceparts=$dir/parts" \
    -o "Dir::State::lists=$dir/lists" -o APT::Sandbox::User=root) && apt-get "${options[@]}" update &&
    apt-get "${options[@]}" source --download-only rpm && mkdir rpm &&
    tar -xf rpm_*.orig.tar.* -C rpm --strip-components 1 &&
    sh "$top/internal/scan/catalog/rpm/testdata/makendb.sh" rpm "$bin/rpm-ndb") >&2
  rm -rf "$dir"
  [ -x "$bin/rpm-ndb" ]
}

# apt_lists updates the lists of apt when they are older than a day.
apt_lists() {
  [ -z "$(find /var/lib/apt/lists -maxdepth 1 -name '*InRelease' -mtime -1 2>/dev/null)" ] || return 0
  apt-get -qq update >&2 </dev/null
}

# images prints the packages that write and read disk images in the tests of the scanner.
images() {
  echo qemu-utils bzip2 xz-utils p7zip-full dmg2img xorriso
}

case "${1:-}" in
# shellcheck disable=SC2046 # package names are words
test) tool gotestsum && packages gcc libc6-dev busybox iproute2 libdpkg-perl xfsprogs btrfs-progs $(images) $(guest) ;;
# shellcheck disable=SC2046
demo) packages $(guest) ;;
test-mac) packages xfsprogs ;;
# shellcheck disable=SC2046
images) packages e2fsprogs xfsprogs btrfs-progs lvm2 cryptsetup-bin libfsapfs-utils cpio qemu-system-x86 skopeo umoci $(images) ;;
gotestsum) tool gotestsum ;;
test-s3) tool versitygw ;;
lint) tool golangci-lint && tool gofumpt ;;
vuln) tool govulncheck ;;
bench-scan) packages e2fsprogs xfsprogs btrfs-progs lvm2 cpio qemu-system-x86 qemu-utils skopeo umoci && npm && tool scalibr ;;
bench-host) npm ;;
bench-mac) packages xfsprogs ;;
# shellcheck disable=SC2046
bench-distribution) packages debootstrap e2fsprogs fdisk iproute2 xfsprogs openssh-client $(guest) ;;
peers) npm && tool scalibr && tool syft && tool govulncheck ;;
real)
  packages debootstrap dpkg libdpkg-perl rpm db5.3-util gcc libc6-dev util-linux
  apt_lists && tool syft && rpm_ndb
  ;;
openapi-clients) tool oapi-codegen && modules "$top/test/openapi/testdata/typescript" typescript ;;
e2e)
  [ -n "${CHROMIUM:-}" ] || type -P chromium >/dev/null || packages chromium
  type -P firefox-esr >/dev/null || packages firefox-esr
  type -P curl >/dev/null || packages curl
  ;;
e2e-host)
  packages e2fsprogs ruby unzip zip && npm
  type -P cargo >/dev/null || packages cargo
  type -P jar >/dev/null || packages default-jdk-headless
  python3 -m pip --version >/dev/null 2>&1 || packages python3-pip python3-venv
  ;;
rules) promtool ;;
dist) tool nfpm ;;
test-packages)
  packages debootstrap dpkg rpm cpio skopeo minisign mandoc zsh systemd
  type -P ruby >/dev/null || packages ruby
  tool nfpm
  ;;
etcd) etcd_programs ;;
test-ha) packages haproxy iproute2 && etcd_programs && etcd_old ;;
bench-ha) etcd_newest && tool versitygw ;;
docs-test) packages curl jq openssl iproute2 e2fsprogs qemu-utils && etcd_newest ;;
bin) echo "$bin" ;;
*) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" >&2 && exit 2 ;;
esac
