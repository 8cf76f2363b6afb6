package vercmp

import (
	"cmp"
	"strings"
)

// apkVersion is a version of an Alpine package: apk-package(5),
// "number{.number}{letter}{_suffix{number}}{~hash}{-r#}".
type apkVersion struct{ tokens []apkToken }

// apkToken is one part of a version.
type apkToken struct {
	rank apkRank
	text string // digits, a letter or a hash
	word int    // of a suffix: its position in apkSuffixes
}

// apkRank is the order of parts at the same position: a longer version is above its beginning, but for
// suffixes of what precedes a release.
type apkRank int

const (
	apkPreRelease apkRank = iota // _alpha, _beta, _pre, _rc
	apkEnd
	apkRevision
	apkHash
	apkSuffixNumber
	apkPostRelease // _cvs, _svn, _git, _hg, _p
	apkLetter
	apkNumber
	apkFirstNumber
)

// apkSuffixes are in ascending order.
var apkSuffixes = []string{"alpha", "beta", "pre", "rc", "cvs", "svn", "git", "hg", "p"}

// apkPreReleases is how many of apkSuffixes precede the release.
const apkPreReleases = 4

func parseAPK(text string) (parsedVersion, error) {
	rest := text
	v := apkVersion{tokens: make([]apkToken, 0, 8)}
	last := apkFirstNumber
	for rest != "" || len(v.tokens) == 0 {
		t, n := nextAPKToken(rest, last, len(v.tokens) == 0)
		if n == 0 {
			return nil, invalidVersionError(APK, text)
		}
		v.tokens = append(v.tokens, t)
		last, rest = t.rank, rest[n:]
	}
	return v, nil
}

// nextAPKToken returns the part that a text begins with, and its length; 0 where none may follow the part
// before it.
func nextAPKToken(s string, before apkRank, first bool) (apkToken, int) {
	afterSuffix := before == apkPreRelease || before == apkPostRelease
	switch {
	case s == "":
		return apkToken{}, 0
	case first:
		return apkToken{rank: apkFirstNumber, text: digitRun(s)}, len(digitRun(s))
	case isDigit(s[0]) && afterSuffix:
		return apkToken{rank: apkSuffixNumber, text: digitRun(s)}, len(digitRun(s))
	case s[0] == '.' && before >= apkNumber && digitRun(s[1:]) != "":
		return apkToken{rank: apkNumber, text: digitRun(s[1:])}, 1 + len(digitRun(s[1:]))
	case s[0] >= 'a' && s[0] <= 'z' && before >= apkNumber:
		return apkToken{rank: apkLetter, text: s[:1]}, 1
	case s[0] == '_' && (before >= apkSuffixNumber || afterSuffix):
		return apkSuffix(s)
	case s[0] == '~' && (before >= apkSuffixNumber || afterSuffix):
		n := 1
		for n < len(s) && (isDigit(s[n]) || s[n] >= 'a' && s[n] <= 'f') {
			n++
		}
		if n > 1 {
			return apkToken{rank: apkHash, text: s[1:n]}, n
		}
	case strings.HasPrefix(s, "-r") && before != apkRevision && digitRun(s[2:]) != "":
		return apkToken{rank: apkRevision, text: digitRun(s[2:])}, 2 + len(digitRun(s[2:]))
	}
	return apkToken{}, 0
}

// apkSuffix returns the suffix that a text begins with, and its length with "_".
func apkSuffix(s string) (apkToken, int) {
	n := 1
	for n < len(s) && s[n] >= 'a' && s[n] <= 'z' {
		n++
	}
	for i, word := range apkSuffixes {
		switch {
		case s[1:n] != word:
		case i < apkPreReleases:
			return apkToken{rank: apkPreRelease, word: i}, n
		default:
			return apkToken{rank: apkPostRelease, word: i}, n
		}
	}
	return apkToken{}, 0
}

func (v apkVersion) compare(other parsedVersion) int {
	w := other.(apkVersion)
	for i := range max(len(v.tokens), len(w.tokens)) {
		if c := compareAPKTokens(apkTokenAt(v.tokens, i), apkTokenAt(w.tokens, i)); c != 0 {
			return c
		}
	}
	return 0
}

func apkTokenAt(tokens []apkToken, i int) apkToken {
	if i < len(tokens) {
		return tokens[i]
	}
	return apkToken{rank: apkEnd}
}

// compareAPKTokens compares numbers by value. Numbers after a point with a leading zero are decimal
// places, compared as text: 1.09 is below 1.1.
func compareAPKTokens(a, b apkToken) int {
	if a.rank != b.rank {
		return cmp.Compare(a.rank, b.rank)
	}
	switch {
	case a.rank == apkHash, a.rank == apkLetter:
		return strings.Compare(a.text, b.text)
	case a.rank == apkNumber && (a.text[0] == '0' || b.text[0] == '0'):
		return strings.Compare(a.text, b.text)
	}
	return cmp.Or(cmp.Compare(a.word, b.word),
		compareNumbers(strings.TrimLeft(a.text, "0"), strings.TrimLeft(b.text, "0")))
}
