package mirror

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
	"github.com/buildyard/buildyard/internal/scan/vulndb/download"
)

// Form is how a source publishes its advisories.
type Form string

// The forms.
const (
	OneFile  Form = "one file"
	OSV      Form = "OSV ecosystem" // all.zip, modified_id.csv and one file for each record
	NVDFeeds Form = "NVD feeds"     // a file for each year, with its .meta
	NVDAPI   Form = "NVD API"       // pages of records by date of change
)

// Source is one public source.
type Source struct {
	Name string
	URL  string // of the file, of the directory of an ecosystem or of feeds, or of the API
	Form Form
	File string // its name in the mirror, for OneFile
	// OnlyNamed is set for a source that is collected when it is named, or was collected before.
	OnlyNamed bool

	maxBytes int64 // of one file
	gzip     bool  // plain text: the server may compress it, and the mirror does
}

const (
	osvBase    = "https://osv-vulnerabilities.storage.googleapis.com/"
	nvdFeeds   = "https://nvd.nist.gov/feeds/json/cve/2.0/"
	nvdAPI     = "https://services.nvd.nist.gov/rest/json/cves/2.0"
	kevURL     = "https://www.cisa.gov/sites/default/files/feeds/known_exploited_vulnerabilities.json"
	epssURL    = "https://epss.empiricalsecurity.com/epss_scores-current.csv.gz"
	trackerURL = "https://security-tracker.debian.org/tracker/data/json"
	rubySecURL = "https://github.com/rubysec/ruby-advisory-db/archive/refs/heads/master.tar.gz"
	brewURL    = "https://github.com/Homebrew/homebrew-advisory-database/archive/refs/heads/main.tar.gz"
	// overridesURL has the configurations of CVEs that NVD has not analyzed.
	overridesURL = "https://github.com/anchore/nvd-data-overrides/archive/refs/heads/main.tar.gz"
	enrichedURL  = "https://github.com/cisagov/vulnrichment/archive/refs/heads/develop.tar.gz"
)

// ecosystems are the directories of OSV with advisories that the database stores.
var ecosystems = []string{
	"AlmaLinux", "Alpine", "Debian", "Go", "Maven", "PyPI", "Red Hat", "Rocky Linux", "RubyGems", "SUSE", "Ubuntu",
	string(vulndb.SwiftURL), string(vulndb.Crates), "npm", "openSUSE",
}

// Sources returns all sources, in the order in which they are collected.
func Sources() []Source {
	list := []Source{
		{Name: "kev", URL: kevURL, Form: OneFile, File: "kev/kev.json.gz", maxBytes: 64 << 20, gzip: true},
		{Name: "epss", URL: epssURL, Form: OneFile, File: "epss/epss.csv.gz", maxBytes: 256 << 20},
	}
	for _, e := range ecosystems {
		list = append(list, Source{
			Name: "osv/" + sourceName(e), URL: osvBase + url.PathEscape(e) + "/", Form: OSV, maxBytes: 4 << 30,
		})
	}
	return append(list,
		Source{
			Name: "debian-tracker", URL: trackerURL, Form: OneFile, File: "debian-tracker/tracker.json.gz",
			maxBytes: 1 << 30, gzip: true,
		},
		Source{Name: "rubysec", URL: rubySecURL, Form: OneFile, File: "rubysec/rubysec.tar.gz", maxBytes: 256 << 20},
		Source{Name: "homebrew", URL: brewURL, Form: OneFile, File: "homebrew/homebrew.tar.gz", maxBytes: 256 << 20},
		Source{
			Name: "nvd-overrides", URL: overridesURL, Form: OneFile, File: "nvd-overrides/nvd-overrides.tar.gz",
			maxBytes: 1 << 30,
		},
		Source{
			Name: "vulnrichment", URL: enrichedURL, Form: OneFile, File: "vulnrichment/vulnrichment.tar.gz",
			maxBytes: 4 << 30, OnlyNamed: true,
		},
		Source{Name: "nvd", URL: nvdFeeds, Form: NVDFeeds, maxBytes: 1 << 30},
		Source{Name: "nvd-api", URL: nvdAPI, Form: NVDAPI, maxBytes: 256 << 20, gzip: true, OnlyNamed: true},
	)
}

// sourceName is the name of an ecosystem as part of a source's name.
func sourceName(ecosystem string) string {
	return strings.ToLower(strings.ReplaceAll(ecosystem, " ", "-"))
}

// sourceDirectories returns the directories of the sources in a mirror.
func sourceDirectories() []string {
	var out []string
	for _, s := range Sources() {
		top, _, _ := strings.Cut(s.Name, "/")
		if !slices.Contains(out, top) {
			out = append(out, top)
		}
	}
	return out
}

// selectSources returns the sources to collect. A name with a slash is one source; "osv" is every ecosystem.
func selectSources(only []string, m *Manifest) ([]Source, error) {
	all := Sources()
	if len(only) == 0 {
		return slices.DeleteFunc(all, func(s Source) bool { return s.OnlyNamed && m.Sources[s.Name] == nil }), nil
	}
	wanted := map[string]bool{}
	for _, name := range only {
		found := false
		for _, s := range all {
			if s.Name == name || strings.HasPrefix(s.Name, name+"/") {
				wanted[s.Name], found = true, true
			}
		}
		if !found {
			return nil, fmt.Errorf("unknown source %q: want one of %s", name, strings.Join(sourceNames(), ", "))
		}
	}
	return slices.DeleteFunc(all, func(s Source) bool { return !wanted[s.Name] }), nil
}

func sourceNames() []string {
	var out []string
	for _, s := range Sources() {
		out = append(out, s.Name)
	}
	return out
}

// withURLs replaces the URLs of sources: of a source by its name, or of all ecosystems under "osv".
func withURLs(list []Source, urls map[string]string) ([]Source, error) {
	for name, address := range urls {
		u, err := url.Parse(address)
		if err == nil {
			err = download.CheckURL(u)
		}
		if err != nil {
			return nil, fmt.Errorf("URL of source %s: %w", name, err)
		}
		if name != "osv" && !slices.Contains(sourceNames(), name) {
			return nil, fmt.Errorf("URL of an unknown source %q: want osv or one of %s", name,
				strings.Join(sourceNames(), ", "))
		}
	}
	for i := range list {
		s := &list[i]
		if address, ok := urls[s.Name]; ok {
			s.URL = address
		} else if base, ok := urls["osv"]; ok && s.Form == OSV {
			s.URL = strings.TrimSuffix(base, "/") + "/" + strings.TrimPrefix(s.URL, osvBase)
		}
		if s.Form == OSV || s.Form == NVDFeeds {
			s.URL = strings.TrimSuffix(s.URL, "/") + "/"
		}
	}
	return list, nil
}
