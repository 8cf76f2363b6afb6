package imagescan

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"go.yaml.in/yaml/v3"
)

// maxConfig bounds a configuration file in bytes.
const maxConfig = 1 << 20

// settings is what a configuration file may say.
type settings struct {
	IgnorePackages []string `yaml:"ignore-packages"` // CPEs in URI form; nil: nothing is said
	IgnoreCVEs     []string `yaml:"ignore-cves"`
	DBPath         string   `yaml:"db-path"`
	DBUpdateURL    string   `yaml:"db-update-url"`
	DBKey          string   `yaml:"db-key"` // file with the public key that listings must be signed with
	LogFile        string   `yaml:"log-file"`
	LicenseFile    string   `yaml:"license-file"`
}

// readSettings reads a configuration file; "" is none.
func readSettings(path string) (settings, error) {
	var s settings
	if path == "" {
		return s, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return s, fmt.Errorf("configuration file: %w", err)
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err != nil {
		return s, fmt.Errorf("configuration file %s: %w", path, err)
	}
	if len(raw) > maxConfig {
		return s, fmt.Errorf("configuration file %s: it is longer than 1 MiB", path)
	}
	d := yaml.NewDecoder(bytes.NewReader(raw))
	d.KnownFields(true)
	if err := d.Decode(&s); err != nil && !errors.Is(err, io.EOF) {
		return s, fmt.Errorf("configuration file %s: %w", path, err)
	}
	return s, nil
}

// first gives the first text that is not empty.
func first(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}
