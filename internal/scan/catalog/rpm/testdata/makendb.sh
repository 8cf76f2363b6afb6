#!/bin/sh
# Compiles a program that writes a database of the form "ndb", Packages.db in the current directory, with the code of
# rpm itself, which Debian leaves out of its rpm. The program reads lines NUMBER|HEADER of headers in hexadecimal, with
# numbers below 1000. Some packages are removed again, which leaves free slots and blocks. It needs gcc and the sources
# of rpm:
#
#   sh makendb.sh rpm-4.18.0+dfsg FILE
set -eu
sources=$(cd "$1" && pwd)
to=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir -p stub/rpm
printf '%s\n' '#include <stdlib.h>' '#define _(s) (s)' '#define xcalloc calloc' '#define xmalloc malloc' \
	'#define xrealloc realloc' '#define xstrdup strdup' >stub/system.h
printf '%s\n' '#define rpmlog(...) (void)0' >stub/rpm/rpmlog.h
cat >ndb.c <<'X'
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "rpmpkg.h"
static unsigned char hex[1 << 24], raw[1 << 23];
int main(void) {
	rpmpkgdb db;
	unsigned n, k, last = 0;
	if (rpmpkgOpen(&db, "Packages.db", O_RDWR | O_CREAT, 0644)) return 1;
	while (scanf("%u|%16000000s", &n, hex) == 2) {
		unsigned len = strlen((char *)hex) / 2;
		for (k = 0; k < len; k++) sscanf((char *)hex + 2 * k, "%2hhx", raw + k);
		if (rpmpkgPut(db, n, raw, len) || rpmpkgPut(db, n + 1000, raw, len)) return 2;
		last = n;
	}
	for (n = 1; n <= last; n++) rpmpkgDel(db, n + 1000);
	rpmpkgClose(db);
	return 0;
}
X
gcc -D_GNU_SOURCE -w -I stub -I "$sources/lib/backend/ndb" -o "$to" ndb.c "$sources/lib/backend/ndb/rpmpkg.c"
