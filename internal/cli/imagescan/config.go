package imagescan

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/buildyard/buildyard/internal/scan/vulndb/input"
)

// maxConfigBytes bounds a configuration file in bytes.
const maxConfigBytes = 1 << 20

// settings are the keys of a configuration file.
type settings struct {
	IgnorePackages  []string `yaml:"ignore-packages"` // CPEs in URI form; nil: not set
	IgnoreCVEs      []string `yaml:"ignore-cves"`
	DBPath          string   `yaml:"db-path"`
	DBUpdateURL     string   `yaml:"db-update-url"`
	DBUpdateTimeout string   `yaml:"db-update-timeout"` // of the update before a scan, such as 10m
	DBKey           string   `yaml:"db-key"`            // file with the public key that must have signed listings
	LogFile         string   `yaml:"log-file"`
	LicenseFile     string   `yaml:"license-file"`
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
	d := yaml.NewDecoder(bytes.NewReader(raw))
	d.KnownFields(true)
	if err := d.Decode(&s); err != nil && !errors.Is(err, io.EOF) {
		return s, fmt.Errorf("parse configuration file %s: %w", path, err)
	}
	if _, err := s.updateTimeout(); err != nil {
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
