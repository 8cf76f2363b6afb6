package controllerrest

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
)

// maxScans is the maximum number of concurrent requests with scan results: each takes some 30 MiB.
const maxScans = 4

// scanRoutes are the routes of host scan results.
func (s *server) scanRoutes() []rest.Route {
	return []rest.Route{
		{Pattern: "GET /api/v1/node/scan", Permission: "list_nodes", Do: s.nodeScan},
		{Pattern: "GET /api/v1/node/scans", Permission: "list_nodes", Do: s.nodeScans},
		{
			Pattern: "PUT /api/v1/node/scan", Permission: "report_scan", OwnEvents: true, Typed: true,
			MaxBody: api.MaxNodeScan,
			Do:      s.putScan,
		},
		{
			Pattern: "POST " + api.PathScan, Permission: rest.Node, Steady: true, Typed: true, MaxBody: api.MaxNodeScan,
			Vouch: s.verifyNode, Do: s.ownScan,
		},
	}
}

// ownScan stores the scan results of the node that sends them.
func (s *server) ownScan(r *rest.Request) (any, error) {
	if err := s.verifyNode(r.Request); err != nil { // before anything is decompressed
		return nil, err
	}
	return nil, s.takeScan(r, func(scan *api.NodeScanSummary) error {
		_, err := s.c.Link.Authenticate(scan.NodeID, credential(r.Request))
		return err
	})
}

// putScan stores the scan results of a node, sent by a caller with the permission to report them.
func (s *server) putScan(r *rest.Request) (any, error) {
	id := r.URL.Query().Get("id")
	if id == "" {
		return nil, farm.Invalid("id", "is required")
	}
	if !s.visibilityOf(r).node(id) {
		return nil, farm.NotFound()
	}
	err := s.takeScan(r, func(scan *api.NodeScanSummary) error {
		if scan.NodeID != "" && scan.NodeID != id {
			return farm.Invalid("node_id", "must be the same node as the query parameter id")
		}
		scan.NodeID = id
		return nil
	})
	if err == nil {
		rest.AuditSubject(r.Request, "the scan of the node "+id)
	}
	return nil, err
}

// nodeScans returns the scan summaries of all nodes that the caller sees.
func (s *server) nodeScans(r *rest.Request) (any, error) {
	seen, part := s.visibilityOf(r), sliceOf(r.Params)
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	list := []api.NodeScanSummary{}
	for _, n := range s.c.Scans.List() {
		if seen.node(n.NodeID) {
			list = append(list, n)
		}
	}
	return cut(list, part, func(n api.NodeScanSummary) string { return n.NodeID }), nil
}

// nodeScanBody is api.NodeScan with undecoded lists.
type nodeScanBody struct {
	api.NodeScanSummary
	Vulnerabilities json.RawMessage       `json:"vulnerabilities"`
	Packages        json.RawMessage       `json:"packages"`
	LeftOut         api.NodeScanTruncated `json:"left_out"`
}

// nodeScan returns all scan results of a node.
func (s *server) nodeScan(r *rest.Request) (any, error) {
	seen := s.visibilityOf(r)
	id := r.Params.Required("id")
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	if !seen.node(id) {
		return nil, farm.NotFound()
	}
	if err := s.scanning(); err != nil {
		return nil, err
	}
	defer s.scanned()
	kept, packed, err := s.c.Scans.Get(r.Context(), id)
	if err != nil {
		return nil, err
	}
	raw, err := unpack(packed)
	if err != nil {
		return nil, err
	}
	var out nodeScanBody
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, err
	}
	out.NodeScanSummary = kept.NodeScanSummary
	return rest.WithETag{Body: out, Tag: kept.Sum[:32]}, nil
}

// scanning acquires a slot for a request with scan results.
func (s *server) scanning() error {
	select {
	case s.scans <- struct{}{}:
		return nil
	default:
		return farm.Errorf(farm.CodeBusy, "Limit of concurrent host scan reports (%d) reached; try again later",
			maxScans)
	}
}

func (s *server) scanned() { <-s.scans }

// unpack decompresses a gzip file.
func unpack(packed []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil,
			farm.Errorf(farm.CodeInvalid, "The request body does not have the compression that Content-Encoding names")
	}
	raw, err := io.ReadAll(io.LimitReader(z, api.MaxNodeScan+1))
	switch {
	case err != nil:
		return nil,
			farm.Errorf(farm.CodeInvalid, "The request body does not have the compression that Content-Encoding names")
	case len(raw) > api.MaxNodeScan:
		return nil, farm.Errorf(farm.CodeTooLarge, "The request body is larger than %d bytes", api.MaxNodeScan)
	}
	return raw, nil
}

func pack(raw []byte) ([]byte, error) {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, err := z.Write(raw)
	err = errors.Join(err, z.Close())
	return out.Bytes(), err
}

// takeScan stores the scan results in the request for a node. may authorizes the results and may complete them.
func (s *server) takeScan(r *rest.Request, may func(*api.NodeScanSummary) error) error {
	if err := s.scanning(); err != nil {
		return err
	}
	defer s.scanned()
	raw, packed := []byte(r.Params.Raw()), []byte(nil)
	var err error
	switch strings.ToLower(r.Header.Get("Content-Encoding")) {
	case "gzip":
		packed = raw
		if raw, err = unpack(raw); err != nil {
			return err
		}
	case "", "identity":
	default:
		return farm.Invalid("Content-Encoding", "must be gzip, or absent")
	}
	f := &scanFields{}
	if err := json.Unmarshal(raw, &f.fields); err != nil || f.fields == nil {
		return farm.Errorf(farm.CodeInvalid, "The request body is not a JSON object")
	}
	var scan api.NodeScanSummary
	f.into("node_id", &scan.NodeID, aText)
	if f.err == nil {
		f.err = may(&scan)
	}
	f.read(&scan)
	if f.err != nil {
		return f.err
	}
	if packed == nil {
		if packed, err = pack(raw); err != nil {
			return err
		}
	}
	return s.c.Scans.Put(r.Context(), scan, packed)
}

// scanFields are the fields of a body with scan results.
type scanFields struct {
	fields map[string]json.RawMessage
	err    error
}

// Error texts for the forms of fields.
const (
	aText   = "must be a string"
	aMoment = "must be a time such as 2026-01-31T12:00:00Z"
	numbers = "must be an object of integers"
)

// read reads the summary fields of scan results, and validates the form of the others.
func (f *scanFields) read(s *api.NodeScanSummary) {
	f.into("host", &s.Host, aText)
	f.into("scanner", &s.Scanner, aText)
	f.into("version", &s.Version, aText)
	f.into("database", &s.Database, aMoment)
	f.into("last_scan", &s.LastScan, aMoment)
	f.into("scanned", &s.Scanned, aMoment)
	f.into("partial", &s.Partial, "must be true or false")
	f.has("counts", '{', numbers)
	f.into("counts", &s.Counts, numbers)
	f.has("vulnerabilities", '[', "must be an array")
	f.has("packages", '[', "must be an array")
	f.into("left_out", &api.NodeScanTruncated{}, numbers)
}

// into reads a field, unless it is absent or null.
func (f *scanFields) into(name string, to any, form string) {
	v := f.fields[name]
	if f.err == nil && v != nil && string(v) != "null" && json.Unmarshal(v, to) != nil {
		f.err = farm.Invalid(name, "%s", form)
	}
}

// has requires a field whose JSON text begins with a byte.
func (f *scanFields) has(name string, begin byte, form string) {
	if v := f.fields[name]; f.err == nil && (len(v) == 0 || v[0] != begin) {
		f.err = farm.Invalid(name, "%s", form)
	}
}
