package controllerrest

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/nodescans"
	"github.com/buildyard/buildyard/internal/controller/vulntext"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
)

// exposedInstances returns the instances that ran on a node while vulnerabilities were known of it. The caller needs
// the rights for both: it learns nothing that it could not list.
func (s *server) exposedInstances(r *rest.Request) (any, error) {
	seen := s.visibilityOf(r)
	id, ids := r.Params.Required("id"), r.Params.CommaList("vulnerability")
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	if err := rest.CallerOf(r.Context()).RequirePermission("list_vms"); err != nil {
		return nil, err
	}
	switch {
	case len(ids) > api.MaxAffectedIDs:
		return nil, farm.Invalid("vulnerability", "must have at most %d IDs", api.MaxAffectedIDs)
	case slices.ContainsFunc(ids, func(id string) bool { return !vulntext.ValidID(id) }):
		return nil, farm.Invalid("vulnerability", "must have IDs such as CVE-2019-10744, with commas between them")
	case !seen.seesNode(id):
		return nil, farm.NotFound()
	}
	if err := s.acquireScanSlot(); err != nil {
		return nil, err
	}
	defer s.releaseScanSlot()
	var scan struct {
		Vulnerabilities json.RawMessage       `json:"vulnerabilities"`
		LeftOut         api.NodeScanTruncated `json:"left_out"`
	}
	kept, err := s.loadScan(r, id, &scan)
	if err != nil {
		return nil, err
	}
	found, first := knownOnNode(scan.Vulnerabilities, ids)
	out := api.NodeExposure{
		NodeID: id, Scanned: kept.Scanned, Findings: len(found), FirstKnown: first,
		Truncated: scan.LeftOut.Vulnerabilities > 0, Instances: []api.ExposedInstance{},
	}
	list, leftOut := s.controller.Scans.Exposed(id, found)
	out.Instances, out.LeftOut = append(out.Instances, list...), leftOut
	return out, nil
}

// knownOnNode returns the findings in the results of a node with one of some IDs, or all without any, as far as they
// have the form of the host scanner's, and the earliest time of them.
func knownOnNode(list json.RawMessage, ids []string) (found []nodescans.Finding, first *time.Time) {
	type entry struct {
		Vulnerability struct {
			ID                     string
			RelatedVulnerabilities []struct{ ID string }
			Severity               string
			Exploited              bool
			Known                  time.Time
		}
	}
	wanted := map[string]bool{}
	for _, id := range ids {
		wanted[vulntext.Canonical(id)] = true
	}
	err := eachEntry(list, func(e *entry) {
		v := &e.Vulnerability
		hit := len(wanted) == 0 && v.ID != "" || wanted[vulntext.Canonical(v.ID)]
		for _, related := range v.RelatedVulnerabilities {
			hit = hit || wanted[vulntext.Canonical(related.ID)]
		}
		if !hit {
			return
		}
		found = append(found, nodescans.Finding{Severity: v.Severity, Exploited: v.Exploited, Known: v.Known})
		if known := v.Known.UTC(); !known.IsZero() && (first == nil || known.Before(*first)) {
			first = &known
		}
	})
	if err != nil {
		return nil, nil
	}
	return found, first
}
