package client

import (
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/buildyard/buildyard/api"
)

// Logs returns the central logs, through the controller.
func (c *Controller) Logs() Logs { return Logs{c.service, "/api/v1/log"} }

// Logs returns the central logs.
func (r *Registry) Logs() Logs { return Logs{r.service, "/registry/log"} }

// Logs are the central logs of a cloud, by service: controller, registry, node and any other program that sends
// rows.
type Logs struct {
	s    *service
	root string
}

// Services returns the services that have logs.
func (l Logs) Services(ctx context.Context) ([]api.LogService, error) {
	return fetch[[]api.LogService](ctx, l.s, get(l.root+"/services", nil))
}

func ofService(name string) url.Values { return url.Values{"service": {name}} }

// Files returns the files of a service, the oldest first.
func (l Logs) Files(ctx context.Context, service string) ([]api.LogFile, error) {
	return fetch[[]api.LogFile](ctx, l.s, get(l.root+"/files", ofService(service)))
}

// LogView selects rows of a service's log.
type LogView struct {
	Service string // whose log is read
	File    string // "": the newest
	Lines   int    // the last lines; 0: all
}

// View returns rows of one file as text.
func (l Logs) View(ctx context.Context, v LogView) (*Stream, error) {
	q := ofService(v.Service)
	set(q, "file", v.File)
	if v.Lines > 0 {
		q.Set("lines", strconv.Itoa(v.Lines))
	}
	return l.s.stream(ctx, get(l.root+"/view", q))
}

// Archive returns all files of a service as a tar.gz.
func (l Logs) Archive(ctx context.Context, service string) (*Stream, error) {
	return l.s.stream(ctx, get(l.root+"/archive", ofService(service)))
}

// LogFilter selects rows of a log. The zero value selects all.
type LogFilter struct {
	Level  string   // the lowest level: debug, info, warn or error; rows without a level do not match; "": any
	Fields []string // key=value; machine, host and level are fields, too
	Text   string   // is in the row, in any case
}

func (f LogFilter) addTo(q url.Values) {
	set(q, "level", f.Level)
	set(q, "q", f.Text)
	for _, one := range f.Fields {
		q.Add("field", one)
	}
}

// LogQuery selects the last matching rows of a service.
type LogQuery struct {
	LogFilter
	Service      string
	File         string    // "": the ends of the service's last files
	Limit        int       // at most 1000; 0: 200
	Before       int64     // LogEntries.Before of the answer with the later rows; 0: from the end
	Since, Until time.Time // when the registry received the rows; zero: any
}

// Entries returns the last rows that match, with level, message and fields. The registry reads a bounded part
// of the logs: see LogEntries.Complete.
func (l Logs) Entries(ctx context.Context, o LogQuery) (api.LogEntries, error) {
	q := ofService(o.Service)
	o.addTo(q)
	set(q, "file", o.File)
	if o.Limit > 0 {
		q.Set("limit", strconv.Itoa(o.Limit))
	}
	if o.Before > 0 {
		q.Set("before", strconv.FormatInt(o.Before, 10))
	}
	for name, at := range map[string]time.Time{"since": o.Since, "until": o.Until} {
		if !at.IsZero() {
			q.Set(name, at.UTC().Format(time.RFC3339Nano))
		}
	}
	return fetch[api.LogEntries](ctx, l.s, get(l.root+"/entries", q))
}

// LogFollow selects the rows to follow.
type LogFollow struct {
	LogFilter
	Service string // whose log is followed
	Last    int    // number of last rows to begin with, before the filter
	// OnInterrupt is called when the stream broke, before it is resumed; nil: not called.
	OnInterrupt func(err error)
}

// Follow returns the last rows of a service and then each new row, until ctx ends, the loop is left or an error
// is returned. A stream that breaks is resumed, without rows that were written in between. It returns an error
// if the first connection fails.
func (l Logs) Follow(ctx context.Context, o LogFollow) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		err := again(ctx, o.OnInterrupt, func() (bool, error) {
			began, err := l.follow(ctx, o, yield)
			if began {
				o.Last = 0
			}
			return began, err
		})
		if err != nil {
			yield("", err)
		}
	}
}

func (l Logs) follow(ctx context.Context, o LogFollow, yield func(string, error) bool) (began bool, err error) {
	q := ofService(o.Service)
	q.Set("lines", strconv.Itoa(o.Last))
	o.addTo(q)
	ask := get(l.root+"/stream", q)
	s, err := l.s.stream(ctx, ask)
	if err != nil {
		return false, err
	}
	defer func() { _ = s.Close() }()
	lines := linesOf(s)
	for lines.Scan() {
		if !yield(lines.Text(), nil) {
			return true, errLeft
		}
	}
	if err = lines.Err(); err == nil {
		err = io.ErrUnexpectedEOF
	}
	return true, l.s.unreachable(ask, fmt.Errorf("log stream interrupted: %w", err))
}

// Send appends rows to the central logs, and returns how many the registry did not accept.
func (r *Registry) Send(ctx context.Context, rows []api.LogRow) (api.LogAppendResult, error) {
	return fetch[api.LogAppendResult](ctx, r.service, call{method: http.MethodPost, path: api.PathLog, body: rows})
}

// SendEvents appends objects to the event log: all of them or none.
func (r *Registry) SendEvents(ctx context.Context, events []map[string]any) (api.LogAppendResult, error) {
	return fetch[api.LogAppendResult](ctx, r.service,
		call{method: http.MethodPost, path: api.PathLogEvent, body: events})
}

// VMLog is an error log of a failed VM.
type VMLog struct {
	Name     string    `json:"name"`
	Size     int64     `json:"size"`     // bytes
	Modified time.Time `json:"modified"` // time of the last change
}

const pathVMLogs = pathVM + "/logs"

// VMLogs returns the error logs of an instance, which may be terminated.
func (c *Controller) VMLogs(ctx context.Context, instance string) ([]VMLog, error) {
	return one[[]VMLog](ctx, c.service, pathVMLogs, instance)
}

// VMLog returns one error log of an instance as text.
func (c *Controller) VMLog(ctx context.Context, instance, file string) (*Stream, error) {
	q := byID(instance)
	q.Set("file", file)
	return c.stream(ctx, get(pathVMLogs, q))
}
