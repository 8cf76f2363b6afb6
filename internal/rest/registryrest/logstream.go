package registryrest

import (
	"bytes"
	"cmp"
	"crypto/rand"
	_ "embed" // the page
	"html/template"
	"net/http"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/logs/central"
	"github.com/buildyard/buildyard/internal/rest"
)

// streamLog streams the rows of a service that match until the client disconnects: as lines, or as events for a
// browser.
func (s service) streamLog(w http.ResponseWriter, r *http.Request) error {
	p, err := rest.ReadParams(w, r)
	if err != nil {
		return err
	}
	name, lines := p.Required("service"), p.Int("lines", 0, 0, central.MaxTailLines)
	filter, err := logFilter(p)
	selected := entryFilter{name, filter, p.OneOf("format", "text", "json") == "json"}
	if err := cmp.Or(err, p.Err()); err != nil {
		return err
	}
	release, err := s.limits.LogStreams.Acquire(r)
	if err != nil {
		return err
	}
	defer release()
	past, stream, err := s.registry.Logs().Follow(name, lines)
	if err != nil {
		return err
	}
	defer stream.Close()
	out := &rowWriter{deadlineWriter: newDeadlineWriter(w), serverSentEvents: strings.Contains(r.Header.Get("Accept"),
		"text/event-stream")}
	setPlainText(w.Header())
	if out.serverSentEvents {
		w.Header().Set("Content-Type", "text/event-stream")
	}
	w.Header().Set("X-Accel-Buffering", "no") // nginx would buffer rows
	if r.Method == http.MethodHead {
		return nil
	}
	for err = out.writeLines(selected.apply(past)); err == nil; err = out.writeLines(selected.apply(past)) {
		if past, err = stream.Next(r.Context()); err != nil {
			return nil // the client has disconnected, or the registry stops
		}
	}
	return nil
}

// rowWriter writes rows of a log to a client.
type rowWriter struct {
	*deadlineWriter
	serverSentEvents bool
	begun            bool // the header was sent
}

// writeLines writes whole lines and flushes them immediately. Between calls no deadline is set: an idle stream has
// no timer.
func (o *rowWriter) writeLines(lines []byte) error {
	if o.serverSentEvents {
		var framed bytes.Buffer
		for line := range bytes.Lines(lines) {
			framed.WriteString("data: ")
			framed.Write(line)
			framed.WriteByte('\n')
		}
		lines = framed.Bytes()
	}
	if len(lines) == 0 && o.begun { // the filter selected none
		return nil
	}
	o.begun = true
	if _, err := o.Write(lines); err != nil {
		return err
	}
	err := o.controller.Flush()
	_ = o.controller.SetWriteDeadline(time.Time{}) // a connection without deadlines has no limit
	return err
}

var (
	//go:embed logs.html
	logsHTML string
	logsPage = template.Must(template.New("logs").Parse(logsHTML))
	//go:embed index.html
	indexHTML string
	indexPage = template.Must(template.New("index").Parse(indexHTML))
)

// initialPageLines is the initial number of rows on the page.
const initialPageLines = 200

// getLogPage returns a page that shows the rows of a service live; without a service, links to the pages of all.
func (s service) getLogPage(w http.ResponseWriter, r *http.Request) error {
	p, err := rest.ReadParams(w, r)
	if err != nil {
		return err
	}
	name, lines := p.String("service"), p.Int("lines", initialPageLines, 0, central.MaxTailLines)
	if err := p.Err(); err != nil {
		return err
	}
	if name != "" {
		if err := central.CheckService(name); err != nil {
			return err
		}
	}
	return writePage(w, logsPage,
		logsPageData{Nonce: rand.Text(), Service: name, Lines: lines, Services: s.registry.Logs().Services()})
}

type logsPageData struct {
	Nonce    string
	Service  string
	Lines    int
	Services []api.LogService
}

func (d logsPageData) nonce() string { return d.Nonce }

// getIndex describes the service with links, as a page for browsers and as text for other clients.
func (s service) getIndex(w http.ResponseWriter, r *http.Request) error {
	status := s.registry.Status()
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		return writePage(w, indexPage,
			indexPageData{Nonce: rand.Text(), Version: status.Version, Damaged: len(status.Damaged)})
	}
	setPlainText(w.Header())
	_, _ = w.Write([]byte("Buildyard registry " + status.Version + "\n\n" + indexText))
	return nil
}

type indexPageData struct {
	Nonce, Version string
	Damaged        int
}

func (d indexPageData) nonce() string { return d.Nonce }

const indexText = `GET /registry/v2/vm          templates
GET /registry/status         state and version
GET /registry/disk           free and total disk space
GET /registry/log/services   central logs
GET /registry/files          files
`

// writePage writes a page that can load and run only its own content.
func writePage(w http.ResponseWriter, t *template.Template, data interface{ nonce() string }) error {
	var out bytes.Buffer
	if err := t.Execute(&out, data); err != nil {
		return err
	}
	h, nonce := w.Header(), "'nonce-"+data.nonce()+"'"
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src "+nonce+"; script-src "+nonce+
		"; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'")
	_, _ = w.Write(out.Bytes())
	return nil
}
