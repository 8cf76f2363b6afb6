package report

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/buildyard/buildyard/api"
)

var (
	gitLabTime = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}$`)
	webPage    = regexp.MustCompile(`^https?://.+`)
)

// gitLabRules are what the schemas 15.0.2 of container and dependency scanning require of a vulnerability.
var gitLabRules = map[string]func(v any) bool{
	"id":                      func(v any) bool { return at(v, "id") != "" },
	"name, at most 255":       func(v any) bool { return utf8.RuneCountInString(at(v, "name")) <= 255 },
	"solution, at most 7,000": func(v any) bool { return utf8.RuneCountInString(at(v, "solution")) <= 7000 },
	"severity, one of the enum": func(v any) bool {
		return strings.Contains(" Info Unknown Low Medium High Critical ", " "+at(v, "severity")+" ")
	},
	"identifiers, at least one": func(v any) bool {
		for _, i := range list(object(v)["identifiers"]) {
			url, ok := object(i)["url"]
			if at(i, "type") == "" || at(i, "name") == "" || at(i, "value") == "" ||
				ok && !webPage.MatchString(url.(string)) {
				return false
			}
		}
		return len(list(object(v)["identifiers"])) > 0
	},
	"links are web pages": func(v any) bool {
		for _, l := range list(object(v)["links"]) {
			if !webPage.MatchString(at(l, "url")) {
				return false
			}
		}
		return true
	},
	"details have names and types": func(v any) bool {
		for _, d := range object(object(v)["details"]) {
			if at(d, "name") == "" || at(d, "type") == "text" && at(d, "value") == "" ||
				at(d, "type") == "list" && len(list(object(d)["items"])) == 0 {
				return false
			}
		}
		return true
	},
	"location.dependency": func(v any) bool {
		d := object(object(v)["location"])["dependency"]
		return at(d, "package", "name") != "" && at(d, "version") != ""
	},
}

func TestGitLab(t *testing.T) {
	directory, image, template := sample(), sample(), sample()
	directory.Matches = append(directory.Matches, hostile()...)
	image.Source = api.ScanSource{Type: "vm_image", Target: "/images/a:b.qcow2"}
	template.Source = api.ScanSource{Type: "registry_template", Target: "x:v1", Template: "debian", Tag: "v1"}
	template.Coverage.Partial = true
	for name, tc := range map[string]struct {
		r               Report
		kind, image     string
		vulnerabilities int
	}{
		"directory": {directory, "dependency_scanning", "", 13},
		"image":     {image, "container_scanning", "a_b.qcow2:latest", 2},
		"template":  {template, "container_scanning", "debian:v1", 2},
	} {
		doc := parseJSON(t, write(t, GitLab, options, tc.r))
		scan := object(doc["scan"])
		if doc["version"] != "15.0.2" || scan["type"] != tc.kind || scan["status"] != "success" ||
			!gitLabTime.MatchString(at(scan, "start_time")) || !gitLabTime.MatchString(at(scan, "end_time")) {
			t.Errorf("%s: %v", name, scan)
		}
		for _, tool := range []string{"analyzer", "scanner"} {
			if at(scan, tool, "id") == "" || at(scan, tool, "name") == "" || at(scan, tool, "version") == "" ||
				at(scan, tool, "vendor", "name") == "" {
				t.Errorf("%s: %s %v", name, tool, scan[tool])
			}
		}
		if partial := len(list(scan["messages"])) > 0; partial != tc.r.Coverage.Partial {
			t.Errorf("%s: messages %v", name, scan["messages"])
		}
		all := list(doc["vulnerabilities"])
		if len(all) != tc.vulnerabilities {
			t.Errorf("%s: %d vulnerabilities", name, len(all))
		}
		ids := map[string]bool{}
		for _, v := range all {
			for rule, ok := range gitLabRules {
				if !ok(v) {
					text, _ := json.Marshal(v)
					t.Errorf("%s: not so: %s: %.400s", name, rule, text)
				}
			}
			ids[at(v, "id")] = true
			place := object(object(v)["location"])
			if tc.image == "" && at(place, "file") == "" ||
				tc.image != "" && (at(place, "image") != tc.image || at(place, "operating_system") == "") {
				t.Errorf("%s: location %v", name, place)
			}
		}
		if len(ids) != len(all) {
			t.Errorf("%s: %d IDs of %d vulnerabilities", name, len(ids), len(all))
		}
		files, ok := doc["dependency_files"]
		if ok != (tc.image == "") || ok && len(list(files)) != 3 {
			t.Errorf("%s: dependency files %v", name, files)
		}
	}
}

func TestJUnit(t *testing.T) {
	partial, clean, unreviewed := sample(), sample(), sample()
	partial.Coverage.Partial = true
	partial.Coverage.Unread = []api.ScanUnreadable{{Path: "/a\x1b\x00b", Reason: "damaged"}}
	clean.Matches = nil
	unreviewed.Matches = unreviewed.Matches[:2]
	unreviewed.Matches[1].Vulnerability.DistroPatched = "unknown"
	unreviewed.Matches[0].Vulnerability.Unconfirmed = true
	text := write(t, JUnit, options, partial, clean, unreviewed)
	var doc junitDocument
	if err := xml.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	if doc.Tests != 7 || doc.Failures != 3 || doc.Errors != 1 || len(doc.Suites) != 3 {
		t.Fatalf("%d tests, %d failures, %d errors, %d suites", doc.Tests, doc.Failures, doc.Errors, len(doc.Suites))
	}
	first := doc.Suites[0].Cases[0]
	if first.Name != "[critical] CVE-2019-10744" || first.Class != "npm:lodash@4.17.11" ||
		first.File != "/a/package.json" || !strings.Contains(first.Failure.Text, "Update lodash to 4.17.12") {
		t.Errorf("%+v", first)
	}
	if e := doc.Suites[0].Cases[3].Error; e == nil || e.Text != "/a??b: damaged" {
		t.Errorf("partial: %+v", e)
	}
	if c := doc.Suites[1].Cases[0]; c.Name != "no vulnerabilities found" || c.Failure != nil {
		t.Errorf("clean: %+v", c)
	}
	for _, c := range doc.Suites[2].Cases {
		if c.Failure != nil || c.Skipped == nil {
			t.Errorf("not reviewed, or maybe patched: %+v", c)
		}
	}
	odd := sample()
	odd.Matches = hostile()
	if err := xml.Unmarshal([]byte(write(t, JUnit, options, odd)), &doc); err != nil {
		t.Error(err)
	}
}

func TestTemplate(t *testing.T) {
	r := sample()
	r.Matches[0].Vulnerability.Title = "a|b *c* <d>\nnext"
	for text, want := range map[string]string{
		"{{.Tool}} {{.Version}} {{.Now.Year}}":                                               "imagescan 1.0 2026",
		`{{range .Reports}}{{len .Packages}}, {{len (severity "critical" .Matches)}}{{end}}`: "2, 2",
		"{{with index (index .Reports 0).Matches 0}}{{md .Vulnerability.Title}}{{end}}":      `a\|b \*c\* \<d\> next`,
		`{{with index (index .Reports 0).Packages 0}}{{join "," (paths .)}}{{end}}`:          "/a/package.json,/b/package.json",
		`{{upper "a"}}{{lower "B"}}{{default "-" ""}}{{default "-" "x"}}{{json .Tool}}`:      `Ab-x"imagescan"`,
		"{{with index (index .Reports 0).Packages 1}}{{.Name}}{{end}}":                       "odd?[2J\tname",
	} {
		o := options
		var err error
		if o.Template, err = ParseTemplate(text); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := write(t, Template, o, r); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"{{.Tool": "unclosed action", "{{nothing}}": `function "nothing" not defined`,
	} {
		if _, err := ParseTemplate(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	o := options
	o.Template, _ = ParseTemplate("{{.Nothing}}")
	if err := Write(new(strings.Builder), Template, []Report{r}, o); err == nil ||
		!strings.Contains(err.Error(), "can't evaluate field Nothing") {
		t.Errorf("%v", err)
	}
	b := &limitedBuffer{limit: 3}
	if _, err := b.Write([]byte("abcd")); err == nil {
		t.Error("the limit of the output is not kept")
	}
}

// TestStopTemplate: a template that loops or calls itself without writing anything ends when it is told to.
func TestStopTemplate(t *testing.T) {
	stopped := errors.New("stopped")
	for _, text := range []string{
		"{{range 10000000}}{{end}}", "{{if true}}{{with 1}}{{range 10000000}}{{continue}}{{end}}{{end}}{{end}}",
		`{{define "a"}}{{if lt . 24}}{{$n := len (printf "%*s" . "")}}{{template "b" $n}}{{template "b" $n}}{{end}}{{end}}` +
			`{{define "b"}}{{template "a" (len (printf "%*s " . ""))}}{{end}}{{template "a" 1}}`,
	} {
		o := options
		var err error
		if o.Template, err = ParseTemplate(text); err != nil {
			t.Fatal(err)
		}
		calls := 0
		o.Stop = func() error {
			if calls++; calls > 10 {
				return stopped
			}
			return nil
		}
		if err := Write(new(strings.Builder), Template, []Report{sample()}, o); !errors.Is(err, stopped) ||
			err.Error() != "execute the template: stopped" {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestLoadTemplate(t *testing.T) {
	path := t.TempDir() + "/t"
	if err := os.WriteFile(path, []byte("{{.Tool"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		format     Format
		path, want string
	}{
		{JSON, "", ""},
		{JSON, path, "--template requires --report-format template, not json"},
		{Template, "", "--report-format template requires a file: --template FILE"},
		{Template, path, "parse the template"},
		{Template, path + ".no", "read the template"},
		{Template, "/dev/zero", "more than 1 MiB"},
	} {
		if _, err := LoadTemplate(t.Context(), tc.format, tc.path); (err == nil) != (tc.want == "") ||
			err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s %s: %v", tc.format, tc.path, err)
		}
	}
}

func TestCycloneDXHasDependenciesAndTexts(t *testing.T) {
	r := sample()
	r.Packages = append(r.Packages, pack("deb", "node-lodash", "4.17.21+dfsg", "/var/lib/dpkg/status"))
	r.Packages[0].Metadata = &api.ScanPackageMetadata{Owner: "deb/node-lodash@4.17.21+dfsg"}
	r.Packages[1].Metadata = &api.ScanPackageMetadata{Owner: "deb/unknown@1"}
	v := &r.Matches[0].Vulnerability
	v.Title, v.Description, v.Vector = "A title", "A text", "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:N/I:H/A:H"
	v.References = []string{"https://a.example/", v.URL, "javascript:alert(1)"}
	bom := new(cdx.BOM)
	if err := cdx.NewBOMDecoder(strings.NewReader(write(t, CycloneDX, options, r)),
		cdx.BOMFileFormatJSON).Decode(bom); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, d := range *bom.Dependencies {
		if got[d.Ref] = ""; d.Dependencies != nil {
			got[d.Ref] = strings.Join(*d.Dependencies, " ")
		}
	}
	deb, npm, odd := "deb:node-lodash@4.17.21+dfsg", componentRef(r.Packages[0]), componentRef(r.Packages[1])
	if len(got) != 4 || got["source"] != deb+" "+odd || got[deb] != npm || got[npm] != "" {
		t.Errorf("dependencies %q", got)
	}
	found := (*bom.Vulnerabilities)[0]
	rating := (*found.Ratings)[0]
	if found.Description != "A title" || found.Detail != "A text" || rating.Vector != v.Vector ||
		rating.Method != cdx.ScoringMethodCVSSv31 || found.Recommendation != "Update lodash to 4.17.12" ||
		found.Advisories == nil || len(*found.Advisories) != 2 {
		t.Errorf("%+v, advisories %+v", found, found.Advisories)
	}
}

func FuzzTemplate(f *testing.F) {
	for _, s := range []string{
		"{{.Tool}}", "{{range .Reports}}{{md .Source.Target}}{{end}}", `{{define "a"}}{{template "a"}}{{end}}{{template "a"}}`,
		"{{", "{{json .}}", `{{join "," .Reports}}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "range") || strings.Contains(text, "printf") { // may take long by itself
			return
		}
		o := options
		var err error
		if o.Template, err = ParseTemplate(text); err == nil {
			_ = Write(new(strings.Builder), Template, []Report{sample()}, o)
		}
	})
}
