package central

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

const (
	maxContentBytes = 64 << 10 // bytes of a row's content; longer ones are cut
	maxEventBytes   = 64 << 10 // bytes of an event
	maxNameBytes    = 64       // bytes of a service and of the machine in a file name
	maxHostBytes    = 255      // bytes of a host that a row shows
)

// EventService is the service of the event log. It has events only.
const EventService = "event"

// timestampLayout is the time format at the beginning of a row: of fixed width, so that rows sort by it.
const timestampLayout = "2006-01-02T15:04:05.000Z"

// CheckService refuses an invalid name of a service. The name becomes that of a directory.
func CheckService(name string) error {
	switch {
	case name == "":
		return farm.Invalid("service", "is required")
	case len(name) > maxNameBytes || strings.ContainsRune(".-_ ", rune(name[0])) || name[len(name)-1] == ' ' ||
		strings.ContainsFunc(name, isInvalidServiceRune):
		return farm.Invalid("service",
			"must be 1 to %d letters, digits, dots, dashes, underscores and spaces, beginning with a letter or digit "+
				"and ending in no space", maxNameBytes)
	}
	return nil
}

// isInvalidNameRune reports whether a character is not allowed in file names here.
func isInvalidNameRune(c rune) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '-', c == '_':
		return false
	default:
		return true
	}
}

// isInvalidServiceRune reports whether a character is not allowed in the name of a service: some names have
// several words.
func isInvalidServiceRune(c rune) bool { return c != ' ' && isInvalidNameRune(c) }

// checkRow refuses a row whose service is not for rows.
func checkRow(r *api.LogRow) error {
	if strings.EqualFold(r.Service, EventService) {
		return farm.Invalid("service", "service %s accepts only events: use POST %s", EventService, api.PathLogEvent)
	}
	return CheckService(r.Service)
}

// fileNamePart returns a machine's name as a part of a file name.
func fileNamePart(name string) string {
	if name == "" {
		return "unknown"
	}
	name = strings.Map(func(c rune) rune {
		if isInvalidNameRune(c) {
			return '_'
		}
		return c
	}, name[:min(len(name), maxNameBytes)])
	if name[0] == '.' || name[0] == '-' {
		name = "_" + name[1:]
	}
	return name
}

// appendRow appends a row as a line.
func appendRow(line []byte, r *api.LogRow, now time.Time) []byte {
	line = now.UTC().AppendFormat(line, timestampLayout)
	line = append(line, ' ')
	line = append(line, fileNamePart(r.MachineName)...)
	line = append(line, ' ')
	if r.Host == "" {
		line = append(line, '-')
	}
	line = appendEscaped(line, strings.ReplaceAll(strings.ToValidUTF8(r.Host[:min(len(r.Host), maxHostBytes)], "_"),
		" ",
		"_"))
	line = append(line, ' ')
	content := strings.TrimRight(r.Content, "\r\n")
	cut := len(content) > maxContentBytes
	if cut {
		content = content[:maxContentBytes]
	}
	line = appendEscaped(line, content)
	if cut {
		line = append(line, " ... [cut]"...)
	}
	return append(line, '\n')
}

// appendEscaped appends text as one line: control characters are escaped as Go and JSON do, tabs stay.
func appendEscaped(line []byte, text string) []byte {
	for begin := 0; begin < len(text); {
		end := begin
		for end < len(text) && (text[end] >= ' ' && text[end] < 0x7f || text[end] == '\t') {
			end++
		}
		line = append(line, text[begin:end]...)
		if end == len(text) {
			return line
		}
		c, size := utf8.DecodeRuneInString(text[end:])
		line = appendRune(line, c)
		begin = end + size
	}
	return line
}

func appendRune(line []byte, c rune) []byte {
	switch {
	case c == '\n':
		return append(line, `\n`...)
	case c == '\r':
		return append(line, `\r`...)
	case c < ' ' || c >= 0x7f && c < 0xa0:
		return fmt.Appendf(line, `\x%02x`, c)
	// line ends, directions
	case c == '\u2028' || c == '\u2029' || c >= '\u202a' && c <= '\u202e' || c >= '\u2066' && c <= '\u2069':
		return fmt.Appendf(line, `\u%04x`, c)
	default:
		return utf8.AppendRune(line, c)
	}
}

// eventLine returns an event as a line: one JSON object, keys sorted.
func eventLine(raw []byte) ([]byte, error) {
	if len(raw) > maxEventBytes {
		return nil, farm.Errorf(farm.CodeInvalid, "An event must have at most %d bytes", maxEventBytes)
	}
	var fields map[string]any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&fields); err != nil || fields == nil {
		return nil, farm.Errorf(farm.CodeInvalid, "An event must be a JSON object")
	}
	var line bytes.Buffer
	enc := json.NewEncoder(&line) // sorts the keys, and ends the line
	enc.SetEscapeHTML(false)
	if err := enc.Encode(fields); err != nil {
		return nil, fmt.Errorf("encode event: %w", err)
	}
	return line.Bytes(), nil
}
