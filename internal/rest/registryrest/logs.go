package registryrest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/logs/central"
	"github.com/buildyard/buildyard/internal/rest"
)

// The permissions of the log server.
const (
	permStreamer  = "get_streamer"
	permStream    = "stream_log"
	permArchive   = "get_log_archive"
	permSendEvent = "send_log_event"
	permSendRow   = "send_log"
)

// maxRowsPerRequest is the maximum number of rows or events per request.
const maxRowsPerRequest = 1000

const plainText = "text/plain; charset=utf-8"

func (s service) logRoutes() []rest.Route {
	return []rest.Route{
		{
			Pattern: "POST " +
				api.PathLog, Permission: permSendRow, AllowsRegistryToken: true, Frequent: true, DecodesBody: true,
			Handle: s.appendRows,
		},
		{Pattern: "POST " +
			api.PathLogEvent, Permission: permSendEvent, Frequent: true, DecodesBody: true, Handle: s.appendEvents},
		{Pattern: "GET /registry/log/services", Permission: permStream, Handle: s.listLogServices},
		{Pattern: "GET /registry/log/files", Permission: permStream, Handle: s.listLogFiles},
		{Pattern: "GET /registry/log/view", Permission: permStream, HandleRaw: s.getLogFile},
		{Pattern: "GET /registry/log/entries", Permission: permStream, Handle: s.listLogEntries},
		{
			Pattern: "GET /registry/log/stream", Permission: permStream, Waits: true, Streams: true,
			HandleRaw: s.streamLog,
		},
		{Pattern: "GET /registry/log/page", Permission: permStreamer, HandleRaw: s.getLogPage},
		{Pattern: "GET /registry/log/archive", Permission: permArchive, Waits: true, HandleRaw: s.getLogArchive},
	}
}

// appendRows appends a row, or an array of them.
func (s service) appendRows(r *rest.Request) (any, error) {
	items, err := r.Params.ObjectList(maxRowsPerRequest)
	if err != nil {
		return nil, err
	}
	rows := make([]api.LogRow, len(items))
	for i, p := range items {
		rows[i] = api.LogRow{
			MachineName: p.String("machine_name"), Service: p.String("service"), Host: p.String("host"),
			Content: p.String("content"),
		}
		if err := p.Err(); err != nil && len(items) > 1 {
			return nil, farm.Errorf(farm.CodeInvalid, "rows[%d].%s", i, err)
		} else if err != nil {
			return nil, err
		}
	}
	overrideSource(rest.CallerOf(r.Context()), rows)
	return s.registry.AppendLogRows(rest.CallerName(r.Request), rows)
}

// appendEvents appends an event, or an array of them, to the event log.
func (s service) appendEvents(r *rest.Request) (any, error) {
	raw := bytes.TrimSpace(r.Params.RawBody())
	events := []json.RawMessage{raw}
	if len(raw) > 0 && raw[0] == '[' {
		if err := json.Unmarshal(raw, &events); err != nil {
			return nil, farm.Errorf(farm.CodeInvalid, "The request body is not an array of JSON objects")
		}
	}
	if len(events) > maxRowsPerRequest {
		return nil, farm.Errorf(farm.CodeInvalid, "The request body has %d elements; want at most %d", len(events),
			maxRowsPerRequest)
	}
	list := make([][]byte, len(events))
	for i, e := range events {
		list[i] = e
	}
	return s.registry.AppendEvents(rest.CallerName(r.Request), list)
}

func (s service) listLogServices(*rest.Request) (any, error) {
	return s.registry.Logs().Services(), nil
}

func (s service) listLogFiles(r *rest.Request) (any, error) {
	name := r.Params.Required("service")
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	return s.registry.Logs().Files(name)
}

// getLogFile returns the current content of a log file, or its last lines.
func (s service) getLogFile(w http.ResponseWriter, r *http.Request) error {
	p, err := rest.ReadParams(w, r)
	if err != nil {
		return err
	}
	name, file, lines := p.Required("service"), p.String("file"), p.Int("lines", 0, 1, central.MaxTailLines)
	if err := p.Err(); err != nil {
		return err
	}
	v, err := s.registry.Logs().View(name, file)
	if err != nil {
		return err
	}
	defer func() { _ = v.Close() }()
	setPlainText(w.Header())
	if lines == 0 {
		// without a date: it may grow within a second
		http.ServeContent(newDeadlineWriter(w), r, "", time.Time{}, v.Content())
		return nil
	}
	tail, err := v.Tail(lines)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(tail)))
	_, _ = newDeadlineWriter(w).Write(tail)
	return nil
}

// setPlainText marks the response as plain text that a browser must not interpret: any client may have written it.
func setPlainText(h http.Header) {
	h.Set("Content-Type", plainText)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
}

// getLogArchive returns all files of a service as a compressed tar.
func (s service) getLogArchive(w http.ResponseWriter, r *http.Request) error {
	p, err := rest.ReadParams(w, r)
	if err != nil {
		return err
	}
	name := p.Required("service")
	if err := p.Err(); err != nil {
		return err
	}
	a, err := s.registry.Logs().Archive(name)
	if err != nil {
		return err
	}
	defer func() { _ = a.Close() }()
	h := w.Header()
	h.Set("Content-Type", "application/gzip")
	h.Set("Content-Disposition", `attachment; filename="`+name+`.tar.gz"`) // a name of a service needs no quoting
	h.Set("Cache-Control", "no-store")
	if r.Method == http.MethodHead {
		return nil
	}
	if err := a.Write(newDeadlineWriter(w)); err != nil {
		panic(http.ErrAbortHandler) // a part of it was sent and must not look complete
	}
	return nil
}
