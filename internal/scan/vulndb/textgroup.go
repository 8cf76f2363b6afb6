package vulndb

import (
	"bytes"
	"compress/flate"
	"fmt"
	"io"
)

// maxTextGroupBytes is the maximum size of a group of descriptions, decompressed.
const maxTextGroupBytes = 64 << 10

// findText returns the description of an ID in a group: a run of descriptions in the order of their IDs, compressed
// together, as some files of schema 1 have them.
func findText(packed []byte, id string) (Description, bool, error) {
	r := flate.NewReaderDict(bytes.NewReader(packed), []byte(textDictionary))
	raw, err := io.ReadAll(io.LimitReader(r, maxTextGroupBytes+1))
	if err != nil {
		return Description{}, false, fmt.Errorf("%w: unpack descriptions: %w", ErrDamaged, err)
	}
	if len(raw) > maxTextGroupBytes {
		return Description{}, false, fmt.Errorf("%w: a group of descriptions has too many bytes", ErrDamaged)
	}
	for d := newDecoder(raw); len(d.data) > 0 && d.err == nil; {
		found := d.str()
		text := d.description(found)
		if d.err != nil {
			return Description{}, false, d.err
		}
		if found == id {
			return text, true, nil
		}
	}
	return Description{}, false, nil
}

// textDictionary is what groups were compressed with. It is part of the format: it never changes.
const textDictionary = "Improper Neutralization of Special Elements used in an Improper Input Validation " +
	"use-after-free heap-based buffer overflow out-of-bounds read out-of-bounds write null pointer dereference " +
	"integer overflow race condition denial of service (DoS) via cross-site scripting (XSS) SQL injection " +
	"path traversal server-side request forgery (SSRF) cross-site request forgery (CSRF) prototype pollution " +
	"deserialization of untrusted data arbitrary code execution remote code execution information disclosure " +
	"In the Linux kernel, the following vulnerability has been resolved: Malicious code in package " +
	"This vulnerability affects versions of the component prior to and including an unknown function of the file " +
	"The manipulation of the argument leads to The attack can be launched remotely. The exploit has been disclosed " +
	"to the public and may be used. An issue was discovered in before allows remote attackers to cause a " +
	"allows an authenticated attacker to execute arbitrary users are recommended to upgrade to version " +
	"which fixes the issue. The plugin for WordPress is vulnerable to in all versions up to, and including, due to " +
	"insufficient input sanitization and output escaping " +
	"http://www.openwall.com/lists/oss-security/2024/https://lists.apache.org/thread/https://bugzilla.redhat.com/" +
	"https://access.redhat.com/errata/RHSA-2024:https://access.redhat.com/security/cve/CVE-2024-" +
	"https://lists.debian.org/debian-lts-announce/2024/msg00https://lists.fedoraproject.org/archives/list/" +
	"https://security.netapp.com/advisory/ntap-2024https://security.gentoo.org/glsa/2024https://www.debian.org/" +
	"security/2024/dsa-https://ubuntu.com/security/notices/USN-" +
	"https://www.suse.com/support/update/announcement/2024/" +
	"https://git.kernel.org/stable/c/https://vuldb.com/?id.https://www.exploit-db.com/exploits/" +
	"https://plugins.trac.wordpress.org/changeset/https://www.wordfence.com/threat-intel/vulnerabilities/id/" +
	"https://nvd.nist.gov/vuln/detail/CVE-2024-https://pkg.go.dev/vuln/GO-2024-" +
	"https://rustsec.org/advisories/RUSTSEC-" +
	"https://github.com/advisories/GHSA-https://github.com/pypa/advisory-database/tree/main/vulns/PYSEC-2024-.yaml" +
	"https://github.com//security/advisories/GHSA-https://github.com//releases/tag/v https://github.com//pull/" +
	"https://github.com//issues/https://github.com//blob/main/https://github.com//commit/"
