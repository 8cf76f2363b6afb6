package buildyard

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/license"
	"github.com/buildyard/buildyard/internal/selfexec"
)

// demoAdvisory is the whole content of the demo's vulnerability database: enough for the one
// package of the demo's guest, guest/rootfs/opt/demo. In OSV format.
const demoAdvisory = `{
  "schema_version": "1.4.0", "id": "GHSA-jf85-cpcp-j695", "aliases": ["CVE-2019-10744"], "modified": "2023-01-09T05:02:38Z",
  "affected": [{"package": {"ecosystem": "npm", "name": "lodash"}, "ranges": [{"type": "SEMVER", "events": [{"introduced": "0"}, {"fixed": "4.17.12"}]}]}],
  "severity": [{"type": "CVSS_V3", "score": "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:N/I:H/A:H"}]
}
`

// scanTemplate scans the template in the registry for known vulnerabilities, under a license of an
// authority that the demo creates.
func (d *demo) scanTemplate(ctx context.Context) error {
	if d.ScannerPath == "" || d.Driver == "sim" {
		return nil
	}
	dir := filepath.Join(d.DataDir, "scan")
	public := filepath.Join(dir, license.AuthorityFile)
	key, err := demoLicense(dir, public)
	if err != nil {
		return fmt.Errorf("scan the template: %w", err)
	}
	program, err := filepath.Abs(d.ScannerPath)
	if err != nil {
		return err
	}
	run := func(args ...string) (string, error) {
		out, err := selfexec.Run(ctx, dir, program,
			append(args, "--license-authority", public, "--db-path", "vuln.db", "--quiet")...)
		if err != nil {
			return "", fmt.Errorf("%s %s: %w", d.ScannerPath, args[0], err)
		}
		return out, nil
	}
	if _, err := run("license", "activate", key); err != nil {
		return err
	}
	if _, err := run("db", "build", filepath.Join(dir, "feed")); err != nil {
		return err
	}
	out, err := run("registry_template:"+d.templateID+":v1", "-s", filepath.Join(d.DataDir, "registry"), "-u", "-f",
		"json")
	if err != nil {
		return err
	}
	return d.printScan(out)
}

// demoLicense makes an authority and signs a license with it. It also creates the directory
// of the database feed.
func demoLicense(dir, public string) (key string, err error) {
	feed := filepath.Join(dir, "feed")
	if err := os.MkdirAll(feed, 0o700); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(feed, "advisory.json"), []byte(demoAdvisory), 0o600); err != nil {
		return "", err
	}
	secret := filepath.Join(dir, licenseKeyFile)
	if err := license.GenerateKeys(secret, public); err != nil {
		return "", err
	}
	signer, err := license.ReadSecret(secret)
	if err != nil {
		return "", err
	}
	return license.IssueKey(signer,
		license.License{Product: license.ImageScanner, Tier: farm.TierBasic, Subject: "demo"})
}

// printScan prints the result of a scan report.
func (d *demo) printScan(out string) error {
	var report api.ScanReport
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		return fmt.Errorf("parse the scanner's report: %w", err)
	}
	files, packages := int64(0), 0
	for _, v := range report.Coverage.Volumes {
		files, packages = files+v.Files, packages+v.Packages
	}
	var found []string
	for _, m := range report.Matches {
		found = append(found, fmt.Sprintf("%s in %s %s", m.Vulnerability.ID, m.Artifact.Name, m.Artifact.Version))
	}
	if len(found) == 0 {
		return fmt.Errorf("the scan of the template has no findings (%d files, %d packages)", files, packages)
	}
	d.printStep("scan", "demo:v1 in the registry's storage has %d files, %d packages: %s", files, packages,
		strings.Join(found, ", "))
	return nil
}
