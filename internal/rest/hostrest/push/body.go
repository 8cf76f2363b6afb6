package push

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/rest/hostrest/encode"
	"github.com/buildyard/buildyard/internal/scan/host"
)

// room is the part of the size limit that is reserved for the text around the lists.
const room = 16 << 10

// grave is the minimum score of the vulnerabilities that are sent first.
const grave = 7

// body writes api.NodeScan in parts, as much of the lists as fits.
type body struct {
	ctx    context.Context // of the try
	to     io.Writer
	left   int // bytes that may still be written
	counts api.NodeScanCounts
	out    api.NodeScanTruncated
	err    error
}

// write writes the complete state of the host, compressed. High scores come first, packages last. It counts the
// elements that do not fit.
func (s *Sender) write(ctx context.Context, to io.Writer, node string) error {
	z, err := gzip.NewWriterLevel(to, gzip.BestSpeed)
	if err != nil {
		return err
	}
	b := &body{ctx: ctx, to: z, left: api.MaxNodeScan - room}
	head, err := json.Marshal(s.summary(node))
	if err != nil {
		return err
	}
	b.text(string(head[:len(head)-1]) + `,"vulnerabilities":[`)
	b.findings(s.host)
	b.text(`],"packages":[`)
	b.packages(s.host)
	tail, err := json.Marshal(struct {
		Counts  api.NodeScanCounts    `json:"counts"`
		LeftOut api.NodeScanTruncated `json:"left_out"`
	}{b.counts, b.out})
	b.text("]," + string(tail[1:]))
	return errors.Join(err, b.err, z.Close())
}

// summary contains the fields before the lists; the counts follow the lists.
func (s *Sender) summary(node string) any {
	st := s.host.Status()
	out := struct {
		NodeID   string    `json:"node_id"`
		Host     string    `json:"host"`
		Scanner  string    `json:"scanner"`
		Version  string    `json:"version"`
		Database time.Time `json:"database"`
		LastScan time.Time `json:"last_scan"`
		Partial  bool      `json:"partial"`
		Scanned  time.Time `json:"scanned"`
	}{
		NodeID: node, Host: s.o.Name, Scanner: "hostscan", Version: s.o.Version, Database: st.Database.Matched.UTC(),
		Scanned: time.Now().UTC(),
	}
	if l := st.LastScan; l != nil {
		out.LastScan, out.Partial = l.Started.UTC(), l.Denied+l.Unread > 0 || l.Canceled || l.Error != ""
	}
	return out
}

func (b *body) text(s string) {
	if b.err == nil {
		_, b.err = io.WriteString(b.to, s)
	}
}

// item writes an element of a list, if it fits.
func (b *body) item(first *bool, v any) (fits bool) {
	raw, err := json.Marshal(v)
	if err != nil {
		b.err = err
	}
	if len(raw)+1 > b.left {
		return false
	}
	b.left -= len(raw) + 1
	if !*first {
		b.text(",")
	}
	*first = false
	b.text(string(raw))
	return true
}

// goesOn reports whether writing may continue. It records err, or else the error of the context.
func (b *body) goesOn(err error) bool {
	if b.err == nil {
		b.err = err
	}
	if b.err == nil {
		b.err = context.Cause(b.ctx)
	}
	return b.err == nil
}

func (b *body) findings(h *host.Host) {
	first := true
	for _, gravely := range []bool{true, false} {
		for f, err := range h.Report(host.Query{}).Findings() {
			if !b.goesOn(err) {
				return
			}
			v := encode.Vulnerability(f)
			if (v.Vulnerability.Score >= grave || v.Vulnerability.Exploited) != gravely {
				continue
			}
			b.count(&v.Vulnerability)
			if !b.item(&first, v) {
				b.out.Vulnerabilities++
			}
		}
	}
}

func (b *body) count(f *api.HostFinding) {
	n := map[string]*int{
		"critical": &b.counts.Critical, "high": &b.counts.High, "medium": &b.counts.Medium,
		"low": &b.counts.Low,
	}[f.Severity]
	if n == nil {
		n = &b.counts.Unknown
	}
	*n++
	if f.Exploited {
		b.counts.Exploited++
	}
}

func (b *body) packages(h *host.Host) {
	first := true
	for p, err := range h.Report(host.Query{}).Packages() {
		if !b.goesOn(err) {
			return
		}
		b.counts.Packages++
		if !b.item(&first, encode.Package(p)) {
			b.out.Packages++
		}
	}
}
