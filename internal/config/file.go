package config

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// maxFileBytes bounds a configuration file, in bytes.
const maxFileBytes = 1 << 20

// keyPattern is the form of a key of the file.
var keyPattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// fileEntry is one line of a configuration file that sets something.
type fileEntry struct {
	line       int
	key, value string
}

// ReadFile returns the values of a configuration file by key. For a missing file the error is
// fs.ErrNotExist.
func ReadFile(path string, table Table) (map[string]string, error) { return readFile(path, table) }

// readFile reads a configuration file and rejects unknown keys with the prefix of
// settings. Other keys are ignored, so that the file can also be the environment file of a service
// manager.
func readFile(path string, table Table) (map[string]string, error) {
	raw, err := readBounded(path, maxFileBytes)
	if err != nil {
		return nil, fmt.Errorf("read configuration file %q: %w", path, err)
	}
	entries, err := parseFile(raw)
	if err != nil {
		return nil, fmt.Errorf("read configuration file %q: %w", path, err)
	}
	values := make(map[string]string, len(entries))
	for _, e := range entries {
		if err := table.checkKey(e.key); err != nil {
			return nil, fmt.Errorf("configuration file %q: line %d: %w", path, e.line, err)
		}
		values[e.key] = e.value
	}
	return values, nil
}

// parseFile parses KEY=value lines. Empty lines and lines that start with # are ignored; a key may
// be set once only.
func parseFile(raw []byte) ([]fileEntry, error) {
	if !utf8.Valid(raw) || bytes.IndexByte(raw, 0) >= 0 {
		return nil, errors.New("not UTF-8 text")
	}
	var entries []fileEntry
	first := map[string]int{}
	no := 0
	for line := range strings.SplitSeq(string(raw), "\n") {
		no++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		key, rest, found := strings.Cut(line, "=")
		key = strings.TrimSpace(key)
		if !found || !keyPattern.MatchString(key) {
			return nil, fmt.Errorf("line %d: want KEY=value", no)
		}
		if before, twice := first[key]; twice {
			return nil, fmt.Errorf("line %d: %s is already set in line %d", no, key, before)
		}
		first[key] = no
		value, err := unquote(strings.TrimSpace(rest))
		if err != nil {
			return nil, fmt.Errorf("line %d: %s: %w", no, key, err)
		}
		entries = append(entries, fileEntry{no, key, value})
	}
	return entries, nil
}

// unquote parses the value of a line. Between single quotes everything is literal; between double
// quotes \" and \\ stand for the second character; without quotes white space followed by # starts
// a comment.
func unquote(text string) (string, error) {
	if text == "" || text[0] == '#' {
		return "", nil
	}
	if text[0] != '"' && text[0] != '\'' {
		return beforeComment(text), nil
	}
	value, rest, ok := readQuoted(text[1:], text[0])
	if !ok {
		return "", errors.New("missing closing quote")
	}
	if rest = strings.TrimSpace(rest); rest != "" && rest[0] != '#' {
		return "", errors.New("text after the closing quote")
	}
	return value, nil
}

func beforeComment(text string) string {
	for i := 1; i < len(text); i++ {
		if text[i] == '#' && (text[i-1] == ' ' || text[i-1] == '\t') {
			return strings.TrimSpace(text[:i])
		}
	}
	return text
}

// readQuoted reads up to the closing quote and returns the text and what follows it.
func readQuoted(text string, quote byte) (value, rest string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == quote:
			return b.String(), text[i+1:], true
		case c == '\\' && quote == '"' && i+1 < len(text) && (text[i+1] == '"' || text[i+1] == '\\'):
			i++
			b.WriteByte(text[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", "", false
}
