package vulndb

import "strings"

// PackageKey returns the normalized name under which the packages of an ecosystem are stored, so that
// names of the same package are equal.
func PackageKey(eco Ecosystem, name string) string {
	switch eco {
	case PyPI: // PEP 503
		return collapseSeparators(strings.ToLower(name))
	case Crates: // its registry refuses two names that differ in these alone
		return strings.ReplaceAll(strings.ToLower(name), "_", "-")
	case Homebrew:
		return strings.ToLower(name)
	case SwiftURL: // the address of a repository, which its host finds in upper and lower case
		name = strings.ToLower(name)
		if _, rest, ok := strings.Cut(name, "://"); ok {
			name = rest
		}
		return strings.TrimSuffix(strings.TrimSuffix(name, "/"), ".git")
	case Maven:
		group, artifact, ok := strings.Cut(name, ":")
		if !ok {
			return name
		}
		return strings.TrimSpace(group) + ":" + strings.TrimSpace(artifact)
	default: // npm, RubyGems and Go distinguish upper case from lower case
		return name
	}
}

// collapseSeparators replaces every run of "-", "_" and "." by one "-".
func collapseSeparators(s string) string {
	var b strings.Builder
	run := false
	for _, r := range s {
		if r == '-' || r == '_' || r == '.' {
			run = true
			continue
		}
		if run {
			b.WriteByte('-')
			run = false
		}
		b.WriteRune(r)
	}
	if run {
		b.WriteByte('-')
	}
	return b.String()
}

// ProductKey returns the form of a vendor or product of a CPE under which applicabilities are
// stored: lower case, without the escapes of formatted strings.
func ProductKey(s string) string {
	return strings.ToLower(strings.ReplaceAll(s, `\`, ""))
}

// Keys of entries; parts are separated by a zero byte, which no part contains.

func ecosystemPrefix(eco Ecosystem) []byte { return []byte(releaseKey(eco) + "\x00") }

func advisoryPrefix(eco Ecosystem, name string) []byte {
	release, key := releaseKey(eco), PackageKey(eco, name)
	out := make([]byte, 0, len(release)+len(key)+2)
	out = append(append(out, release...), 0)
	return append(append(out, key...), 0)
}

func applicabilityPrefix(vendor, product string) []byte {
	return []byte(ProductKey(vendor) + "\x00" + ProductKey(product) + "\x00")
}
