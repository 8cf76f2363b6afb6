// Package vex reads VEX statements on vulnerabilities in products: OpenVEX documents, and CycloneDX
// documents with an analysis.
//
// It does not find vulnerabilities and adds none: it only reports which findings a statement
// suppresses, because they were fixed or do no harm in that product.
//
// Invariant: of the statements on a finding the newest counts alone, and one that names neither the
// package nor its version never counts.
package vex

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	openvex "github.com/openvex/go-vex/pkg/vex"

	"github.com/buildyard/buildyard/internal/scan/match"
	"github.com/buildyard/buildyard/internal/scan/vulndb/input"
)

// maxDocumentBytes is the maximum size of a document, in bytes.
const maxDocumentBytes = 64 << 20

// ErrUnknownFormat is wrapped by the errors for documents of another kind.
var ErrUnknownFormat = errors.New("not an OpenVEX or CycloneDX document")

// Statements are the statements of some documents. They are safe for concurrent reads once they
// were loaded.
type Statements struct {
	byID map[string][]statement // by ID of the vulnerability, oldest first
}

// statement is one author's statement on one vulnerability in some products.
type statement struct {
	timestamp  time.Time
	status     string
	suppresses bool
	products   []openvex.Component
}

var _ interface {
	Suppresses(f *match.Finding) (string, bool)
} = (*Statements)(nil)

// Load reads documents, which may be pipes. Of two statements with one date that of the later
// document takes precedence.
func Load(ctx context.Context, paths ...string) (*Statements, error) {
	s := &Statements{byID: map[string][]statement{}}
	for _, path := range paths {
		if err := s.load(ctx, path); err != nil {
			return nil, fmt.Errorf("read the VEX document %s: %w", path, err)
		}
	}
	for _, list := range s.byID {
		slices.SortStableFunc(list, func(a, b statement) int { return a.timestamp.Compare(b.timestamp) })
	}
	return s, nil
}

func (s *Statements) load(ctx context.Context, path string) error {
	data, err := input.ReadAll(ctx, path, maxDocumentBytes)
	if err != nil {
		return err
	}
	var form struct {
		Context   string `json:"@context"`
		BOMFormat string `json:"bomFormat"`
	}
	if err := json.Unmarshal(data, &form); err != nil {
		return fmt.Errorf("%w: %w", ErrUnknownFormat, err)
	}
	switch {
	case strings.HasPrefix(form.Context, openvex.Context):
		return s.loadOpenVEX(data)
	case form.BOMFormat == "CycloneDX":
		return s.loadCycloneDX(bytes.NewReader(data))
	}
	return ErrUnknownFormat
}

// loadOpenVEX adds the statements of an OpenVEX document of any version.
func (s *Statements) loadOpenVEX(data []byte) error {
	doc, err := parseOpenVEX(data)
	if err != nil {
		return err
	}
	for _, from := range doc.ExtractStatements() {
		to := statement{
			status:     string(from.Status),
			suppresses: from.Status == openvex.StatusNotAffected || from.Status == openvex.StatusFixed,
		}
		switch {
		case from.LastUpdated != nil:
			to.timestamp = *from.LastUpdated
		case from.Timestamp != nil:
			to.timestamp = *from.Timestamp
		}
		for _, p := range from.Products {
			if len(p.Subcomponents) == 0 {
				to.products = append(to.products, p.Component)
			}
			for _, c := range p.Subcomponents {
				to.products = append(to.products, c.Component)
			}
		}
		ids := []string{string(from.Vulnerability.Name), idFromIRI(from.Vulnerability.ID)}
		for _, a := range from.Vulnerability.Aliases {
			ids = append(ids, string(a))
		}
		s.add(to, ids)
	}
	return nil
}

// parseOpenVEX parses a document of the current version, or an older one: the library reads older
// ones only from files.
func parseOpenVEX(data []byte) (*openvex.VEX, error) {
	if doc, err := openvex.Parse(data); err == nil && doc.Context == openvex.ContextLocator() {
		return doc, nil
	}
	f, err := os.CreateTemp("", "openvex-")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	doc, err := openvex.Open(f.Name())
	if err != nil { // the error names the copy
		return nil, errors.New(strings.ReplaceAll(err.Error(), f.Name(), "it"))
	}
	return doc, nil
}

// add adds a statement under each ID.
func (s *Statements) add(to statement, ids []string) {
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		if id != "" {
			s.byID[id] = append(s.byID[id], to)
		}
	}
}

// idFromIRI returns the ID in an IRI of a vulnerability.
func idFromIRI(iri string) string { return iri[strings.LastIndexByte(iri, '/')+1:] }

// Suppresses reports whether the newest statement on a finding suppresses it, and its status.
func (s *Statements) Suppresses(f *match.Finding) (string, bool) {
	var newest *statement
	ids := append([]string{f.Vulnerability.ID, f.Advisory}, f.Vulnerability.Related...)
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		for i := range s.byID[id] {
			if st := &s.byID[id][i]; (newest == nil || !st.timestamp.Before(newest.timestamp)) && st.coversFinding(f) {
				newest = st
			}
		}
	}
	if newest == nil || !newest.suppresses {
		return "", false
	}
	return newest.status, true
}

// coversFinding reports whether one of the products of a statement is the package of a finding.
func (s *statement) coversFinding(f *match.Finding) bool {
	names := slices.Concat(purlSpellings(f.Package.PURL), f.Package.CPEs)
	return slices.ContainsFunc(s.products, func(p openvex.Component) bool {
		return slices.ContainsFunc(names, p.Matches)
	})
}

// purlSpellings returns the spellings of a package URL: the versions of Go modules are written with a
// "v" and without.
func purlSpellings(purl string) []string {
	if purl == "" {
		return nil
	}
	out := []string{purl}
	name, version, ok := strings.Cut(purl, "@")
	if !ok || !strings.HasPrefix(name, "pkg:golang/") {
		return out
	}
	if bare, hasV := strings.CutPrefix(version, "v"); hasV {
		return append(out, name+"@"+bare)
	}
	return append(out, name+"@v"+version)
}
