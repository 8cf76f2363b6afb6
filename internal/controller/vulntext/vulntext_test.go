package vulntext

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/api"
)

// What was encoded is found by each of its IDs, without case, and is as it was.
func TestEncode(t *testing.T) {
	list := []api.FoundVulnerability{
		{ID: "CVE-1", Aliases: []string{"GHSA-a", "GO-1"}, Package: "@a/b", Version: "1", Fixed: "2", Severity: "low"},
		{ID: "CVE-1", Package: "c", Version: "1.0 rc"},
		{ID: "CVE-2", Package: "c,CVE-9,d", Version: "1", Severity: "unknown"},
	}
	text, err := Encode(append(list, list...))
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string][]api.FoundVulnerability{
		"cve-1": {list[1], list[0]}, "ghsa-A": list[:1], "go-1": list[:1], "CVE-2": list[2:],
		"CVE-": nil, "CVE-11": nil, "C": nil, "CVE-9": nil,
	} {
		if got := Among(text, []string{Canonical(id)}); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", id, got, want)
		}
	}
}

// Results of a node are kept as far as they are valid and fit, the severe ones first.
func TestEncodeSome(t *testing.T) {
	text, cut := EncodeSome([]api.FoundVulnerability{{ID: "a b"}, {ID: "CVE-1"}})
	if len(Added("", text)) != 1 || !cut {
		t.Errorf("one is invalid: %q, truncated: %t", text, cut)
	}
	var list []api.FoundVulnerability
	for n := range api.MaxVersionFindings + 5 {
		list = append(list, api.FoundVulnerability{ID: fmt.Sprintf("CVE-%d", n%4000), Severity: "low"})
		list[n].Package = fmt.Sprint(n) + strings.Repeat("<", 70)
	}
	last := len(list) - 1
	list[last].ID, list[last].Severity = "CVE-NEW", ""
	list[last-1].ID, list[last-1].Severity = "CVE-BAD", "critical"
	text, cut = EncodeSome(list)
	if n := strings.Count(text, "\n"); n < 1000 || !cut {
		t.Errorf("%d are kept, truncated: %t", n, cut)
	}
	for _, id := range []string{"CVE-NEW", "CVE-BAD"} {
		if len(Among(text, []string{id})) != 1 {
			t.Errorf("%s is left out", id)
		}
	}
	if _, err := Encode(decodeAll(text)); err != nil {
		t.Error(err)
	}
	for i := range list {
		list[i].Package = "a"
	}
	if text, cut := EncodeSome(list); cut || len(Added("", text)) != 4002 {
		t.Errorf("equal ones: %d, truncated: %t", len(Added("", text)), cut)
	}
	list = list[:0]
	for n := range api.MaxVersionFindings + 5 {
		list = append(list, api.FoundVulnerability{ID: fmt.Sprintf("CVE-%d", n/5), Package: fmt.Sprint(n)})
	}
	if text, cut := EncodeSome(list); !cut || len(Added("", text)) != api.MaxVersionFindings/5+1 {
		t.Errorf("of each ID one: %d, truncated: %t", len(Added("", text)), cut)
	}
}

// decodeAll returns the vulnerabilities of a text.
func decodeAll(text string) (list []api.FoundVulnerability) {
	for l := range strings.Lines(text) {
		names, rest, _ := strings.Cut(strings.TrimSuffix(l, "\n"), "\t")
		list = append(list, decode(names, rest))
	}
	return list
}

// Merge keeps what was there, and replaces what is known better now.
func TestMerge(t *testing.T) {
	text, err := Encode([]api.FoundVulnerability{
		{ID: "CVE-1", Aliases: []string{"GO-1"}, Package: "a", Version: "1"}, {ID: "CVE-1", Package: "a", Version: "2"},
	})
	if err != nil {
		t.Fatal(err)
	}
	text, cut := Merge(text, []api.FoundVulnerability{
		{ID: "cve-1", Package: "a", Version: "2", Fixed: "3", Severity: "low"}, {ID: "CVE-2", Package: "b"},
	})
	want := "CVE-1\ta\t2\t3\tlow\nCVE-1,GO-1\ta\t1\t\t\nCVE-2\tb\t\t\t\n"
	if text != want || cut {
		t.Errorf("%q, want %q, truncated: %t", text, want, cut)
	}
}
