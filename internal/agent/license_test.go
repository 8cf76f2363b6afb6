package agent

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/license"
)

// TestLicenseThatIsReported: the node's license applies in addition to its hypervisor's; the node
// reports the one that ends first.
func TestLicenseThatIsReported(t *testing.T) {
	dir := t.TempDir()
	secret, public := filepath.Join(dir, "a.key"), filepath.Join(dir, "a.pub")
	if err := license.GenerateKeys(secret, public); err != nil {
		t.Fatal(err)
	}
	key, err := license.ReadSecret(secret)
	if err != nil {
		t.Fatal(err)
	}
	day := time.Date(2030, 5, 1, 0, 0, 0, 0, time.UTC)
	own := func(expires time.Time) *license.File {
		text, err := license.IssueKey(key,
			license.License{Product: license.Node, Tier: farm.TierBasic, Expires: expires})
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "node.lic")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := license.Open(license.Options{Product: license.Node, Path: path, AuthorityFile: public})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for _, tc := range []struct {
		name          string
		own           *license.File
		kind, expires string // of the hypervisor
		wantKind      string
		wantExpires   string
	}{
		{"nothing", nil, "", "", "", ""},
		{"the hypervisor's alone", nil, "trial", "2029-01-31", "trial", "2029-01-31"},
		{"its own alone", own(day), "", "", "basic", "2030-05-01T00:00:00Z"},
		{"its own for ever", own(time.Time{}), "", "", "basic", ""},
		{"its own for ever, the hypervisor's not", own(time.Time{}), "trial", "2029-01-31", "trial", "2029-01-31"},
		{"the hypervisor's ends first", own(day), "trial", "2029-01-31", "trial", "2029-01-31"},
		{"its own ends first", own(day), "trial", "2031-01-31", "basic", "2030-05-01T00:00:00Z"},
		{"the hypervisor's cannot be read", own(day), "trial", "some day", "basic", "2030-05-01T00:00:00Z"},
	} {
		a := &Agent{
			opts: Options{License: tc.own}, hypervisorLicense: hv.License{Kind: tc.kind, Expires: tc.expires},
		}
		if kind, expires := a.licenseInfo(); kind != tc.wantKind || expires != tc.wantExpires {
			t.Errorf("%s: %q until %q, want %q until %q", tc.name, kind, expires, tc.wantKind, tc.wantExpires)
		}
	}
}
