package report

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/buildyard/buildyard/api"
)

// object and list are parts of a JSON document; a missing part is empty.
func object(v any) map[string]any { m, _ := v.(map[string]any); return m }

func list(v any) []any { l, _ := v.([]any); return l }

// at returns the value at a path of keys, "" where it is no text.
func at(v any, path ...string) string {
	for _, key := range path {
		v = object(v)[key]
	}
	s, _ := v.(string)
	return s
}

func parseJSON(t *testing.T, text string) map[string]any {
	t.Helper()
	var doc map[string]any
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

var (
	scoreText    = regexp.MustCompile(`^(10\.0|[0-9]\.[0-9])$`)
	lineHashText = regexp.MustCompile(`^[0-9a-f]{16}:1$`)
)

// gitHubRules are the properties that GitHub's documentation "SARIF support for code scanning" requires or limits. Each
// returns what is wrong with a run, a rule or a result.
var gitHubRules = struct{ run, rule, result map[string]func(any) bool }{
	run: map[string]func(any) bool{
		"tool.driver.name is required":  func(v any) bool { return at(v, "tool", "driver", "name") != "" },
		"tool.driver.version is a text": func(v any) bool { return at(v, "tool", "driver", "version") != "" },
		"a run has a category of its own": func(v any) bool {
			return strings.HasSuffix(at(v, "automationDetails", "id"), "/")
		},
		"at most 25,000 results": func(v any) bool { return len(list(object(v)["results"])) <= 25000 },
		"at most 25,000 rules": func(v any) bool {
			return len(list(object(object(object(v)["tool"])["driver"])["rules"])) <= 25000
		},
	},
	rule: map[string]func(any) bool{
		"id is required":                  func(v any) bool { return at(v, "id") != "" },
		"name has at most 255 characters": func(v any) bool { return within(at(v, "name"), 1, 255) },
		"shortDescription is required, at most 1,024": func(v any) bool {
			return within(at(v, "shortDescription", "text"), 1, 1024)
		},
		"fullDescription is required, at most 1,024": func(v any) bool {
			return within(at(v, "fullDescription", "text"), 1, 1024)
		},
		"help.text is required":        func(v any) bool { return at(v, "help", "text") != "" },
		"help.markdown is recommended": func(v any) bool { return at(v, "help", "markdown") != "" },
		"helpUri is an address or missing": func(v any) bool {
			uri, ok := object(v)["helpUri"]
			return !ok || isWebAddress(fmt.Sprint(uri))
		},
		"at most 20 tags, of which 10 are shown": func(v any) bool {
			tags := list(object(object(v)["properties"])["tags"])
			return len(tags) >= 1 && len(tags) <= 10 && tags[0] == "security"
		},
		"security-severity is a text from 0.0 to 10.0, or missing": func(v any) bool {
			s, ok := object(object(v)["properties"])["security-severity"]
			text, isText := s.(string)
			return !ok || isText && scoreText.MatchString(text) && text != "0.0"
		},
	},
	result: map[string]func(any) bool{
		"ruleId is required":       func(v any) bool { return at(v, "ruleId") != "" },
		"message.text is required": func(v any) bool { return at(v, "message", "text") != "" },
		"level is one of SARIF's": func(v any) bool {
			return strings.Contains(" note warning error ", " "+at(v, "level")+" ")
		},
		"1 to 1,000 locations": func(v any) bool {
			n := len(list(object(v)["locations"]))
			return n >= 1 && n <= 1000
		},
		"each location is a relative URI and a line": func(v any) bool {
			for _, l := range list(object(v)["locations"]) {
				place := object(l)["physicalLocation"]
				u, err := url.Parse(at(place, "artifactLocation", "uri"))
				line, _ := object(object(place)["region"])["startLine"].(float64)
				if err != nil || u.IsAbs() || u.Host != "" || u.Path == "" || u.Path[0] == '/' || line < 1 {
					return false
				}
			}
			return true
		},
		"partialFingerprints has the hash that GitHub compares": func(v any) bool {
			return lineHashText.MatchString(at(v, "partialFingerprints", "primaryLocationLineHash"))
		},
	},
}

func within(s string, from, to int) bool {
	n := utf8.RuneCountInString(s)
	return n >= from && n <= to
}

// checkGitHub checks a document against every rule.
func checkGitHub(t *testing.T, doc map[string]any) {
	t.Helper()
	if doc["version"] != "2.1.0" || at(doc, "$schema") == "" {
		t.Errorf("version %v, schema %v", doc["version"], doc["$schema"])
	}
	check := func(kind string, rules map[string]func(any) bool, v any) {
		t.Helper()
		for name, ok := range rules {
			if !ok(v) {
				text, _ := json.Marshal(v)
				t.Errorf("%s: not so: %s: %.500s", kind, name, text)
			}
		}
	}
	categories := map[string]bool{}
	for _, run := range list(doc["runs"]) {
		check("run", gitHubRules.run, run)
		if id := at(run, "automationDetails", "id"); categories[id] {
			t.Errorf("two runs have the category %s", id)
		} else {
			categories[id] = true
		}
		rules := list(object(object(object(run)["tool"])["driver"])["rules"])
		for _, r := range rules {
			check("rule", gitHubRules.rule, r)
		}
		for _, r := range list(object(run)["results"]) {
			check("result", gitHubRules.result, r)
			i, _ := object(r)["ruleIndex"].(float64)
			if int(i) >= len(rules) || at(rules[int(i)], "id") != at(r, "ruleId") {
				t.Errorf("rule %v of %s", object(r)["ruleIndex"], at(r, "ruleId"))
			}
		}
	}
}

// hostile are matches with whatever sources and disks may contain.
func hostile() []api.ScanMatch {
	var out []api.ScanMatch
	for i, path := range []string{
		"/a b/ü/%41/package.json", "//x", "/a:b", "/../../etc", "/\xff\xfe", "/a?b#c", "/", "/\x1b[2J",
		"/javascript:alert(1)",
	} {
		p := pack("npm", "p", strconv.Itoa(i), path)
		m := matchOf(p, "CVE-2024-"+strconv.Itoa(i), 0, []string{"critical", "high", "medium", "low", "unknown"}[i%5])
		m.Vulnerability.Title = strings.Repeat("ä|*<script>", i*50)
		m.Vulnerability.Description = strings.Repeat("long\n", i*300)
		m.Vulnerability.URL = []string{"https://a.example", "javascript:alert(1)", "", "https://"}[i%4]
		m.Vulnerability.References = []string{"https://b.example/x", "ftp://c"}
		m.Vulnerability.Vector, m.Vulnerability.Exploited = "CVSS:3.1/AV:N", i%2 == 0
		out = append(out, m)
	}
	nowhere := matchOf(pack("npm", "nowhere", "1"), "GHSA-"+strings.Repeat("x", 300), 11, "high")
	return append(out, nowhere)
}

func TestSARIFIsAcceptedByGitHub(t *testing.T) {
	odd := sample()
	odd.Source, odd.Matches = api.ScanSource{Type: "registry_template", Target: "x/y:v1"}, hostile()
	doc := parseJSON(t, write(t, SARIF, options, sample(), odd))
	checkGitHub(t, doc)
	run := object(list(doc["runs"])[0])
	rules := list(object(object(run["tool"])["driver"])["rules"])
	if got := at(rules[0], "properties", "security-severity"); got != "9.1" {
		t.Errorf("the score is %q", got)
	}
	if _, ok := object(object(rules[1])["properties"])["security-severity"]; ok {
		t.Error("an unknown severity has a score")
	}
	fingerprint := func(run any, result int) string {
		return at(list(object(run)["results"])[result], "partialFingerprints", "primaryLocationLineHash")
	}
	if fingerprint(run, 0) == fingerprint(run, 1) {
		t.Error("two paths have one fingerprint")
	}
	again := parseJSON(t, write(t, SARIF, options, sample()))
	if fingerprint(list(again["runs"])[0], 0) != fingerprint(run, 0) {
		t.Error("a fingerprint changes from run to run")
	}
}

// TestSARIFLimits: of more results than GitHub accepts the most severe ones are written.
func TestSARIFLimits(t *testing.T) {
	r := sample()
	r.Matches = nil
	p := pack("npm", "p", "1", "/p")
	for i := range maxSARIFResults + 10 {
		severity, score := "low", 2.0
		if i >= maxSARIFResults+5 {
			severity, score = "critical", 9.8
		}
		r.Matches = append(r.Matches, matchOf(p, "CVE-"+strconv.Itoa(i%50), score, severity))
	}
	doc := parseJSON(t, write(t, SARIF, options, r))
	run := object(list(doc["runs"])[0])
	results := list(run["results"])
	if len(results) != maxSARIFResults || at(results[0], "level") != "error" || at(results[5], "level") != "note" {
		t.Errorf("%d results, the first %v", len(results), results[0])
	}
	if n := object(run["properties"])["omittedResults"]; n != 10.0 {
		t.Errorf("%v results are omitted", n)
	}
	many := pack("npm", "p", "1")
	for i := range maxSARIFLocations + 1 {
		many.Locations = append(many.Locations, api.ScanLocation{Path: "/" + strconv.Itoa(i)})
	}
	r.Matches = []api.ScanMatch{matchOf(many, "CVE-1", 5, "medium")}
	checkGitHub(t, parseJSON(t, write(t, SARIF, options, r)))
}
