#!/bin/sh
# Makes the databases of the tests with rpm itself, and the lists of what rpm finds in them. It needs the Debian
# packages rpm, sqlite3, db5.3-util, python3 and gcc, the sources of rpm (apt-get source rpm), and no privileges:
#
#   sh makedatabases.sh rpm-4.18.0+dfsg
set -eu
sources=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SOURCE_DATE_EPOCH=1700000000
cd "$work"

# spec NAME EPOCH VERSION ARCH: a package with the files that standard input installs.
spec() {
	{
		printf 'Name: %s\n' "$1"
		[ "$2" = - ] || printf 'Epoch: %s\n' "$2"
		printf 'Version: %s\nRelease: 2.el9_4\nSummary: test\nLicense: MIT and BSD\n' "$3"
		[ "$4" = - ] || printf 'BuildArch: %s\n' "$4"
		cat
	} >"$1.spec"
	rpmbuild -bb --nodeps --quiet --define "_topdir $work/rpmbuild" --define '_build_id_links none' \
		--define 'debug_package %{nil}' --define '_buildhost test' --define '__brp_python_bytecompile %{nil}' \
		--target "$(case "$4" in -) echo x86_64 ;; *) echo "$4" ;; esac)-redhat-linux" "$1.spec" >/dev/null 2>&1
}

spec openssl 1 3.0.7 - <<'X'
%description
%package libs
Summary: libs
%description libs
%package perl
Summary: another version than that of the source
Version: 5.2
Release: 7.el9
Epoch: 4
%description perl
%install
mkdir -p %{buildroot}/usr/bin %{buildroot}/usr/lib64
echo x >%{buildroot}/usr/bin/openssl
echo x >%{buildroot}/usr/lib64/libssl.so.3.0.7
ln -s libssl.so.3.0.7 %{buildroot}/usr/lib64/libssl.so.3
echo x >%{buildroot}/usr/bin/openssl.pl
%files
/usr/bin/openssl
%files libs
/usr/lib64/libssl.so.3.0.7
/usr/lib64/libssl.so.3
%files perl
/usr/bin/openssl.pl
X
spec python3-requests - 2.25.1 noarch <<'X'
%description
%install
d=%{buildroot}/usr/lib/python3.9/site-packages
mkdir -p $d/requests-2.25.1.dist-info $d/requests
echo x >$d/requests-2.25.1.dist-info/METADATA
echo x >$d/requests/__init__.py
%files
/usr/lib/python3.9/site-packages/requests-2.25.1.dist-info
/usr/lib/python3.9/site-packages/requests
X
spec bash - 5.1.8 - <<'X'
%description
%install
mkdir -p %{buildroot}/bin
echo x >%{buildroot}/bin/bash
%files
/bin/bash
X
# Its header takes several pages of every database.
spec kernel-devel 0 5.14.0 - <<'X'
%description
%install
for d in $(seq 60); do
	mkdir -p %{buildroot}/usr/src/kernels/5.14.0/dir$d
	for f in $(seq 20); do echo $d$f >%{buildroot}/usr/src/kernels/5.14.0/dir$d/file$f.h; done
done
mkdir -p %{buildroot}/usr/src/kernels/5.14.0/scripts/node_modules/ws
echo '{}' >%{buildroot}/usr/src/kernels/5.14.0/scripts/node_modules/ws/package.json
%files
/usr/src/kernels/5.14.0
X
spec gpg-pubkey - fd431d51 noarch <<'X'
%description
%files
X
spec removed - 1.0 noarch <<'X'
%description
%files
X
for i in $(seq 40); do
	spec "filler$i" - "$i.0" noarch <<'X'
%description
%files
X
done

root="$work/sqlite"
mkdir -p "$root"
rpms() { rpm --root "$root" --dbpath /db --define '_db_backend sqlite' "$@" 2>/dev/null; }
rpms --initdb
rpms -i --justdb --nodeps --ignorearch --nosignature --nodigest $(find "$work/rpmbuild/RPMS" -name '*.rpm' |
	LC_ALL=C sort)
rpms -e --justdb --nodeps removed filler1 filler13
gzip -9n <"$root/db/rpmdb.sqlite" >"$here/sqlite.gz"
columns='%{NAME}\t%{EPOCH}\t%{VERSION}\t%{RELEASE}\t%{ARCH}\t%{SOURCERPM}\t%{LICENSE}\n'
rpms -qa --qf "$columns" | LC_ALL=C sort >"$here/packages.tsv"
rpms -qa --qf '[%{=NAME}\t%{FILENAMES}\n]' | LC_ALL=C sort | gzip -9n >"$here/files.tsv.gz"
headers() { sqlite3 sqlite/db/rpmdb.sqlite 'SELECT hnum, hex(blob) FROM Packages'; }

# Debian builds rpm without its backend "ndb".
sh "$here/makendb.sh" "$sources" ndb
headers | ./ndb
gzip -9n <Packages.db >"$here/ndb.gz"

# rpm no longer writes Berkeley databases: its own library makes one from the same headers, with record 0, which has
# the highest number. rpm reads it.
# bdb FORMAT ORDER FILE
bdb() {
	rm -f Packages
	{
		printf 'VERSION=3\nformat=bytevalue\ntype=hash\ndb_pagesize=4096\ndb_lorder=%s\nHEADER=END\n' "$2"
		headers | python3 -c "
import struct, sys
rows = [line.strip().split('|') for line in sys.stdin]
print(' ' + struct.pack('$1', 0).hex())
print(' ' + struct.pack('$1', max(int(n) for n, _ in rows)).hex())
for n, blob in rows:
    print(' ' + struct.pack('$1', int(n)).hex())
    print(' ' + blob.lower())
"
		printf 'DATA=END\n'
	} | db5.3_load Packages
	gzip -9n <Packages >"$here/$3.gz"
}
bdb '<I' 1234 bdb
mkdir -p bdbroot/db
cp Packages bdbroot/db/
rpm --root "$work/bdbroot" --dbpath /db --define '_db_backend bdb_ro' -qa \
	--qf "$columns" 2>/dev/null | LC_ALL=C sort >bdb.packages
cmp "$here/packages.tsv" bdb.packages
bdb '>I' 4321 bdb-bigendian

# A database whose newest packages are only in the log of SQLite, as another program reads it.
python3 - sqlite/db/rpmdb.sqlite "$work" <<'X'
import shutil, sqlite3, sys
path, work = sys.argv[1:]
shutil.copy(path, work + "/wal.sqlite")
c = sqlite3.connect(work + "/wal.sqlite")
c.execute("PRAGMA journal_mode=WAL")
c.execute("PRAGMA wal_autocheckpoint=0")
c.execute("DELETE FROM Packages WHERE hnum > (SELECT max(hnum) FROM Packages) - 10")
c.commit()
shutil.copy(work + "/wal.sqlite", work + "/saved.sqlite")
shutil.copy(work + "/wal.sqlite-wal", work + "/saved.sqlite-wal")
with open(work + "/wal.count", "w") as f:
    f.write("%d\n" % c.execute("SELECT count(*) FROM Packages").fetchone())
X
gzip -9n <saved.sqlite >"$here/wal.sqlite.gz"
gzip -9n <saved.sqlite-wal >"$here/wal.sqlite-wal.gz"
cp wal.count "$here/wal.count"
ls -l "$here"
