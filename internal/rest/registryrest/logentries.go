package registryrest

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/buildyard/buildyard/internal/logs/central"
	"github.com/buildyard/buildyard/internal/logs/logparse"
	"github.com/buildyard/buildyard/internal/rest"
)

// defaultEntries is the number of rows of a search without a limit.
const defaultEntries = 200

// listLogEntries returns the last rows of a service that match, with their parts.
func (s service) listLogEntries(r *rest.Request) (any, error) {
	p := r.Params
	name := p.Required("service")
	filter, err := logFilter(p)
	if err != nil {
		return nil, err
	}
	q := central.EntryQuery{
		File: p.String("file"), Limit: p.Int("limit", defaultEntries, 1, central.MaxEntries),
		Before: int64(p.Int("before", 0, 1, 1<<40)), Filter: filter,
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	return s.registry.Logs().Entries(name, q)
}

// logFilter reads the parameters that select rows.
func logFilter(p *rest.Params) (logparse.Filter, error) {
	f, err := logparse.ParseFilter(p.String("level"), p.Strings("field"), p.String("q"))
	if err != nil {
		return f, err
	}
	f.Since, f.Until = moment(p, "since"), moment(p, "until")
	return f, p.Err()
}

// moment reads a time in RFC 3339; zero: it is not given.
func moment(p *rest.Params, name string) time.Time {
	text := p.String(name)
	if text == "" {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		p.RecordError(name, "must be a time such as 2026-01-02T15:04:05Z")
	}
	return at
}

// entryFilter selects the rows of a stream, and returns them as they are or as JSON.
type entryFilter struct {
	service string
	filter  logparse.Filter
	asJSON  bool
}

// apply returns the selected lines of whole lines.
func (f entryFilter) apply(lines []byte) []byte {
	if !f.asJSON && f.filter.IsZero() {
		return lines
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out) // ends each with a line end
	encoder.SetEscapeHTML(false)
	for line := range bytes.Lines(lines) {
		row := string(bytes.TrimSuffix(line, []byte("\n")))
		entry := logparse.Row(f.service, row, f.service == central.EventService)
		switch {
		case !f.filter.Match(entry):
		case f.asJSON:
			_ = encoder.Encode(entry) // a buffer accepts it
		default:
			out.Write(line)
		}
	}
	return out.Bytes()
}
