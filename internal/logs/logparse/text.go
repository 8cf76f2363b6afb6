package logparse

import (
	"strconv"
	"strings"

	"github.com/buildyard/buildyard/api"
)

// parseLogfmt reads pairs of key=value, of which one is a level or a message: plain text may contain an
// equal sign, too.
func parseLogfmt(entry *api.LogEntry, text string) bool {
	var found []pair
	known := false
	for rest := text; rest != ""; {
		one, after, ok := nextPair(rest)
		if !ok {
			return false
		}
		known = known || contains(levelKeys, one.key) || contains(messageKeys, one.key)
		found, rest = append(found, one), strings.TrimLeft(after, " \t")
		if len(found) > 4*maxFields {
			return false
		}
	}
	if !known {
		return false
	}
	f := fields{entry: entry}
	for _, one := range found {
		f.add(one.key, one.value)
	}
	return true
}

type pair struct{ key, value string }

// nextPair cuts the pair at the beginning of a text.
func nextPair(text string) (one pair, rest string, ok bool) {
	at := strings.IndexAny(text, "= \t\"")
	if at <= 0 || text[at] != '=' {
		return one, text, false
	}
	one.key, rest = text[:at], text[at+1:]
	if !strings.HasPrefix(rest, `"`) {
		end := strings.IndexAny(rest, " \t")
		if end < 0 {
			end = len(rest)
		}
		one.value = rest[:end]
		return one, rest[end:], true
	}
	quoted, err := strconv.QuotedPrefix(rest)
	if err != nil {
		return one, text, false
	}
	if one.value, err = strconv.Unquote(quoted); err != nil {
		return one, text, false
	}
	rest = rest[len(quoted):]
	return one, rest, rest == "" || rest[0] == ' ' || rest[0] == '\t'
}

// klogLevels maps the first letter of a row of klog to its level.
var klogLevels = map[byte]string{'I': api.LogInfo, 'W': api.LogWarn, 'E': api.LogError, 'F': api.LogError}

// klogHeader is the shape of the head of a row of klog up to the thread: digits are 0.
const klogHeader = "L0000 00:00:00.000000"

// parseKlog reads "I0102 15:04:05.000000    1234 file.go:12] text"; text may be `"message" key="value"`.
func parseKlog(entry *api.LogEntry, text string) bool {
	if len(text) < len(klogHeader) || klogLevels[text[0]] == "" || shapeOf(text[1:len(klogHeader)]) != klogHeader[1:] {
		return false
	}
	head, body, ok := strings.Cut(text[len(klogHeader):], "] ")
	source := strings.Fields(head)
	if !ok || len(source) != 2 {
		return false
	}
	entry.Level = klogLevels[text[0]]
	f := fields{entry: entry}
	f.add("source", source[1])
	quoted, err := strconv.QuotedPrefix(body)
	if err != nil {
		entry.Message = body
		return true
	}
	if entry.Message, err = strconv.Unquote(quoted); err != nil {
		entry.Message = body
		return true
	}
	for rest := strings.TrimLeft(body[len(quoted):], " "); rest != ""; {
		one, after, ok := nextPair(rest)
		if !ok {
			f.add("text", rest)
			break
		}
		f.add(one.key, one.value)
		rest = strings.TrimLeft(after, " ")
	}
	return true
}

// shapeOf returns a text with 0 in place of every digit.
func shapeOf(text string) string {
	return strings.Map(func(c rune) rune {
		if c >= '0' && c <= '9' {
			return '0'
		}
		return c
	}, text)
}

// levelNames maps the names of levels to those of the API.
var levelNames = map[string]string{
	"trace": api.LogDebug, "debug": api.LogDebug, "info": api.LogInfo, "notice": api.LogInfo,
	"information": api.LogInfo, "warn": api.LogWarn, "warning": api.LogWarn, "error": api.LogError, "err": api.LogError,
	"fatal": api.LogError, "panic": api.LogError, "critical": api.LogError, "crit": api.LogError,
	"alert": api.LogError, "emerg": api.LogError,
}

// level returns the level of the API for a level such as "WARN+2"; "" for an unknown one.
func level(text string) string {
	if at := strings.IndexAny(text, "+-"); at > 0 {
		text = text[:at]
	}
	if len(text) > len("information") {
		return ""
	}
	return levelNames[strings.ToLower(text)]
}
