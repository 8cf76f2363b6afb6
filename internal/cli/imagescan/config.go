package imagescan

import (
	"context"
	"fmt"
	"time"

	"github.com/buildyard/buildyard/internal/cli/settingsfile"
	"github.com/buildyard/buildyard/internal/scan/glob"
	"github.com/buildyard/buildyard/internal/scan/match/ignore"
	"github.com/buildyard/buildyard/internal/scan/vulndb/input"
)

// maxConfigBytes bounds a configuration file in bytes.
const maxConfigBytes = 1 << 20

// settings are the keys of a configuration file.
type settings struct {
	// CPEs in URI form; nil: not set
	IgnorePackages  []string      `yaml:"ignore-packages" example:"ignore-packages: ['cpe:/a:apple:icloud:1.0']"`
	IgnoreCVEs      []string      `yaml:"ignore-cves" example:"ignore-cves: [CVE-2019-10744]"`
	Ignore          []ignore.Rule `yaml:"ignore" example:"ignore: [{id: CVE-2019-10744, reason: not reachable}]"`
	Exclude         []string      `yaml:"exclude" example:"exclude: [/usr/share/doc]"` // patterns of paths
	DBPath          string        `yaml:"db-path"`
	DBUpdateURL     string        `yaml:"db-update-url"`
	DBUpdateTimeout string        `yaml:"db-update-timeout"` // of the update before a scan, such as 10m
	DBKey           string        `yaml:"db-key"`            // file with the public key that must have signed listings
	LogFile         string        `yaml:"log-file"`
	LicenseFile     string        `yaml:"license-file"`
}

// ignoreRules compiles the ignore rules, which readSettings has checked; nil: none.
func (s settings) ignoreRules() *ignore.Rules {
	rules, _ := ignore.Compile(s.Ignore, nil)
	return rules
}

// readSettings reads a configuration file; "" is none.
func readSettings(ctx context.Context, path string) (settings, error) {
	var s settings
	if path == "" {
		return s, nil
	}
	raw, err := input.ReadAll(ctx, path, maxConfigBytes)
	if err != nil {
		return s, fmt.Errorf("read configuration file %s: %w", path, err)
	}
	if err = settingsfile.Decode(raw, &s); err == nil {
		_, err = s.updateTimeout()
	}
	if err == nil {
		_, err = ignore.Compile(s.Ignore, nil)
	}
	if err == nil {
		if _, err = glob.NewSet(s.Exclude); err != nil {
			err = fmt.Errorf("exclude: %w", err)
		}
	}
	if err != nil {
		return s, fmt.Errorf("parse configuration file %s: %w", path, err)
	}
	return s, nil
}

// defaultUpdateTimeout limits the wait of a scan for the update of its database.
const defaultUpdateTimeout = 10 * time.Minute

// updateTimeout returns the limit of the update before a scan.
func (s settings) updateTimeout() (time.Duration, error) {
	if s.DBUpdateTimeout == "" {
		return defaultUpdateTimeout, nil
	}
	d, err := time.ParseDuration(s.DBUpdateTimeout)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("invalid db-update-timeout %q: want a duration such as 10m", s.DBUpdateTimeout)
	}
	return d, nil
}

// firstNonEmpty returns the first text that is not empty.
func firstNonEmpty(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}
