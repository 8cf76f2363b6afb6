package buildnode_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/license"
)

// TestLicenseOfANode: a node whose license has expired is Inactive until the license is replaced,
// and one with an invalid license does not run.
func TestLicenseOfANode(t *testing.T) {
	t.Parallel()
	s, end, err := openCloud(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	dir := t.TempDir()
	secret, public, file := filepath.Join(dir, "authority.key"), filepath.Join(dir, "authority.pub"),
		filepath.Join(dir, "node.lic")
	if err := license.GenerateKeys(secret, public); err != nil {
		t.Fatal(err)
	}
	issue := func(product license.Product, expires time.Time) {
		t.Helper()
		key, err := license.ReadSecret(secret)
		if err != nil {
			t.Fatal(err)
		}
		text, err := license.IssueKey(key,
			license.License{Product: product, Tier: farm.TierEnterprise, Expires: expires})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n, c := join(t, s, "licensed", "10.9.9.3"), asker{t, s.URL()}
	flags := []string{"--license-file", file, "--license-authority", public}
	issue(license.Controller, time.Time{})
	if code, said := n.main(t.Context(), append([]string{"run", "--driver", "sim"}, flags...)...); code != 1 ||
		!strings.Contains(said, "the license key is for another product: controller, not node") {
		t.Errorf("%d: %s", code, said)
	}
	issue(license.Node, time.Date(2020, 1, 31, 0, 0, 0, 0, time.UTC))
	defer n.run(flags...)()
	c.until(
		`"state":"Inactive \(Invalid License\)".*"license":"enterprise","expires":"2020-01-31T00:00:00Z".*"state_reason":"its license expired: 2020-01-31T00:00:00Z"`, "/api/v1/node")
	issue(license.Node, time.Date(2999, 1, 31, 0, 0, 0, 0, time.UTC))
	c.until(`"state":"Active".*"license":"enterprise","expires":"2999-01-31T00:00:00Z"`, "/api/v1/node")
}
