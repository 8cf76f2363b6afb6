package registryrest

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/registry"
	"github.com/buildyard/buildyard/internal/rest"
)

// maxScanBody is the largest body with scan results: the report and the other fields.
const maxScanBody = registry.MaxScanReport + 64<<10

// putScan attaches scan results to a version. The body is streamed to disk, so the version is named only in the
// query, and the caller is authorized before the body is read.
func (s service) putScan(w http.ResponseWriter, r *http.Request) error {
	bare := *r
	bare.Body = http.NoBody
	p, err := rest.ReadParams(w, &bare)
	if err != nil {
		return err
	}
	ref, err := readRef(p)
	if err != nil {
		return err
	}
	if err := rest.CallerOf(r.Context()).RequireVisibleRight(farm.ResourceTemplate, ref.ID, rightPush); err != nil {
		return err
	}
	release, err := s.limits.ScanUploads.Acquire(r)
	if err != nil {
		return err
	}
	defer release()
	draft, err := s.registry.BeginScanUpload(ref)
	if err != nil {
		return err
	}
	defer draft.Discard()
	body := rest.NewMinRateBody(w, r, idleTimeout, minBytesPerSecond)
	defer func() { _ = body.Close() }()
	scan, err := readScan(http.MaxBytesReader(w, body, maxScanBody), draft)
	if err != nil {
		return err
	}
	if err := draft.Attach(scan.ScanSummary, scan.ContentID); err != nil {
		return err
	}
	return rest.WriteResponse(w, r, nil)
}

// getScan returns the scan results that are attached to a version, with the report as it is stored.
func (s service) getScan(w http.ResponseWriter, r *http.Request) error {
	ref, err := s.scanRef(w, r)
	if err != nil {
		return err
	}
	stored, err := s.registry.OpenScan(ref)
	if err != nil {
		return err
	}
	defer stored.Close()
	head, err := json.Marshal(api.TemplateScan{
		ScanSummary: stored.ScanSummary, ContentID: stored.ContentID, Report: json.RawMessage("0"),
	})
	if err != nil {
		return err
	}
	rest.WriteStreamed(newDeadlineWriter(w), r, stored.ETag, func(out io.Writer) error {
		_, err := out.Write(head[:len(head)-len("0}")]) // the report is the last field
		if err == nil {
			_, err = io.Copy(out, stored.Report)
		}
		if err == nil {
			_, err = io.WriteString(out, "}")
		}
		return err
	})
	return nil
}

// scanRef reads which version's scan results are requested, and authorizes a caller that may see its content.
func (s service) scanRef(w http.ResponseWriter, r *http.Request) (registry.VersionRef, error) {
	p, err := rest.ReadParams(w, r)
	if err != nil {
		return registry.VersionRef{}, err
	}
	ref, err := readRef(p)
	if err != nil {
		return registry.VersionRef{}, err
	}
	return ref, rest.CallerOf(r.Context()).RequireVisibleRight(farm.ResourceTemplate, ref.ID, rightConfig)
}

func (s service) deleteScan(r *rest.Request) (any, error) {
	ref, err := readRef(r.Params)
	if err != nil {
		return nil, err
	}
	if err := checkRight(r, ref.ID, rightPush); err != nil {
		return nil, err
	}
	return rest.Null, s.registry.RemoveScan(r.Context(), ref)
}

// scanFields is the body of a PUT without its report.
type scanFields struct {
	fields map[string]json.RawMessage
	err    error
}

// readScan reads scan results and streams the report to its destination.
func readScan(body io.Reader, report io.Writer) (api.TemplateScan, error) {
	f, err := splitScan(body, report)
	if err != nil {
		return api.TemplateScan{}, bodyReadError(err)
	}
	scan := api.TemplateScan{}
	f.textField("scanner", &scan.Scanner, true)
	f.textField("version", &scan.Version, true)
	f.textField("content_id", &scan.ContentID, false)
	f.decodeField("database", &scan.Database, "must be a time such as 2026-01-31T12:00:00Z")
	f.decodeField("scanned", &scan.Scanned, "must be a time such as 2026-01-31T12:00:00Z")
	f.decodeField("partial", &scan.Partial, "must be true or false")
	f.decodeCounts(&scan.Counts)
	return scan, f.err
}

func (f *scanFields) fail(name, format string, args ...any) {
	if f.err == nil {
		f.err = farm.Invalid(name, format, args...)
	}
}

// rawField returns a field; nil when it is absent, null or "".
func (f *scanFields) rawField(name string) json.RawMessage {
	if v := f.fields[name]; string(v) != "null" && string(v) != `""` {
		return v
	}
	return nil
}

func (f *scanFields) textField(name string, into *string, required bool) {
	raw := f.rawField(name)
	switch {
	case raw == nil && required:
		f.fail(name, "is required")
	case raw != nil && json.Unmarshal(raw, into) != nil:
		f.fail(name, "must be a string")
	}
}

func (f *scanFields) decodeField(name string, into any, form string) {
	if raw := f.rawField(name); raw != nil && json.Unmarshal(raw, into) != nil {
		f.fail(name, "%s", form)
	}
}

func (f *scanFields) decodeCounts(into *api.ScanCounts) {
	raw := f.rawField("counts")
	if raw == nil || raw[0] != '{' {
		f.fail("counts", "must be an object of integers")
		return
	}
	err := json.Unmarshal(raw, into)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		f.fail("counts."+wrong.Field, "must be an integer")
	}
	var given map[string]json.RawMessage
	_ = json.Unmarshal(raw, &given) // it is an object
	for _, name := range []string{"critical", "high", "medium", "low", "unknown", "packages"} {
		if v := given[name]; v == nil || string(v) == "null" {
			f.fail("counts."+name, "is required")
		}
	}
}
