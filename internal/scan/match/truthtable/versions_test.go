package truthtable

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// order compares two versions of an ecosystem; ok is false when one is invalid.
type order func(a, b string) (sign int, ok bool)

var orders = map[string]order{
	"Go":       compareSemver,
	"npm":      compareSemver,
	crates:     compareSemver,
	"PyPI":     comparePEP440,
	"RubyGems": compareGem,
	"Maven":    compareMaven,
	"Homebrew": compareBrew,
	"SwiftURL": compareSemver,

	"Debian": compareByKeys(debKey), "Ubuntu": compareByKeys(debKey), "Alpine": compareByKeys(apkKey),
	"Red Hat": compareByKeys(rpmKey), "Rocky Linux": compareByKeys(rpmKey), "AlmaLinux": compareByKeys(rpmKey),
}

// crates is concatenated, because the name of the registry is that of a network host.
const crates = "crates" + ".io"

// parsed caches the results of a parser, as the same versions are compared repeatedly.
func parsed[T any](parse func(string) (T, bool)) func(string) (T, bool) {
	type result struct {
		value T
		ok    bool
	}
	known := map[string]result{}
	return func(s string) (T, bool) {
		r, seen := known[s]
		if !seen {
			r.value, r.ok = parse(s)
			known[s] = r
		}
		return r.value, r.ok
	}
}

// numbers compares decimal numbers of any length.
func numbers(a, b string) int {
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	if c := cmp.Compare(len(a), len(b)); c != 0 {
		return c
	}
	return strings.Compare(a, b)
}

func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// semver is a version of semver.org; missing numbers are 0.
type semver struct {
	core [3]string
	pre  []string
}

// goVersion matches a candidate as Go writes it: 1.21rc3.
var goVersion = regexp.MustCompile(`^(\d+(?:\.\d+)*)(rc|beta)(\d+)$`)

var parseSemver = parsed(func(s string) (v semver, ok bool) {
	s = strings.TrimPrefix(strings.TrimPrefix(s, "go"), "v")
	if m := goVersion.FindStringSubmatch(s); m != nil {
		s = m[1] + "-" + m[2] + "." + m[3]
	}
	s, _, _ = strings.Cut(s, "+")
	core, pre, hasPre := strings.Cut(s, "-")
	parts := strings.Split(core, ".")
	if len(parts) > 3 {
		return v, false
	}
	v.core = [3]string{"0", "0", "0"}
	for i, p := range parts {
		if !isNumber(p) {
			return v, false
		}
		v.core[i] = p
	}
	if hasPre {
		v.pre = strings.Split(pre, ".")
		if slices.Contains(v.pre, "") {
			return v, false
		}
	}
	return v, true
})

func compareSemver(a, b string) (int, bool) {
	x, ok1 := parseSemver(a)
	y, ok2 := parseSemver(b)
	if !ok1 || !ok2 {
		return 0, false
	}
	for i := range x.core {
		if c := numbers(x.core[i], y.core[i]); c != 0 {
			return c, true
		}
	}
	switch {
	case len(x.pre) == 0 || len(y.pre) == 0:
		return -cmp.Compare(min(1, len(x.pre)), min(1, len(y.pre))), true
	default:
		return slices.CompareFunc(x.pre, y.pre, prePart), true
	}
}

// prePart compares parts of a pre-release: numbers precede all words.
func prePart(a, b string) int {
	switch na, nb := isNumber(a), isNumber(b); {
	case na && nb:
		return numbers(a, b)
	case na:
		return -1
	case nb:
		return 1
	default:
		return strings.Compare(a, b)
	}
}

var pep440 = regexp.MustCompile(`^v?(?:(\d+)!)?(\d+(?:\.\d+)*)` +
	`(?:[-_.]?(alpha|a|beta|b|preview|pre|rc|c)[-_.]?(\d*))?` +
	`(?:-(\d+)|[-_.]?(post|rev|r)[-_.]?(\d*))?` +
	`(?:[-_.]?(dev)[-_.]?(\d*))?` +
	`(?:\+([a-z0-9]+(?:[-_.][a-z0-9]+)*))?$`)

// pyVersion has the ordering parts of a Python version: epoch, release, then a word and a number
// each for pre-release, post release and development release, and the local part.
type pyVersion struct {
	epoch            string
	release          []string
	pre, post, dev   int // which word, in the order of PEP 440
	preN, postN, dvN string
	local            []string
}

var parsePEP440 = parsed(func(s string) (v pyVersion, ok bool) {
	m := pep440.FindStringSubmatch(strings.ToLower(strings.TrimSpace(s)))
	if m == nil {
		return v, false
	}
	v.epoch, v.preN, v.dvN = m[1], m[4], m[9]
	v.release = strings.Split(m[2], ".")
	for len(v.release) > 1 && strings.Trim(v.release[len(v.release)-1], "0") == "" {
		v.release = v.release[:len(v.release)-1]
	}
	hasPost := m[5] != "" || m[6] != ""
	v.pre = map[string]int{"": 5, "a": 2, "alpha": 2, "b": 3, "beta": 3}[m[3]]
	switch {
	case m[3] == "" && !hasPost && m[8] != "":
		v.pre = 1 // a development release of the release itself precedes its alphas
	case v.pre == 0:
		v.pre = 4
	}
	if hasPost {
		v.post, v.postN = 1, m[5]+m[7]
	}
	if v.dev = 1; m[8] != "" {
		v.dev = 0
	}
	if m[10] != "" {
		v.local = strings.FieldsFunc(m[10], func(r rune) bool { return strings.ContainsRune("-_.", r) })
	}
	return v, true
})

func comparePEP440(a, b string) (int, bool) {
	x, ok1 := parsePEP440(a)
	y, ok2 := parsePEP440(b)
	if !ok1 || !ok2 {
		return 0, false
	}
	return cmp.Or(numbers(x.epoch, y.epoch), slices.CompareFunc(x.release, y.release, numbers),
		cmp.Compare(x.pre, y.pre), numbers(x.preN, y.preN),
		cmp.Compare(x.post, y.post), numbers(x.postN, y.postN),
		cmp.Compare(x.dev, y.dev), numbers(x.dvN, y.dvN),
		slices.CompareFunc(x.local, y.local, localPart)), true
}

// localPart compares parts of a local version, and those of RubyGems: words precede all numbers, as
// words mark pre-releases there.
func localPart(a, b string) int {
	if isNumber(a) == isNumber(b) {
		return prePart(a, b)
	}
	return -prePart(a, b)
}

var (
	gemVersion = regexp.MustCompile(`^\s*[0-9]+(\.[0-9a-zA-Z]+)*(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?\s*$`)
	gemSegment = regexp.MustCompile(`[0-9]+|[a-zA-Z]+`)
)

// gemSegments returns the parts of a version of RubyGems, without the zeros at the end of its
// numbers and of its words.
var gemSegments = parsed(func(s string) ([]string, bool) {
	if !gemVersion.MatchString(s) {
		return nil, false
	}
	all := gemSegment.FindAllString(strings.ReplaceAll(s, "-", ".pre."), -1)
	first := slices.IndexFunc(all, func(p string) bool { return !isNumber(p) })
	if first < 0 {
		first = len(all)
	}
	return append(dropZeros(all[:first]), dropZeros(all[first:])...), true
})

func dropZeros(s []string) []string {
	for len(s) > 0 && isNumber(s[len(s)-1]) && numbers(s[len(s)-1], "0") == 0 {
		s = s[:len(s)-1]
	}
	return slices.Clone(s)
}

func compareGem(a, b string) (int, bool) {
	x, ok1 := gemSegments(a)
	y, ok2 := gemSegments(b)
	if !ok1 || !ok2 {
		return 0, false
	}
	for i := range max(len(x), len(y)) {
		p, q := "0", "0"
		if i < len(x) {
			p = x[i]
		}
		if i < len(y) {
			q = y[i]
		}
		if c := localPart(p, q); c != 0 {
			return c, true
		}
	}
	return 0, true
}

var brewRevision = regexp.MustCompile(`^(.*)_(\d+)$`)

// compareBrew compares by version, then by the revision after the underscore.
func compareBrew(a, b string) (int, bool) {
	a, ra := splitRevision(a)
	b, rb := splitRevision(b)
	return cmp.Or(compareLoose(a, b), numbers(ra, rb)), a != "" && b != ""
}

func splitRevision(s string) (version, revision string) {
	if m := brewRevision.FindStringSubmatch(s); m != nil {
		return m[1], m[2]
	}
	return s, ""
}

var (
	looseToken = regexp.MustCompile(`[0-9]+|[a-z]+`)
	preWord    = regexp.MustCompile(`^(dev|a|alpha|b|beta|pre|preview|rc|c)$`)
)

var looseTokens = parsed(func(s string) ([]string, bool) {
	return looseToken.FindAllString(strings.ToLower(s), -1), true
})

// compareLoose compares versions of arbitrary programs: numbers, words that precede a release, and
// others (patch levels), which follow it.
func compareLoose(a, b string) int {
	x, _ := looseTokens(a)
	y, _ := looseTokens(b)
	for i := range max(len(x), len(y)) {
		p, q := "", ""
		if i < len(x) {
			p = x[i]
		}
		if i < len(y) {
			q = y[i]
		}
		rp, rq := looseRank(p, looseNext(x, i)), looseRank(q, looseNext(y, i))
		if c := cmp.Compare(rp, rq); c != 0 {
			return c
		}
		c := strings.Compare(p, q)
		if rp == 1 || isNumber(p) && isNumber(q) {
			c = numbers(p, q)
		}
		if c != 0 {
			return c
		}
	}
	return 0
}

// looseNext returns the token after i.
func looseNext(tokens []string, i int) string {
	if i+1 < len(tokens) {
		return tokens[i+1]
	}
	return ""
}

// looseRank ranks kinds of tokens; an absent token and 0 are equal. A letter alone is a patch level
// (1.0.2a), with a number it may be an alpha (3.15.0a1).
func looseRank(s, next string) int {
	switch {
	case preWord.MatchString(s) && (len(s) > 1 || isNumber(next)):
		return 0
	case s == "" || isNumber(s) && numbers(s, "0") == 0:
		return 1
	case !isNumber(s):
		return 2
	default:
		return 3
	}
}
