package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

// scanning is what the cases of the scanners share.
type scanning struct {
	b       *builds
	dir     string
	env     []string
	address string // of the host scanner
	service *rig.Process
	reports map[string]string // of the old host scanner, by what was asked
}

// scanners are the cases of the image scanner and the host scanner.
func scanners(b *builds, dir string) group {
	s := &scanning{b: b, dir: dir, reports: map[string]string{}}
	s.env = []string{"HOME=" + dir, "XDG_CONFIG_HOME=" + s.file("config"), "XDG_CACHE_HOME=" +
		s.file("cache"), "XDG_STATE_HOME=" + s.file("state")}
	return group{name: "scanners", close: s.close, steps: []step{
		{name: "old vulnerability database and license", play: s.prepare},
		{name: "image scanner reads the old database", loose: true, play: s.images},
		{name: "image scanner accepts every key of the old configuration file", loose: true, play: s.imageSettings},
		{name: "old host scanner with every key of its configuration file", play: s.oldHost},
		{name: "host scanner opens the old catalog", play: s.newHost},
		{name: "host scanner continues", loose: true, play: s.rescan},
		{name: "old commands use the new host scanner", loose: true, play: s.oldHostCommands},
		{name: "metrics of the host scanner", loose: true, play: s.hostMetrics},
	}}
}

func (s *scanning) file(name string) string { return filepath.Join(s.dir, name) }

// advisory is a vulnerability of the package in the tree.
const advisory = `{"schema_version": "1.4.0", "id": "GHSA-jf85-cpcp-j695", "aliases": ["CVE-2019-10744"], "modified": "2023-01-09T05:02:38Z",
 "affected": [{"package": {"ecosystem": "npm", "name": "lodash"}, "ranges": [{"type": "SEMVER", "events": [{"introduced": "0"}, {"fixed": "4.17.12"}]}]}],
 "severity": [{"type": "CVSS_V3", "score": "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:N/I:H/A:H"}]}`

// run runs a program; a status that is not expected is an error.
func (s *scanning) run(ctx context.Context, program string, codes []int, args ...string) (string, error) {
	res, err := execute(ctx, s.env, program, args...)
	if err == nil && !slices.Contains(codes, res.code) {
		err = fmt.Errorf("%s %s: status %d: %s", lastWord(program), strings.Join(args, " "), res.code, res.stderr)
	}
	return res.stdout, err
}

var done = []int{0}

func (s *scanning) write(name, text string) error {
	if err := os.MkdirAll(filepath.Dir(s.file(name)), 0o755); err != nil {
		return err
	}
	return os.WriteFile(s.file(name), []byte(text), 0o600)
}

// prepare builds the database and the license with the old programs.
func (s *scanning) prepare(ctx context.Context) (string, error) {
	if err := errors.Join(
		s.write("feed/x.json", advisory), s.write("keys/.keep", ""),
		s.write("tree/node_modules/lodash/package.json", `{"name": "lodash", "version": "4.17.11"}`),
		s.write("tree/node_modules/left-pad/package.json", `{"name": "left-pad", "version": "1.3.0"}`),
	); err != nil {
		return "", err
	}
	for _, name := range []string{"authority", "listing"} {
		if _, err := s.run(ctx, s.b.old.path("buildyard"), done, "license", "keygen", "--key",
			s.file("keys/"+name+".key")); err != nil {
			return "", err
		}
	}
	key, err := s.run(ctx, s.b.old.path("buildyard"), done, "license", "issue", "--product", "image-scanner", "--key",
		s.file("keys/authority.key"))
	if err != nil {
		return "", err
	}
	if _, err := s.run(ctx, s.b.old.path("imagescan"), done, "license", "activate", key, "-l", s.file("scanner.lic"),
		"--license-authority", s.file("keys/authority.pub")); err != nil {
		return "", err
	}
	if _, err := s.run(ctx, s.b.old.path("imagescan"), done, "db", "build", s.file("feed"), "--db-path",
		s.file("vuln.db")); err != nil {
		return "", err
	}
	return "built, and activated", nil
}

// scan scans the tree with an image scanner.
func (s *scanning) scan(ctx context.Context, p programs, args ...string) (string, error) {
	base := []string{"dir:" +
		s.file("tree"), "-q", "-u", "-f", "json", "--license-authority", s.file("keys/authority.pub")}
	return s.run(ctx, p.path("imagescan"), done, append(base, args...)...)
}

// images compares reports and status of both image scanners.
func (s *scanning) images(ctx context.Context) (string, error) {
	flags := []string{"--db-path", s.file("vuln.db"), "-l", s.file("scanner.lic")}
	var reports, states [2]any
	for i, p := range []programs{s.b.old, s.b.new} {
		text, err := s.scan(ctx, p, flags...)
		if err == nil {
			err = json.Unmarshal([]byte(text), &reports[i])
		}
		if err != nil {
			return "", err
		}
		if i == 0 {
			if err := s.write("baseline.json", text); err != nil {
				return "", err
			}
		}
		text, err = s.run(ctx, p.path("imagescan"), done, "db", "status", "--output", "json", "--db-path",
			s.file("vuln.db"))
		if err == nil {
			err = json.Unmarshal([]byte(text), &states[i])
		}
		if err != nil {
			return "", err
		}
	}
	if err := errors.Join(missingIn(reports[0], reports[1], scanTimes),
		missingIn(states[0], states[1], scanTimes)); err != nil {
		return "", err
	}
	rest, err := s.scan(ctx, s.b.new, append(flags, "--baseline", s.file("baseline.json"), "--fail-on", "low")...)
	if err != nil || strings.Contains(rest, `"id": "CVE-2019-10744"`) {
		return "", errors.Join(err, fmt.Errorf("with the old report as a baseline: %s", rest))
	}
	return "report and status of the database are equal; the old report serves as a baseline", nil
}

// scanTimes are fields of reports that differ in each run.
var scanTimes = regexp.MustCompile(`\.(timestamp|started|finished|duration|time|version|descriptor.*)$`)

// yamlKey is the key of a setting in the sources of a scanner.
var yamlKey = regexp.MustCompile("`yaml:\"([a-z-]+)")

// configuration is a file that has a value for each key that the old sources name.
func (s *scanning) configuration(
	program string, values map[string]string, leave ...string,
) (text string, keys int, err error) {
	raw, err := os.ReadFile(filepath.Join(s.b.old.root, "internal", "cli", program, "config.go"))
	if err != nil {
		return "", 0, err
	}
	var lines strings.Builder
	for _, m := range yamlKey.FindAllStringSubmatch(string(raw), -1) {
		if slices.Contains(leave, m[1]) {
			continue
		}
		value, ok := values[m[1]]
		if !ok {
			return "", 0, fmt.Errorf("this test has no value for the key %s", m[1])
		}
		fmt.Fprintf(&lines, "%s: %s\n", m[1], value)
		keys++
	}
	return lines.String(), keys, nil
}

// imageSettings scans with a configuration file that has every key.
func (s *scanning) imageSettings(ctx context.Context) (string, error) {
	text, keys, err := s.configuration("imagescan", map[string]string{
		"ignore-packages": "[cpe:/a:apple:icloud:1.0]", "ignore-cves": "[CVE-2019-10744]", "db-path": s.file("vuln.db"),
		"db-update-url": "http://127.0.0.1:1/latest.json", "db-update-timeout": "10m",
		"db-key":   s.file("keys/listing.pub"),
		"log-file": s.file("imagescan.log"), "license-file": s.file("scanner.lic"),
	})
	if err != nil {
		return "", err
	}
	if err := s.write("imagescan.yml", text); err != nil {
		return "", err
	}
	for _, p := range []programs{s.b.old, s.b.new} {
		report, err := s.scan(ctx, p, "-c", s.file("imagescan.yml"))
		if err != nil {
			return "", err
		}
		if !strings.Contains(report, `"ignored-cves": 1`) {
			return "", fmt.Errorf("the report does not follow the file: %s", report)
		}
	}
	return fmt.Sprintf("%d keys", keys), nil
}

// oldHost lets the old host scanner catalog the tree and ends it by a signal that it cannot catch.
func (s *scanning) oldHost(ctx context.Context) (string, error) {
	addr, err := rig.FreeAddr(ctx)
	if err != nil {
		return "", err
	}
	s.address = "http://" + addr
	key, err := s.run(ctx, "openssl", done, "genrsa", "2048")
	if errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("%w: openssl is not installed", errSkip)
	}
	if err != nil {
		return "", err
	}
	text, keys, err := s.configuration("hostscan", map[string]string{
		"log-level": "debug", "log-to-file": "true", "log-file": s.file("hostscan.log"),
		"vuln-db-path":        s.file("vuln.db"),
		"disable-auto-update": "true", "ignore-packages": "[cpe:/a:apple:icloud:1.0]", "ignore-cves": "[CVE-2000-0001]",
		"min-score":    "0.5",
		"min-severity": "low", "listen-addr": "'" + addr + "'", "db-backend-path": s.file("state/catalogue.db"),
		"db-update-interval": "12h",
		"db-update-url":      "http://127.0.0.1:1/latest.json", "db-key": s.file("keys/listing.pub"),
		"token-file":    s.file("secret/token"),
		"allowed-hosts": "[host.example]", "exclude-paths": "[" + s.file("excluded") + "]",
		"webhook":  "http://127.0.0.1:1/hook",
		"push-url": "http://127.0.0.1:1", "push-node": "0197e1c2-54a3-7c11-9f5e-0d6f4f0a1b22",
		"push-node-file": s.file("node.json"),
		"push-key-id":    "host", "push-key-file": s.file("push.key"), "push-ca-file": s.file("push.pem"),
		"push-interval": "1h",
	}, "token", "push-ca-file")
	if err != nil {
		return "", err
	}
	if err := errors.Join(s.write("hostscan.yml", text), s.write("push.key", key+"\n"),
		s.write("secret/token", "token-of-the-host-scanner\n")); err != nil {
		return "", err
	}
	if err := s.serve(ctx, s.b.old, "old-hostscan"); err != nil {
		return "", err
	}
	if _, err := s.command(ctx, s.b.old, "full-scan", "-d", s.file("tree")); err != nil {
		return "", err
	}
	for _, what := range []string{"report", "report packages", "report vulnerabilities"} {
		if s.reports[what], err = s.command(ctx, s.b.old,
			append(strings.Fields(what), "-f", "json", "-t", "2020-01-01T00:00:00Z")...); err != nil {
			return "", err
		}
	}
	if !strings.Contains(s.reports["report"], "CVE-2019-10744") {
		return "", fmt.Errorf("the old report is %s", s.reports["report"])
	}
	return fmt.Sprintf("%d keys, 2 packages", keys), s.service.Kill()
}

// serve starts a host scanner and waits until it answers.
func (s *scanning) serve(ctx context.Context, p programs, name string) error {
	s.service = rig.NewProcess(s.dir, name, p.path("hostscan"), "serve", "-c", s.file("hostscan.yml"))
	s.service.Set(map[string]string{
		"HOME": s.dir, "XDG_STATE_HOME": s.file("state"), "XDG_CACHE_HOME": s.file("cache"),
		"XDG_CONFIG_HOME": s.file("config"),
	})
	if err := s.service.Start(); err != nil {
		return err
	}
	return rig.Ready(ctx, s.service, s.address)
}

// command runs a command of a host scanner's program.
func (s *scanning) command(ctx context.Context, p programs, args ...string) (string, error) {
	return s.run(ctx, p.path("hostscan"), done,
		append(args, "--url", s.address, "--token-file", s.file("secret/token"))...)
}

// newHost starts the new host scanner on the catalog of the old one.
func (s *scanning) newHost(ctx context.Context) (string, error) {
	if err := s.serve(ctx, s.b.new, "new-hostscan"); err != nil {
		return "", err
	}
	for what, before := range s.reports {
		now, err := s.command(ctx, s.b.new, append(strings.Fields(what), "-f", "json", "-t", "2020-01-01T00:00:00Z")...)
		if err != nil {
			return "", err
		}
		var a, b any
		if err := errors.Join(json.Unmarshal([]byte(before), &a), json.Unmarshal([]byte(now), &b)); err != nil {
			return "", err
		}
		if err := missingIn(a, b, nil); err != nil {
			return "", fmt.Errorf("%s: %w", what, err)
		}
	}
	return fmt.Sprintf("%d reports are equal, the service was killed before", len(s.reports)), nil
}

// rescan finds a package that is new.
func (s *scanning) rescan(ctx context.Context) (string, error) {
	if err := s.write("tree/node_modules/minimist/package.json",
		`{"name": "minimist", "version": "1.2.0"}`); err != nil {
		return "", err
	}
	if _, err := s.command(ctx, s.b.new, "full-scan", "-d", s.file("tree")); err != nil {
		return "", err
	}
	report, err := s.command(ctx, s.b.new, "report", "packages", "-f", "json", "-t", "2020-01-01T00:00:00Z")
	if err != nil || !strings.Contains(report, "minimist") || !strings.Contains(report, "lodash") {
		return "", errors.Join(err, fmt.Errorf("the report is %s", report))
	}
	return "a full scan adds a package and keeps the others", nil
}

// oldHostCommands runs the old commands against the new service.
func (s *scanning) oldHostCommands(ctx context.Context) (string, error) {
	lines := []string{
		"status", "status --output json", "report", "report packages -f json",
		"report vulnerabilities -s score -c tnvVsSlfke", "report -f sarif",
		"report -f cyclonedx", "report -f spdx", "full-scan -d " + s.file("tree"),
		"real-time-scan start -d " + s.file("tree"), "real-time-scan stop",
		"report --fail-on kev", "report reset",
	}
	for _, line := range lines {
		if _, err := s.command(ctx, s.b.old, strings.Fields(line)...); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d commands", len(lines)), nil
}

// hostMetrics compares the metrics of both host scanners.
func (s *scanning) hostMetrics(ctx context.Context) (string, error) {
	header := map[string]string{"Authorization": "Bearer token-of-the-host-scanner"}
	now, err := scrape(ctx, s.address+"/metrics", header)
	if err != nil {
		return "", err
	}
	if err := s.service.End(); err != nil {
		return "", err
	}
	if err := s.serve(ctx, s.b.old, "old-hostscan"); err != nil {
		return "", err
	}
	before, err := scrape(ctx, s.address+"/metrics", header)
	if err != nil {
		return "", err
	}
	return compareMetrics(before, now)
}

func (s *scanning) close() error {
	if s.service == nil {
		return nil
	}
	_, err := s.service.Rush(10 * time.Second)
	return err
}
