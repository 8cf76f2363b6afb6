package report

import (
	"cmp"
	"encoding/json"
	"io"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/match"
)

// gitLabSchema is the version of GitLab's security report schemas that reports conform to.
const gitLabSchema = "15.0.2"

// Limits of the schema in characters. Bytes are never fewer.
const (
	maxGitLabName     = 255
	maxGitLabSolution = 7000
	maxGitLabPaths    = 100 // ours: paths listed as details of a vulnerability
)

// gitLabReport is a report of container scanning, which images and templates get, or of dependency scanning, which
// directories and hosts get. The schemas are in GitLab's project security-report-schemas.
type gitLabReport struct {
	Version         string                 `json:"version"`
	Schema          string                 `json:"schema"`
	Scan            gitLabScan             `json:"scan"`
	Vulnerabilities []gitLabVulnerability  `json:"vulnerabilities"`
	DependencyFiles []gitLabDependencyFile `json:"dependency_files,omitzero"` // of dependency scanning
}

type gitLabScan struct {
	Type      string          `json:"type"`
	Status    string          `json:"status"`
	StartTime string          `json:"start_time"`
	EndTime   string          `json:"end_time"`
	Analyzer  gitLabTool      `json:"analyzer"`
	Scanner   gitLabTool      `json:"scanner"`
	Messages  []gitLabMessage `json:"messages,omitempty"`
}

type gitLabTool struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Version string `json:"version"`
	Vendor  struct {
		Name string `json:"name"`
	} `json:"vendor"`
}

type gitLabMessage struct {
	Level string `json:"level"`
	Value string `json:"value"`
}

type gitLabVulnerability struct {
	ID          string                  `json:"id"`
	Name        string                  `json:"name"`
	Description string                  `json:"description,omitempty"`
	Severity    string                  `json:"severity"`
	Solution    string                  `json:"solution,omitempty"`
	Identifiers []gitLabIdentifier      `json:"identifiers"`
	Links       []gitLabLink            `json:"links,omitempty"`
	Details     map[string]gitLabDetail `json:"details,omitempty"`
	Location    gitLabLocation          `json:"location"`
}

type gitLabIdentifier struct {
	Type  string `json:"type"`
	Name  string `json:"name"`
	Value string `json:"value"`
	URL   string `json:"url,omitempty"`
}

type gitLabLink struct {
	URL string `json:"url"`
}

// gitLabDetail is a text or a list of texts.
type gitLabDetail struct {
	Name  string         `json:"name,omitempty"`
	Type  string         `json:"type"`
	Value string         `json:"value,omitempty"`
	Items []gitLabDetail `json:"items,omitempty"`
}

type gitLabLocation struct {
	File            string           `json:"file,omitempty"` // of dependency scanning
	Dependency      gitLabDependency `json:"dependency"`
	OperatingSystem string           `json:"operating_system,omitempty"` // this and the next of container scanning
	Image           string           `json:"image,omitempty"`
}

type gitLabDependency struct {
	Package struct {
		Name string `json:"name"`
	} `json:"package"`
	Version string `json:"version"`
}

type gitLabDependencyFile struct {
	Path           string             `json:"path"`
	PackageManager string             `json:"package_manager"`
	Dependencies   []gitLabDependency `json:"dependencies"`
}

// gitLabSeverities maps severities to those of GitLab.
var gitLabSeverities = map[string]string{"critical": "Critical", "high": "High", "medium": "Medium", "low": "Low"}

func writeGitLab(w io.Writer, r Report, o Options) error {
	now := o.Now.UTC().Format("2006-01-02T15:04:05")
	tool := gitLabTool{ID: o.Tool, Name: o.Tool, Version: cmp.Or(o.Version, "unknown")}
	tool.Vendor.Name = "Buildyard"
	out := gitLabReport{
		Version: gitLabSchema, Vulnerabilities: []gitLabVulnerability{},
		Scan: gitLabScan{
			Type: "container_scanning", Status: "success", StartTime: now, EndTime: now, Analyzer: tool, Scanner: tool,
		},
	}
	image := imageName(r.Source)
	if image == "" {
		out.Scan.Type, out.DependencyFiles = "dependency_scanning", dependencyFiles(r.Packages)
	}
	out.Schema = "https://gitlab.com/gitlab-org/security-products/security-report-schemas/-/raw/v" + gitLabSchema +
		"/dist/" + strings.ReplaceAll(out.Scan.Type, "_", "-") + "-report-format.json"
	if r.Coverage.Partial {
		out.Scan.Messages = []gitLabMessage{
			{"warn", partialReason(r.Coverage) + "; a JSON report lists all"},
		}
	}
	at := map[string]int{} // container scanning has no paths: each vulnerability of a version of a package once
	for _, m := range r.Matches {
		v := toGitLab(m, image)
		if i, ok := at[v.ID]; ok {
			out.Vulnerabilities[i].addPaths(m.Artifact.Locations)
			out.Vulnerabilities[i].addReachable(m.Vulnerability.Reachable)
			continue
		}
		at[v.ID] = len(out.Vulnerabilities)
		out.Vulnerabilities = append(out.Vulnerabilities, v)
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(out)
}

// imageName names an image or the version of a template as name:tag; "" for other sources.
func imageName(s api.ScanSource) string {
	switch s.Type {
	case "vm_image":
		return strings.ReplaceAll(filepath.Base(s.Target), ":", "_") + ":latest"
	case "registry_template":
		if s.Tag != "" {
			return strings.ReplaceAll(cmp.Or(s.Template, s.TemplateID), ":", "_") + ":" + s.Tag
		}
		return s.Target
	case "container":
		if fullReference.MatchString(s.Image) {
			return s.Image
		}
		file, _, _ := strings.Cut(filepath.Base(s.Target), ":")
		return file + ":" + cmp.Or(plainTag.FindString(s.Image), "latest")
	}
	return ""
}

// fullReference is a reference with a tag, and plainTag a tag alone, as layouts have both.
var (
	fullReference = regexp.MustCompile(`^[^:\s@]+(:\d+[^:\s@]*)?:[\w.-]+$`)
	plainTag      = regexp.MustCompile(`^[\w.-]+$`)
)

func toGitLab(m api.ScanMatch, image string) gitLabVulnerability {
	v, p := m.Vulnerability, m.Artifact
	out := gitLabVulnerability{
		Name: cut(cmp.Or(v.Title, v.ID), maxGitLabName), Description: v.Description,
		Severity: cmp.Or(gitLabSeverities[v.Severity], "Unknown"), Solution: cut(fixText(m), maxGitLabSolution),
		Identifiers: gitLabIdentifiers(v), Details: map[string]gitLabDetail{},
	}
	for _, r := range webAddresses(v) {
		out.Links = append(out.Links, gitLabLink{r})
	}
	out.Location.Dependency = toDependency(p)
	file := p.Name
	if len(p.Locations) > 0 {
		file = p.Locations[0].Path
	}
	if image != "" {
		out.ID = matchHash(m, "")
		out.Location.Image, out.Location.OperatingSystem = image, "Unknown"
		if p.Metadata != nil && p.Metadata.Distribution != "" {
			out.Location.OperatingSystem = p.Metadata.Distribution
		}
		out.addPaths(p.Locations)
	} else {
		out.ID = matchHash(m, file)
		out.Location.File = cmp.Or(strings.TrimLeft(catalog.FileOf(file), "/"), p.Name)
		if catalog.FileOf(file) != file {
			out.addPaths(p.Locations)
		}
	}
	for key, value := range map[string][2]string{
		"cvss": {"CVSS vector", v.Vector}, "purl": {"Package URL", p.PURL},
		"known_exploited": {"Known exploited", map[bool]string{true: "yes"}[v.Exploited]},
		"distro_patched":  {"Patched by the distribution", v.DistroPatched},
		"unconfirmed":     {"Not reviewed", map[bool]string{true: "yes"}[v.Unconfirmed]},
	} {
		if value[1] != "" {
			out.Details[key] = gitLabDetail{Name: value[0], Type: "text", Value: value[1]}
		}
	}
	out.addReachable(v.Reachable)
	return out
}

// addReachable adds whether the program at a location has the vulnerable code. Of several locations the one that has it
// counts, then one of which that is unknown.
func (v *gitLabVulnerability) addReachable(state string) {
	before := v.Details[reachableLabel].Value
	if s := match.MaxReachability(match.Reachability(before), match.Reachability(state)); s != "" {
		v.Details[reachableLabel] = gitLabDetail{Name: "Reachable", Type: "text", Value: string(s)}
	}
}

// addPaths adds where a package was found.
func (v *gitLabVulnerability) addPaths(locations []api.ScanLocation) {
	d := v.Details["paths"]
	d.Name, d.Type = "Paths", "list"
	for _, l := range locations {
		if len(d.Items) < maxGitLabPaths {
			d.Items = append(d.Items, gitLabDetail{Type: "text", Value: l.Path})
		}
	}
	if len(d.Items) > 0 {
		v.Details["paths"] = d
	}
}

// gitLabIdentifiers are the ID of a vulnerability, which GitLab tracks it by, and its other names.
func gitLabIdentifiers(v api.ScanVulnerability) []gitLabIdentifier {
	var out []gitLabIdentifier
	for i, id := range append([]string{v.ID}, v.Related...) {
		prefix, _, _ := strings.Cut(id, "-")
		n := gitLabIdentifier{Type: cmp.Or(strings.ToLower(prefix), "other"), Name: id, Value: id}
		if i == 0 && isWebAddress(v.URL) {
			n.URL = v.URL
		}
		if id != "" && (i == 0 || id != v.ID) {
			out = append(out, n)
		}
	}
	return out
}

func toDependency(p api.ScanPackage) gitLabDependency {
	d := gitLabDependency{Version: p.Version}
	d.Package.Name = p.Name
	return d
}

// dependencyFiles lists the packages by the files that they were found in, in the order of packages.
func dependencyFiles(packages []api.ScanPackage) []gitLabDependencyFile {
	type key struct{ path, manager string }
	at := map[key]int{}
	out := []gitLabDependencyFile{}
	for _, p := range packages {
		for _, l := range p.Locations {
			k := key{cmp.Or(strings.TrimLeft(l.Path, "/"), p.Name), cmp.Or(p.Type, "other")}
			i, ok := at[k]
			if !ok {
				i = len(out)
				at[k] = i
				out = append(out, gitLabDependencyFile{Path: k.path, PackageManager: k.manager})
			}
			out[i].Dependencies = append(out[i].Dependencies, toDependency(p))
		}
	}
	return out
}
