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

// reservedBytes is the part of the size limit that is reserved for the text around the lists.
const reservedBytes = 16 << 10

// priorityMinScore is the minimum score of the vulnerabilities that are sent first.
const priorityMinScore = 7

// bodyWriter writes api.NodeScan in parts, as much of the lists as fits.
type bodyWriter struct {
	ctx       context.Context // of the try
	w         io.Writer
	bytesLeft int // bytes that may still be written
	counts    api.NodeScanCounts
	truncated api.NodeScanTruncated
	err       error
}

// writeBody writes the complete state of the host, compressed. High scores come first, packages last. It counts the
// elements that do not fit.
func (s *Sender) writeBody(ctx context.Context, to io.Writer, node string) error {
	z, err := gzip.NewWriterLevel(to, gzip.BestSpeed)
	if err != nil {
		return err
	}
	b := &bodyWriter{ctx: ctx, w: z, bytesLeft: api.MaxNodeScan - reservedBytes}
	head, err := json.Marshal(s.summaryFields(node))
	if err != nil {
		return err
	}
	b.writeString(string(head[:len(head)-1]) + `,"vulnerabilities":[`)
	b.writeFindings(s.host)
	b.writeString(`],"packages":[`)
	b.writePackages(s.host)
	tail, err := json.Marshal(struct {
		Counts  api.NodeScanCounts    `json:"counts"`
		LeftOut api.NodeScanTruncated `json:"left_out"`
	}{b.counts, b.truncated})
	b.writeString("]," + string(tail[1:]))
	return errors.Join(err, b.err, z.Close())
}

// summaryFields contains the fields before the lists; the counts follow the lists.
func (s *Sender) summaryFields(node string) any {
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
		NodeID: node, Host: s.opts.HostName, Scanner: "hostscan", Version: s.opts.Version,
		Database: st.Database.MatchedBuilt.UTC(),
		Scanned:  time.Now().UTC(),
	}
	if l := st.LastScan; l != nil {
		out.LastScan, out.Partial = l.Started.UTC(), l.Denied+l.Unread > 0 || l.Canceled || l.Error != ""
	}
	return out
}

func (b *bodyWriter) writeString(s string) {
	if b.err == nil {
		_, b.err = io.WriteString(b.w, s)
	}
}

// writeItem writes an element of a list, if it fits.
func (b *bodyWriter) writeItem(first *bool, v any) (fits bool) {
	raw, err := json.Marshal(v)
	if err != nil {
		b.err = err
	}
	if len(raw)+1 > b.bytesLeft {
		return false
	}
	b.bytesLeft -= len(raw) + 1
	if !*first {
		b.writeString(",")
	}
	*first = false
	b.writeString(string(raw))
	return true
}

// recordErr records err, or else the error of the context, and reports whether there is none.
func (b *bodyWriter) recordErr(err error) (ok bool) {
	if b.err == nil {
		b.err = err
	}
	if b.err == nil {
		b.err = context.Cause(b.ctx)
	}
	return b.err == nil
}

func (b *bodyWriter) writeFindings(h *host.Host) {
	first := true
	for _, gravely := range []bool{true, false} {
		for f, err := range h.Report(host.Query{}).Findings() {
			if !b.recordErr(err) {
				return
			}
			v := encode.Vulnerability(f)
			if (v.Vulnerability.Score >= priorityMinScore || v.Vulnerability.Exploited) != gravely {
				continue
			}
			b.countFinding(&v.Vulnerability)
			if !b.writeItem(&first, v) {
				b.truncated.Vulnerabilities++
			}
		}
	}
}

func (b *bodyWriter) countFinding(f *api.HostFinding) {
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

func (b *bodyWriter) writePackages(h *host.Host) {
	first := true
	for p, err := range h.Report(host.Query{}).Packages() {
		if !b.recordErr(err) {
			return
		}
		b.counts.Packages++
		if !b.writeItem(&first, encode.Package(p)) {
			b.truncated.Packages++
		}
	}
}
