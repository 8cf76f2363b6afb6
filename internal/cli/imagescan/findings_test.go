package imagescan

import (
	"fmt"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/match"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// What has no score yet, and one package of each vulnerability, is sent before the limit is reached.
func TestToFindings(t *testing.T) {
	one := func(id string, severity vulndb.Severity, n int) match.Finding {
		f := match.Finding{Package: catalog.Package{Name: fmt.Sprint(n)}}
		f.Vulnerability.ID, f.Vulnerability.Score.Severity = id, severity
		return f
	}
	var list []match.Finding
	for n := range api.MaxVersionFindings {
		list = append(list, one("CVE-1", vulndb.Critical, n))
	}
	if got, cut := toFindings(list); len(got) != len(list) || cut {
		t.Errorf("%d, truncated: %t", len(got), cut)
	}
	list = append(list, one("CVE-2", vulndb.Low, 0), one("CVE-3", vulndb.Unknown, 0))
	got, cut := toFindings(list)
	if len(got) != api.MaxVersionFindings || !cut {
		t.Errorf("%d, truncated: %t", len(got), cut)
	}
	for n, want := range []string{"CVE-3", "CVE-1", "CVE-2", "CVE-1"} {
		if got[n].ID != want {
			t.Errorf("%d: %s, want %s", n, got[n].ID, want)
		}
	}
}
