package vulndbtest

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// Ecosystem is the size and shape of one of OSV's archives.
type Ecosystem struct {
	Name     string
	Prefix   string   // of IDs
	Records  int      // about as many as are published
	Packages int      // affected by a record, on average
	Releases []string // of a distribution; every package of a record is affected in each
	Fixed    string   // format of versions, with two numbers
	Listed   int      // versions that are listed in addition to ranges, on average
	Malware  bool     // records about a malicious package, all of whose versions are affected
}

// Ecosystems are about as large as those of OSV in 2026.
var Ecosystems = []Ecosystem{
	{Name: "npm", Prefix: "MAL-2025-", Records: 210_000, Packages: 1, Listed: 1, Malware: true},
	{Name: "npm", Prefix: "GHSA-n", Records: 7_000, Packages: 1, Fixed: "%d.%d.0"},
	{Name: "PyPI", Prefix: "MAL-2026-", Records: 10_000, Packages: 1, Listed: 1, Malware: true},
	{Name: "PyPI", Prefix: "PYSEC-2025-", Records: 17_000, Packages: 1, Fixed: "%d.%d", Listed: 40},
	{Name: "Maven", Prefix: "GHSA-m", Records: 7_000, Packages: 2, Fixed: "%d.%d.1", Listed: 40},
	{Name: "Go", Prefix: "GO-2025-", Records: 6_000, Packages: 1, Fixed: "%d.%d.0"},
	{Name: "RubyGems", Prefix: "GHSA-r", Records: 3_000, Packages: 1, Fixed: "%d.%d.2"},
	{Name: string(vulndb.Crates), Prefix: "RUSTSEC-2025-", Records: 2_500, Packages: 1, Fixed: "0.%d.%d"},
	{
		Name: "Debian", Prefix: "DEBIAN-CVE-2025-", Records: 55_000, Packages: 1, Fixed: "1:%d.%d-1+deb12u1",
		Listed: 20, Releases: []string{"11", "12", "13"},
	},
	{
		Name: "Ubuntu", Prefix: "UBUNTU-CVE-2025-", Records: 60_000, Packages: 1, Fixed: "%d.%d-0ubuntu1.2", Listed: 20,
		Releases: []string{"Pro:16.04:LTS", "Pro:18.04:LTS", "20.04:LTS", "22.04:LTS", "24.04:LTS", "25.10"},
	},
	{
		Name: "Alpine", Prefix: "ALPINE-CVE-2025-", Records: 5_000, Packages: 1, Fixed: "%d.%d-r0",
		Releases: []string{"v3.17", "v3.18", "v3.19", "v3.20", "v3.21", "v3.22"},
	},
	{
		Name: "Red Hat", Prefix: "RHSA-2025:", Records: 24_000, Packages: 12, Fixed: "0:%d.%d-4.el9",
		Releases: []string{"enterprise_linux:9::baseos", "enterprise_linux:9::appstream"},
	},
	{
		Name: "Rocky Linux", Prefix: "RLSA-2025:", Records: 4_000, Packages: 8, Fixed: "0:%d.%d-4.el9",
		Releases: []string{"9"},
	},
	{
		Name: "AlmaLinux", Prefix: "ALSA-2025:", Records: 5_000, Packages: 12, Fixed: "%d.%d-4.el9",
		Releases: []string{"9"},
	},
	{
		Name: "SUSE", Prefix: "SUSE-SU-2025:", Records: 22_000, Packages: 6, Fixed: "%d.%d-150500.3.1",
		Releases: []string{"Linux Enterprise Server 15 SP5", "Linux Enterprise Module for Basesystem 15 SP5"},
	},
	{
		Name: "openSUSE", Prefix: "openSUSE-SU-2025:", Records: 14_000, Packages: 6, Fixed: "%d.%d-150500.3.1",
		Releases: []string{"Leap 15.5"},
	},
}

// WriteOSVArchive writes the archive of an ecosystem in the form of OSV: generated records with texts, references and
// CVEs of WriteNVDFeed. The same seed produces the same bytes.
func WriteOSVArchive(w io.Writer, e Ecosystem, seed uint64) error {
	z := zip.NewWriter(w)
	compressor, err := flate.NewWriter(io.Discard, flate.BestSpeed)
	if err != nil {
		return err
	}
	z.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) {
		compressor.Reset(w) // files are written one after the other
		return compressor, nil
	})
	g := &generator{rand.New(rand.NewPCG(seed, uint64(len(e.Prefix))))}
	var b bytes.Buffer
	for i := range e.Records {
		b.Reset()
		id := fmt.Sprintf("%s%06d", e.Prefix, i)
		g.osvRecord(&b, e, id, i)
		f, err := z.Create(id + ".json")
		if err == nil {
			_, err = f.Write(b.Bytes())
		}
		if err != nil {
			return err
		}
	}
	return z.Close()
}

// osvRecord writes one record.
func (g *generator) osvRecord(b *bytes.Buffer, e Ecosystem, id string, i int) {
	date := Built.Add(-time.Duration(g.IntN(1_000_000)) * time.Minute).Format(time.RFC3339)
	title, text := g.words(8), g.words(60)
	if e.Malware { // these are written by programs
		title = "Malicious code in " + strings.ToLower(id) + " (" + e.Name + ")"
		text = fmt.Sprintf("\n---\n_-= Per source details. Do not edit below this line.=-_\n\n"+
			"## Source: example (%016x)\nThe package %s has malicious code.", g.Uint64(), strings.ToLower(id))
	}
	fmt.Fprintf(b, `{"schema_version":"1.7.0","id":%q,"modified":%q,"published":%q,"summary":%q,"details":%q,`,
		id, date, date, title, text)
	if !e.Malware {
		cve := fmt.Sprintf("CVE-%d-%04d", 1999+i%28, 1000+i*5/28)
		field := "aliases"
		if len(e.Releases) > 0 {
			field = "upstream"
		}
		fmt.Fprintf(b, `%q:[%q],`, field, cve)
	}
	fmt.Fprintf(b, `"references":[{"type":"WEB","url":"https://example.org/%s"},{"type":"PACKAGE","url":`+
		`"https://example.org/%s"}],"affected":[`, strings.ReplaceAll(g.words(5), " ", "/"), g.pick("a", "b", "c"))
	first := true
	for range max(1, g.IntN(2*e.Packages+1)) {
		g.affected(b, e, id, &first)
	}
	b.WriteString(`],"severity":[{"type":"CVSS_V3","score":"CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H"}]}`)
}

// affected writes what is affected of one package, in each release.
func (g *generator) affected(b *bytes.Buffer, e Ecosystem, id string, first *bool) {
	name := fmt.Sprintf("%s-%s%d", g.pick("lib", "python3", "node", "perl", "kernel"),
		g.pick("core", "net", "xml", "util"), g.IntN(6000))
	switch e.Name {
	case "Maven":
		name = "org.example." + g.pick("web", "data", "cloud") + ":" + name
	case "Go":
		name = "example.org/" + g.pick("web", "data", "cloud") + "/" + name
	}
	fixed, introduced := fmt.Sprintf(e.Fixed, 1+g.IntN(9), g.IntN(90)), "0"
	if e.Malware {
		name, fixed = strings.ToLower(strings.ReplaceAll(id, "MAL", g.pick("react", "eslint", "webpack"))), ""
	}
	releases := e.Releases
	if len(releases) == 0 {
		releases = []string{""}
	}
	for _, release := range releases {
		if !*first {
			b.WriteString(",")
		}
		*first = false
		ecosystem := e.Name
		if release != "" {
			ecosystem += ":" + release
		}
		fmt.Fprintf(b, `{"package":{"ecosystem":%q,"name":%q,"purl":"pkg:generic/%s"},"ranges":[{"type":"ECOSYSTEM",`+
			`"events":[{"introduced":%q}`, ecosystem, name, name, introduced)
		if fixed != "" && g.IntN(4) > 0 {
			fmt.Fprintf(b, `,{"fixed":%q}`, fixed)
		}
		b.WriteString(`]}]`)
		if e.Listed > 0 {
			g.versions(b, e)
		}
		b.WriteString(`}`)
	}
}

// versions writes a list of affected versions.
func (g *generator) versions(b *bytes.Buffer, e Ecosystem) {
	b.WriteString(`,"versions":[`)
	for i := range max(1, g.IntN(2*e.Listed)) {
		if i > 0 {
			b.WriteString(",")
		}
		if e.Malware {
			fmt.Fprintf(b, `"1.0.%d"`, i)
			continue
		}
		fmt.Fprintf(b, "%q", fmt.Sprintf(e.Fixed, 1, i))
	}
	b.WriteString("]")
}
