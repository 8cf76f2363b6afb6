package vercmp

import (
	"cmp"
	"strings"
	"unicode"
)

// naturalVersion is a version of numbers and words, as Homebrew compares them, and as fits the versions of
// NVD: words that precede a release ("rc1"), and all others that follow it ("1.1.1w").
type naturalVersion struct {
	tokens   []token
	revision string // of Homebrew: a number without leading zeros
}

// token is a number, or a word with the number after it.
type token struct {
	rank   rank
	word   string // of a word without a defined rank
	number string // without leading zeros
}

// rank is the order of a token among others at its position.
type rank int8

const (
	rankDev rank = iota
	rankAlpha
	rankBeta
	rankPreview
	rankCandidate
	rankEnd // the version ends here
	rankPatch
	rankPost
	rankWord
	rankNumber
)

// rankedWords are those with a defined rank.
var rankedWords = map[string]rank{
	"dev": rankDev, "nightly": rankDev, "snapshot": rankDev, "alpha": rankAlpha, "beta": rankBeta,
	"pre": rankPreview, "preview": rankPreview, "prerelease": rankPreview, "rc": rankCandidate, "cr": rankCandidate,
	"p": rankPatch, "patch": rankPatch, "post": rankPost,
}

// shortRankedWords are words only where a number follows: "3.12.0a1" precedes 3.12.0, "1.0.2a" follows 1.0.2.
var shortRankedWords = map[string]rank{"a": rankAlpha, "b": rankBeta}

// parseHomebrew parses a version of a formula. Letters may precede its first number ("r3108" of
// x264); words alone ("HEAD-1a2b3c4", "latest") name the state of one day, which has no order among
// versions.
func parseHomebrew(text string) (parsedVersion, error) {
	main, revision := strings.TrimSpace(text), "0"
	if at := strings.LastIndexByte(main, '_'); at > 0 && isNumber(main[at+1:]) {
		main, revision = main[:at], trimLeadingZeros(main[at+1:])
	}
	if rest := strings.TrimLeftFunc(main, unicode.IsLetter); rest == "" || !isDigit(rest[0]) {
		return nil, invalidVersionError(Homebrew, text)
	}
	return naturalVersion{tokens: tokenize(main), revision: revision}, nil
}

func parseNVD(text string) (parsedVersion, error) {
	text = strings.TrimSpace(text)
	if len(text) > 1 && (text[0] == 'v' || text[0] == 'V') && isDigit(text[1]) {
		text = text[1:]
	}
	if text == "" || !isDigit(text[0]) || isCommit(text) {
		return nil, invalidVersionError(NVD, text)
	}
	return naturalVersion{tokens: tokenize(text), revision: "0"}, nil
}

// isCommit reports whether a text looks like the name of a commit, which NVD has for projects that
// publish no versions: hexadecimal digits with some letters among them.
func isCommit(s string) bool {
	letters := 0
	for i := range len(s) {
		switch c := s[i] | 0x20; {
		case isDigit(s[i]):
		case c >= 'a' && c <= 'f':
			letters++
		default:
			return false
		}
	}
	return len(s) >= 7 && letters >= 2
}

// tokenize splits a version where digits, letters and everything else meet.
func tokenize(s string) []token {
	tokens := make([]token, 0, 8)
	for s != "" {
		n := runLength(s)
		if n == 0 {
			s = s[1:]
			continue
		}
		run := strings.ToLower(s[:n])
		s = s[n:]
		if isDigit(run[0]) {
			tokens = append(tokens, token{rank: rankNumber, number: trimLeadingZeros(run)})
			continue
		}
		var t token
		t, s = wordToken(run, s)
		tokens = append(tokens, t)
	}
	return tokens
}

// wordToken returns the token of a word, with the number after it, and the remaining text.
func wordToken(run, rest string) (token, string) {
	r, ok := rankedWords[run]
	next := rest
	if len(next) > 0 && (next[0] == '.' || next[0] == '-') && r != rankPatch {
		next = next[1:]
	}
	digits := 0
	for digits < len(next) && isDigit(next[digits]) {
		digits++
	}
	if !ok && digits > 0 && len(next) == len(rest) {
		r, ok = shortRankedWords[run]
	}
	if !ok {
		return token{rank: rankWord, word: run}, rest
	}
	if digits == 0 {
		return token{rank: r, number: "0"}, rest
	}
	return token{rank: r, number: trimLeadingZeros(next[:digits])}, next[digits:]
}

// compare compares token by token, where a zero opposite a word is skipped, so that 1.0-rc1
// precedes 1.0.0 and 1.0a follows it.
func (v naturalVersion) compare(other parsedVersion) int {
	w := other.(naturalVersion)
	for i, j := 0, 0; i < len(v.tokens) || j < len(w.tokens); {
		a, b := tokenAt(v.tokens, i), tokenAt(w.tokens, j)
		switch c := compareTokens(a, b); {
		case c == 0:
			i, j = i+1, j+1
		case a.isZero() && b.isWord():
			i++
		case b.isZero() && a.isWord():
			j++
		default:
			return c
		}
	}
	return compareNumbers(v.revision, w.revision)
}

func (t token) isZero() bool { return t.rank == rankNumber && t.number == "0" }

func (t token) isWord() bool { return t.rank != rankNumber && t.rank != rankEnd }

func tokenAt(tokens []token, i int) token {
	if i < len(tokens) {
		return tokens[i]
	}
	return token{rank: rankEnd}
}

func compareTokens(a, b token) int {
	switch {
	case a.isZero() && b.rank == rankEnd, b.isZero() && a.rank == rankEnd:
		return 0
	case a.rank != b.rank:
		return cmp.Compare(a.rank, b.rank)
	case a.word != b.word:
		return cmp.Compare(a.word, b.word)
	}
	return compareNumbers(a.number, b.number)
}

// compareNumbers compares numbers of any size without leading zeros.
func compareNumbers(a, b string) int {
	if len(a) != len(b) {
		return cmp.Compare(len(a), len(b))
	}
	return strings.Compare(a, b)
}
