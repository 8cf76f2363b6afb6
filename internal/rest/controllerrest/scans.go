package controllerrest

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
)

// maxScans is the maximum number of concurrent requests with scan results: each takes some 30 MiB.
const maxScans = 4

// scanRoutes are the routes of scan results.
func (s *server) scanRoutes() []rest.Route {
	return []rest.Route{
		{Pattern: "GET /api/v1/node/scan", Permission: "list_nodes", Handle: s.nodeScan},
		{Pattern: "GET /api/v1/node/scans", Permission: "list_nodes", Handle: s.nodeScans},
		{Pattern: "GET " + api.PathNodeScanInstances, Permission: "list_nodes", Handle: s.exposedInstances},
		{
			Pattern: "PUT /api/v1/node/scan", Permission: "report_scan", OwnEvents: true, DecodesBody: true,
			MaxBody: api.MaxNodeScan,
			Handle:  s.storeNodeScan,
		},
		{
			Pattern: "POST " + api.PathScan, Permission: rest.NodeOnly, Frequent: true, DecodesBody: true,
			MaxBody:    api.MaxNodeScan,
			VerifyNode: s.verifyNode, Handle: s.storeOwnScan,
		},
		{
			Pattern: "PUT " + api.PathVersionFindings, Permission: "report_scan", OwnEvents: true, DecodesBody: true,
			MaxBody: maxFindings, Handle: s.storeFindings,
		},
		{Pattern: "GET " + api.PathVersionFindings, Permission: "report_scan", Handle: s.reportedVersions},
		{Pattern: "GET " + api.PathAffected, Permission: "list_vms", Handle: s.affected},
	}
}

// storeOwnScan stores the scan results of the node that sends them.
func (s *server) storeOwnScan(r *rest.Request) (any, error) {
	if err := s.verifyNode(r.Request); err != nil { // before anything is decompressed
		return nil, err
	}
	return nil, s.storeScan(r, func(scan *api.NodeScanSummary) error {
		_, err := s.controller.Link.Authenticate(scan.NodeID, nodeCredential(r.Request))
		return err
	})
}

// storeNodeScan stores the scan results of a node, sent by a caller with the permission to report them.
func (s *server) storeNodeScan(r *rest.Request) (any, error) {
	id := r.URL.Query().Get("id")
	if id == "" {
		return nil, farm.Invalid("id", "is required")
	}
	if !s.visibilityOf(r).seesNode(id) {
		return nil, farm.NotFound()
	}
	err := s.storeScan(r, func(scan *api.NodeScanSummary) error {
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
	seen, part := s.visibilityOf(r), sliceParam(r.Params)
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	list := []api.NodeScanSummary{}
	for _, n := range s.controller.Scans.List() {
		if seen.seesNode(n.NodeID) {
			list = append(list, n)
		}
	}
	return sliceList(list, part, func(n api.NodeScanSummary) string { return n.NodeID }), nil
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
	if !seen.seesNode(id) {
		return nil, farm.NotFound()
	}
	if err := s.acquireScanSlot(); err != nil {
		return nil, err
	}
	defer s.releaseScanSlot()
	var out nodeScanBody
	kept, err := s.loadScan(r, id, &out)
	if err != nil {
		return nil, err
	}
	out.NodeScanSummary = kept.NodeScanSummary
	return rest.WithETag{Body: out, ETag: kept.Sum[:32]}, nil
}

// loadScan reads the last results of a node. The caller holds a slot.
func (s *server) loadScan(r *rest.Request, id string, to any) (*record.NodeScan, error) {
	kept, packed, err := s.controller.Scans.Get(r.Context(), id)
	if err != nil {
		return nil, err
	}
	raw, err := gunzipBytes(packed)
	if err != nil {
		return nil, err
	}
	return kept, json.Unmarshal(raw, to)
}

// acquireScanSlot acquires a slot for a request with scan results.
func (s *server) acquireScanSlot() error {
	select {
	case s.scanSlots <- struct{}{}:
		return nil
	default:
		return farm.Errorf(farm.CodeBusy, "Limit of concurrent host scan reports (%d) reached; try again later",
			maxScans)
	}
}

func (s *server) releaseScanSlot() { <-s.scanSlots }

// gunzipBytes decompresses a gzip file.
func gunzipBytes(packed []byte) ([]byte, error) {
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

func gzipBytes(raw []byte) ([]byte, error) {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, err := z.Write(raw)
	err = errors.Join(err, z.Close())
	return out.Bytes(), err
}

// storeScan stores the scan results in the request for a node. may authorizes the results and may complete them.
func (s *server) storeScan(r *rest.Request, may func(*api.NodeScanSummary) error) error {
	if err := s.acquireScanSlot(); err != nil {
		return err
	}
	defer s.releaseScanSlot()
	raw, packed := []byte(r.Params.RawBody()), []byte(nil)
	var err error
	switch strings.ToLower(r.Header.Get("Content-Encoding")) {
	case "gzip":
		packed = raw
		if raw, err = gunzipBytes(raw); err != nil {
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
	f.readField("node_id", &scan.NodeID, wantString)
	if f.err == nil {
		f.err = may(&scan)
	}
	f.readSummary(&scan)
	if f.err != nil {
		return f.err
	}
	if packed == nil {
		if packed, err = gzipBytes(raw); err != nil {
			return err
		}
	}
	return s.controller.Scans.Put(r.Context(), scan, packed, foundOnNode(f.fields["vulnerabilities"]))
}

// foundOnNode returns the vulnerabilities in the results of a node, as far as they have the form of the host scanner's.
func foundOnNode(list json.RawMessage) (found []api.FoundVulnerability) {
	type entry struct {
		Vulnerability struct {
			ID                     string
			RelatedVulnerabilities []struct{ ID string }
			Severity               string
			FixedVersions          []string
		}
		Package struct{ Name, Version string }
	}
	err := eachEntry(list, func(e *entry) {
		v := &e.Vulnerability
		if v.ID == "" {
			return
		}
		one := api.FoundVulnerability{
			ID: v.ID, Package: e.Package.Name, Version: e.Package.Version, Severity: v.Severity,
		}
		if len(v.FixedVersions) > 0 {
			one.Fixed = v.FixedVersions[0]
		}
		for _, related := range v.RelatedVulnerabilities {
			if len(one.Aliases) < api.MaxAliases && related.ID != v.ID {
				one.Aliases = append(one.Aliases, related.ID)
			}
		}
		found = append(found, one)
	})
	if err != nil {
		return nil
	}
	return found
}

// eachEntry decodes the elements of an array one after the other: all of a hostile report at the same time would take
// a hundred times its size.
func eachEntry[T any](list json.RawMessage, do func(*T)) error {
	d := json.NewDecoder(bytes.NewReader(list))
	if _, err := d.Token(); err != nil {
		return err
	}
	for d.More() {
		var one T
		if err := d.Decode(&one); err != nil {
			return err
		}
		do(&one)
	}
	return nil
}

// scanFields are the fields of a body with scan results.
type scanFields struct {
	fields map[string]json.RawMessage
	err    error
}

// Error texts for the forms of fields.
const (
	wantString   = "must be a string"
	wantTime     = "must be a time such as 2026-01-31T12:00:00Z"
	wantBool     = "must be true or false"
	wantIntegers = "must be an object of integers"
)

// readSummary reads the summary fields of scan results, and validates the form of the others.
func (f *scanFields) readSummary(s *api.NodeScanSummary) {
	f.readField("host", &s.Host, wantString)
	f.readField("scanner", &s.Scanner, wantString)
	f.readField("version", &s.Version, wantString)
	f.readField("database", &s.Database, wantTime)
	f.readField("last_scan", &s.LastScan, wantTime)
	f.readField("scanned", &s.Scanned, wantTime)
	f.readField("partial", &s.Partial, wantBool)
	f.requireField("counts", '{', wantIntegers)
	f.readField("counts", &s.Counts, wantIntegers)
	f.requireField("vulnerabilities", '[', "must be an array")
	f.requireField("packages", '[', "must be an array")
	f.readField("left_out", &api.NodeScanTruncated{}, wantIntegers)
}

// readField reads a field, unless it is absent or null.
func (f *scanFields) readField(name string, to any, form string) {
	v := f.fields[name]
	if f.err == nil && v != nil && string(v) != "null" && json.Unmarshal(v, to) != nil {
		f.err = farm.Invalid(name, "%s", form)
	}
}

// requireField requires a field whose JSON text begins with a byte.
func (f *scanFields) requireField(name string, begin byte, form string) {
	if v := f.fields[name]; f.err == nil && (len(v) == 0 || v[0] != begin) {
		f.err = farm.Invalid(name, "%s", form)
	}
}
