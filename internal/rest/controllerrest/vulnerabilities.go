package controllerrest

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/findings"
	"github.com/buildyard/buildyard/internal/controller/vulntext"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
)

// maxFindings is the largest body with the findings in a version.
const maxFindings = 4 << 20

// storeFindings stores what a scanner found in a version of a template.
func (s *server) storeFindings(r *rest.Request) (any, error) {
	if err := s.acquireScanSlot(); err != nil {
		return nil, err
	}
	defer s.releaseScanSlot()
	var f scanFields
	if err := json.Unmarshal(r.Params.RawBody(), &f.fields); err != nil || f.fields == nil {
		return nil, farm.Errorf(farm.CodeInvalid, "The request body is not a JSON object")
	}
	var v api.VersionFindings
	f.readField("template_id", &v.TemplateID, wantString)
	f.readField("tag", &v.Tag, wantString)
	f.readField("content_id", &v.ContentID, wantString)
	f.readField("database", &v.Database, wantTime)
	f.requireField("vulnerabilities", '[', "must be an array")
	f.readField("vulnerabilities", &v.Vulnerabilities, "must be an array of vulnerabilities")
	f.readField("partial", &v.Partial, wantBool)
	f.readField("truncated", &v.Truncated, wantBool)
	f.readField("removed", &v.Removed, wantBool)
	if f.err != nil {
		return nil, f.err
	}
	if !s.visibilityOf(r).seesTemplate(strings.ToLower(v.TemplateID)) {
		return nil, farm.NotFound()
	}
	err := s.controller.Findings.Put(r.Context(), v)
	if err == nil {
		rest.AuditSubject(r.Request, "the scan of the version "+v.TemplateID+":"+v.Tag)
	}
	return nil, err
}

// reportedVersions lists the last reports about versions of templates that the caller sees.
func (s *server) reportedVersions(r *rest.Request) (any, error) {
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	return s.controller.Findings.Reported(s.visibilityOf(r).seesTemplate), nil
}

// affected returns what vulnerabilities affect, as far as the caller may see it.
func (s *server) affected(r *rest.Request) (any, error) {
	ids := r.Params.CommaList("id")
	if err := r.Params.Err(); err != nil {
		return nil, err
	}
	switch {
	case len(ids) == 0:
		return nil, farm.Invalid("id", "is required")
	case len(ids) > api.MaxAffectedIDs:
		return nil, farm.Invalid("id", "must have at most %d IDs", api.MaxAffectedIDs)
	case slices.ContainsFunc(ids, func(id string) bool { return !vulntext.ValidID(id) }):
		return nil, farm.Invalid("id",
			"must have IDs such as CVE-2019-10744, of at most %d bytes with commas between them",
			api.MaxVulnerabilityBytes)
	}
	seen := s.visibilityOf(r)
	out := s.controller.Findings.Affected(ids, findings.Scope{
		ListsVersions: rest.CallerOf(r.Context()).RequirePermission("registry_list") == nil,
		SeesTemplate:  seen.seesTemplate,
		SeesNode:      func(id string) bool { return seen.listsNodes && seen.seesNode(id) },
	})
	return out, nil
}
