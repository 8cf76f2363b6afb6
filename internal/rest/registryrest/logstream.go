package registryrest

import (
	"bytes"
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

// logStream streams the rows of a service until the client disconnects: as lines, or as events for a browser.
func (s service) logStream(w http.ResponseWriter, r *http.Request) error {
	p, err := rest.ReadParams(w, r)
	if err != nil {
		return err
	}
	name, lines := p.Required("service"), p.Int("lines", 0, 0, central.MaxLines)
	if err := p.Err(); err != nil {
		return err
	}
	release, err := s.limits.LogStreams.Acquire(r)
	if err != nil {
		return err
	}
	defer release()
	past, stream, err := s.reg.Logs().Follow(name, lines)
	if err != nil {
		return err
	}
	defer stream.Close()
	out := &rows{idleWriter: newIdleWriter(w), events: strings.Contains(r.Header.Get("Accept"), "text/event-stream")}
	text(w.Header())
	if out.events {
		w.Header().Set("Content-Type", "text/event-stream")
	}
	w.Header().Set("X-Accel-Buffering", "no") // nginx would buffer rows
	if r.Method == http.MethodHead {
		return nil
	}
	for err = out.send(past); err == nil; err = out.send(past) {
		if past, err = stream.Next(r.Context()); err != nil {
			return nil // the client has disconnected, or the registry stops
		}
	}
	return nil
}

// rows writes rows of a log to a client.
type rows struct {
	*idleWriter
	events bool
}

// send writes whole lines and flushes them immediately. Between calls no deadline is set: an idle stream has
// no timer.
func (o *rows) send(lines []byte) error {
	if o.events {
		var framed bytes.Buffer
		for line := range bytes.Lines(lines) {
			framed.WriteString("data: ")
			framed.Write(line)
			framed.WriteByte('\n')
		}
		lines = framed.Bytes()
	}
	if _, err := o.Write(lines); err != nil {
		return err
	}
	err := o.control.Flush()
	_ = o.control.SetWriteDeadline(time.Time{}) // a connection without deadlines has no limit
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

// pageLines is the initial number of rows on the page.
const pageLines = 200

// logPage returns a page that shows the rows of a service live; without a service, links to the pages of all.
func (s service) logPage(w http.ResponseWriter, r *http.Request) error {
	p, err := rest.ReadParams(w, r)
	if err != nil {
		return err
	}
	name, lines := p.String("service"), p.Int("lines", pageLines, 0, central.MaxLines)
	if err := p.Err(); err != nil {
		return err
	}
	if name != "" {
		if err := central.CheckService(name); err != nil {
			return err
		}
	}
	return page(w, logsPage,
		logsData{Nonce: rand.Text(), Service: name, Lines: lines, Services: s.reg.Logs().Services()})
}

type logsData struct {
	Nonce    string
	Service  string
	Lines    int
	Services []api.LogService
}

func (d logsData) nonce() string { return d.Nonce }

// index describes the service with links, as a page for browsers and as text for other clients.
func (s service) index(w http.ResponseWriter, r *http.Request) error {
	status := s.reg.Status()
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		return page(w, indexPage, indexData{Nonce: rand.Text(), Version: status.Version, Damaged: len(status.Damaged)})
	}
	text(w.Header())
	_, _ = w.Write([]byte("Buildyard registry " + status.Version + "\n\n" + indexText))
	return nil
}

type indexData struct {
	Nonce, Version string
	Damaged        int
}

func (d indexData) nonce() string { return d.Nonce }

const indexText = `GET /registry/v2/vm          templates
GET /registry/status         state and version
GET /registry/disk           room of the disk
GET /registry/log/services   central logs
GET /registry/files          files
`

// page writes a page that can load and run only its own content.
func page(w http.ResponseWriter, t *template.Template, data interface{ nonce() string }) error {
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
