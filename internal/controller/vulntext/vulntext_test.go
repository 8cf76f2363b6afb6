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
	if text := EncodeSome([]api.FoundVulnerability{{ID: "a b"}, {ID: "CVE-1"}}); len(Added("", text)) != 1 {
		t.Errorf("one is invalid: %q", text)
	}
	var list []api.FoundVulnerability
	for n := range api.MaxVersionFindings + 5 {
		v := api.FoundVulnerability{ID: fmt.Sprintf("CVE-%d", n), Severity: "low"}
		v.Package = strings.Repeat("<", maxText)
		list = append(list, v)
	}
	list[len(list)-1].Severity = "critical"
	text := EncodeSome(list)
	if n := len(Added("", text)); n < 100 || len(Among(text, []string{list[len(list)-1].ID})) != 1 {
		t.Errorf("%d are kept", n)
	}
}
