package upstreamtest

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// Record is a record of OSV.
type Record struct {
	Modified time.Time
	JSON     string
}

// Day is the date of the content that New publishes.
var Day = time.Date(2026, 7, 30, 0, 0, 0, 0, time.UTC)

// Advisory returns a record about a package.
func Advisory(id, ecosystem, name, fixed string, modified time.Time) Record {
	return Record{modified, fmt.Sprintf(`{"schema_version":"1.6.0","id":%q,"modified":%q,"affected":[{"package":`+
		`{"ecosystem":%q,"name":%q},"ranges":[{"type":"ECOSYSTEM","events":[{"introduced":"0"},{"fixed":%q}]}]}]}`,
		id, modified.Format(time.RFC3339Nano), ecosystem, name, fixed)}
}

// OSVPath returns the path of a file of an ecosystem.
func OSVPath(ecosystem, name string) string { return osvPath + ecosystem + "/" + name }

// FeedPath returns the path of a file of a year's feed: ".json.gz" or ".meta".
func FeedPath(year int, ending string) string {
	return fmt.Sprintf("%snvdcve-2.0-%d%s", feedsPath, year, ending)
}

// SetOSV publishes an ecosystem: the archive, the list and each record. Only the list and the records are published
// when archive is false.
func (u *Upstream) SetOSV(ecosystem string, records map[string]Record, archive bool) {
	var z bytes.Buffer
	w := zip.NewWriter(&z)
	ids := slices.Sorted(maps.Keys(records))
	for _, id := range ids {
		e, _ := w.Create(id + ".json") // to memory
		_, _ = e.Write([]byte(records[id].JSON))
		u.Set(OSVPath(ecosystem, id+".json"), []byte(records[id].JSON))
	}
	_ = w.Close()
	slices.SortStableFunc(ids, func(a, b string) int { return records[b].Modified.Compare(records[a].Modified) })
	var list strings.Builder
	for _, id := range ids {
		list.WriteString(records[id].Modified.Format(time.RFC3339Nano) + "," + id + "\n")
	}
	u.Set(OSVPath(ecosystem, "modified_id.csv"), []byte(list.String()))
	if archive {
		u.Set(OSVPath(ecosystem, "all.zip"), z.Bytes())
	}
}

// CVE is a record of NVD.
type CVE struct {
	ID       string
	Modified time.Time
	Product  string // of the vendor "example"
}

func (c CVE) json() string {
	return fmt.Sprintf(`{"cve":{"id":%q,"lastModified":%q,"vulnStatus":"Analyzed","configurations":[{"nodes":[{`+
		`"operator":"OR","cpeMatch":[{"vulnerable":true,"criteria":"cpe:2.3:a:example:%s:*:*:*:*:*:*:*:*",`+
		`"versionEndExcluding":"2.0"}]}]}]}}`, c.ID, c.Modified.Format("2006-01-02T15:04:05.000"), c.Product)
}

func nvdPage(start, total int, list []CVE) []byte {
	elements := make([]string, len(list))
	for i, c := range list {
		elements[i] = c.json()
	}
	return fmt.Appendf(nil, `{"resultsPerPage":%d,"startIndex":%d,"totalResults":%d,"format":"NVD_CVE",`+
		`"version":"2.0","timestamp":"2026-08-01T00:00:00.000","vulnerabilities":[%s]}`, len(list), start, total,
		strings.Join(elements, ","))
}

// SetFeed publishes the feed of a year with its .meta file.
func (u *Upstream) SetFeed(year int, list []CVE) {
	content := nvdPage(0, len(list), list)
	packed := Gzip(content)
	newest := time.Time{}
	for _, c := range list {
		if c.Modified.After(newest) {
			newest = c.Modified
		}
	}
	u.Set(FeedPath(year, ".json.gz"), packed)
	u.Set(FeedPath(year, ".meta"), fmt.Appendf(nil,
		"lastModifiedDate:%s\r\nsize:%d\r\nzipSize:%d\r\ngzSize:%d\r\nsha256:%X\r\n",
		newest.In(time.FixedZone("", -4*3600)).Format("2006-01-02T15:04:05-07:00"), len(content), len(packed)+150,
		len(packed), sha256.Sum256(content)))
}

// SetCVEs sets the records of NVD's API.
func (u *Upstream) SetCVEs(list []CVE) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.cves = slices.Clone(list)
}

// ServePage answers as NVD's API does: at most 2,000 records a page, in the order of their IDs, and of at most 120
// days. As a fault it lets one request pass.
func (u *Upstream) ServePage(w http.ResponseWriter, r *http.Request, _ []byte) {
	if u.Key != "" && r.Header.Get("apiKey") != u.Key {
		w.Header().Set("message", "Invalid apiKey.")
		http.NotFound(w, r)
		return
	}
	q := r.URL.Query()
	start, err1 := strconv.Atoi(cmp.Or(q.Get("startIndex"), "0"))
	size, err2 := strconv.Atoi(cmp.Or(q.Get("resultsPerPage"), "2000"))
	from, to, err3 := dates(q)
	if err1 != nil || err2 != nil || err3 != nil || start < 0 || size < 1 || size > 2000 {
		http.NotFound(w, r)
		return
	}
	u.mu.Lock()
	list := slices.DeleteFunc(slices.Clone(u.cves), func(c CVE) bool {
		return !from.IsZero() && (c.Modified.Before(from) || c.Modified.After(to))
	})
	u.mu.Unlock()
	total := len(list)
	list = list[min(start, total):min(start+size, total)]
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(nvdPage(start, total, list))
}

func dates(q url.Values) (from, to time.Time, err error) {
	const layout = "2006-01-02T15:04:05.000Z07:00"
	if q.Get("lastModStartDate") == "" && q.Get("lastModEndDate") == "" {
		return from, to, nil
	}
	if from, err = time.Parse(layout, q.Get("lastModStartDate")); err != nil {
		return from, to, err
	}
	to, err = time.Parse(layout, q.Get("lastModEndDate"))
	if err == nil && (to.Before(from) || to.Sub(from) > 120*24*time.Hour) {
		err = fmt.Errorf("invalid range")
	}
	return from, to, err
}

// KEV returns a catalog of known exploited vulnerabilities.
func KEV(ids ...string) []byte {
	type entry struct {
		ID    string `json:"cveID"`
		Added string `json:"dateAdded"`
	}
	list := []entry{}
	for _, id := range ids {
		list = append(list, entry{id, "2026-07-29"})
	}
	b, _ := json.Marshal(map[string]any{ // of plain values
		"title": "catalog", "catalogVersion": "2026.07.30", "dateReleased": "2026-07-30T12:00:00.0000Z",
		"count": len(list), "vulnerabilities": list,
	})
	return b
}

// EPSS returns scores of CVEs in gzip form.
func EPSS(ids ...string) []byte {
	var b strings.Builder
	b.WriteString("#model_version:v2025.03.14,score_date:2026-07-30T12:55:00Z\ncve,epss,percentile\n")
	for _, id := range ids {
		b.WriteString(id + ",0.12345,0.93942\n")
	}
	return Gzip([]byte(b.String()))
}

// Archive returns a .tar.gz of files.
func Archive(files map[string]string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, name := range slices.Sorted(maps.Keys(files)) { // to memory
		_ = w.WriteHeader(&tar.Header{Name: name, Size: int64(len(files[name])), Mode: 0o644, ModTime: Day})
		_, _ = w.Write([]byte(files[name]))
	}
	_ = w.Close()
	_ = z.Close()
	return b.Bytes()
}

// Ecosystem is a directory of OSV on the server.
type Ecosystem struct {
	Prefix  string // of IDs
	Release string // of a distribution, as its packages name it
}

// Ecosystems are the directories of OSV on the server.
var Ecosystems = map[string]Ecosystem{
	"AlmaLinux": {"ALSA-2026", ":9"}, "Alpine": {"ALPINE-CVE-2026", ":v3.20"}, "Debian": {"DEBIAN-CVE-2026", ":12"},
	"Go": {"GO-2026", ""}, "Maven": {"GHSA-m", ""}, "PyPI": {"PYSEC-2026", ""},
	"Red Hat": {"RHSA-2026", ":enterprise_linux:9::baseos"}, "Rocky Linux": {"RLSA-2026", ":9"},
	"RubyGems": {"GHSA-r", ""}, "SUSE": {"SUSE-SU-2026", ":Linux Enterprise Server 15 SP5"},
	"Ubuntu": {"UBUNTU-CVE-2026", ":24.04:LTS"}, string(vulndb.Crates): {"RUSTSEC-2026", ""}, "npm": {"GHSA-n", ""},
	"openSUSE": {"openSUSE-SU-2026", ":Leap 15.5"}, "SwiftURL": {"GHSA-s", ""},
}

// setAll publishes small content of every source.
func (u *Upstream) setAll() {
	for name, e := range Ecosystems {
		records := map[string]Record{}
		for i := range 3 {
			id := fmt.Sprintf("%s-%04d", e.Prefix, 1000+i)
			date := Day.Add(time.Duration(i) * time.Hour)
			records[id] = Advisory(id, name+e.Release, fmt.Sprintf("package-%d", i), "1.0.0", date)
		}
		u.SetOSV(name, records, true)
	}
	for year := 2002; year <= 2026; year++ {
		u.SetFeed(year, []CVE{{fmt.Sprintf("CVE-%d-1000", year), Day, "product"}})
	}
	u.Set(KEVPath, KEV("CVE-2026-1000"))
	u.Set(EPSSPath, EPSS("CVE-2026-1000", "CVE-2025-1000"))
	u.Set(TrackerPath, []byte(`{"curl":{"CVE-2026-1000":{"releases":{"bookworm":{"status":"resolved",`+
		`"fixed_version":"7.88.1-10","urgency":"low"}}}}}`))
	u.Set(archivePath+"rubysec.tar.gz", Archive(map[string]string{
		"ruby-advisory-db-master/gems/rack/CVE-2026-1000.yml": "gem: rack\ncve: 2026-1000\n" +
			"url: https://example.org/1\ntitle: t\ndate: 2026-07-30\npatched_versions:\n  - \">= 3.0\"\n",
	}))
	u.Set(archivePath+"homebrew.tar.gz", Archive(map[string]string{
		"homebrew-advisory-database-main/BREW-2026-1.json": Advisory("BREW-2026-1", "Homebrew", "jq", "1.8", Day).JSON,
	}))
	u.Set(archivePath+"nvd-overrides.tar.gz", Archive(map[string]string{
		"nvd-data-overrides-main/data/2026/CVE-2026-1000.json": `{"_annotation":{"cve_id":"CVE-2026-1000"},"cve":{` +
			`"configurations":[]}}`,
	}))
	u.Set(archivePath+"vulnrichment.tar.gz", Archive(map[string]string{
		"vulnrichment-develop/2026/1xxx/CVE-2026-1000.json": `{"dataType":"CVE_RECORD","dataVersion":"5.1",` +
			`"cveMetadata":{"cveId":"CVE-2026-1000","state":"PUBLISHED"},"containers":{"cna":{}}}`,
	}))
}
