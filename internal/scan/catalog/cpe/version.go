package cpe

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// opensslOfPod returns the version of OpenSSL in a version of the pod OpenSSL-Universal, which has no letters: by its
// podspecs, 3.1.5004 is 3.1.5 (build 4), 1.1.2301 is 1.1.1w (letter 23, build 1), 1.1.17 and 1.1.171 are 1.1.1h,
// and 1.0.2.19 is 1.0.2t (letters counted from zero).
func opensslOfPod(version string) string {
	parts := strings.Split(version, ".")
	last, err := strconv.ParseUint(parts[len(parts)-1], 10, 31)
	if err != nil {
		return version
	}
	head := strings.Join(parts[:len(parts)-1], ".")
	switch {
	case len(parts) == 4 && parts[0] == "1":
		return head + letter(last)
	case len(parts) != 3:
		return version
	case head == "1.1" && last >= 1000:
		return "1.1.1" + letter(last/100-1)
	case head == "1.1" && last >= 100:
		return "1.1.1" + letter(last/10%10)
	case head == "1.1" && last >= 10:
		return "1.1.1" + letter(last%10)
	case last >= 1000:
		return head + "." + strconv.FormatUint(last/1000, 10)
	}
	return version
}

// letter returns a letter of the alphabet, counted from zero.
func letter(n uint64) string {
	if n > 'z'-'a' {
		return ""
	}
	return string(rune('a' + n))
}

// javaUpdate matches the versions of JDKs before 9: 1.8.0_292, of Homebrew 1.8.0-292.
var javaUpdate = regexp.MustCompile(`^1\.([5-8])\.0[_+-](\d{1,5})$`)

// ExactVersions returns other spellings of the version of a package in criteria with a single version, as its text
// and its update with a dash between: that of a JDK before 9 is 8 with update292, or 1.8.0 with update_292.
func ExactVersions(p catalog.Package) []string {
	if !strings.Contains(p.Name, "jdk") {
		return nil
	}
	m := javaUpdate.FindStringSubmatch(UpstreamVersion(p))
	if m == nil {
		return nil
	}
	update, long := "-update"+m[2], "1."+m[1]+".0"
	return []string{m[1] + update, m[1] + "-update_" + m[2], long + update, long + "-update_" + m[2]}
}

// firefoxEdition returns the products of an application, of which Firefox has its edition in its version: since 2011
// only the extended support releases have a second number other than zero.
func firefoxEdition(p catalog.Package, products []Product) []Product {
	_, rest, _ := strings.Cut(p.Version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	isESR := minor != "" && strings.Trim(minor, "0123456789") == "" && strings.Trim(minor, "0") != ""
	if p.Kind != catalog.MacOSApp || !isESR {
		return products
	}
	var out []Product
	for _, n := range products {
		if n.Vendor == "mozilla" && n.Product == "firefox" {
			n.Edition = "esr"
			out = append(out, Product{Vendor: n.Vendor, Product: "firefox_esr", Curated: true})
		}
		out = append(out, n)
	}
	return out
}
