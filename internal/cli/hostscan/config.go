package hostscan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/cli/settingsfile"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/license"
	"github.com/buildyard/buildyard/internal/rest/hostrest/webhook"
	"github.com/buildyard/buildyard/internal/scan/glob"
	"github.com/buildyard/buildyard/internal/scan/host"
	"github.com/buildyard/buildyard/internal/scan/match"
	"github.com/buildyard/buildyard/internal/scan/match/ignore"
	"github.com/buildyard/buildyard/internal/scan/vulndb/input"
)

// maxConfigBytes bounds a configuration file in bytes.
const maxConfigBytes = 1 << 20

// settings are the keys of a configuration file. Those with live:"yes" apply immediately when the
// file is read again, the others at the next start.
type settings struct {
	LogLevel          string `yaml:"log-level" live:"yes"`
	LogToFile         bool   `yaml:"log-to-file"`
	LogFile           string `yaml:"log-file"`
	VulnDBPath        string `yaml:"vuln-db-path"` // of the advisories
	DisableAutoUpdate bool   `yaml:"disable-auto-update"`
	// CPEs in URI form
	IgnorePackages   []string `yaml:"ignore-packages" live:"yes" example:"ignore-packages: ['cpe:/a:apple:icloud:1.0']"`
	IgnoreCVEs       []string `yaml:"ignore-cves" live:"yes" example:"ignore-cves: [CVE-2019-10744]"`
	MinScore         float64  `yaml:"min-score" live:"yes"`
	MinSeverity      string   `yaml:"min-severity" live:"yes"`
	ListenAddr       string   `yaml:"listen-addr"`
	DBBackendPath    string   `yaml:"db-backend-path"` // of the inventory
	DBUpdateInterval string   `yaml:"db-update-interval"`

	// The following keys are not in the specification.
	DBUpdateURL  string        `yaml:"db-update-url"`
	DBKey        string        `yaml:"db-key"` // file with the public key that must have signed databases
	Token        string        `yaml:"token" live:"yes"`
	TokenFile    string        `yaml:"token-file" live:"yes"`
	RequireToken string        `yaml:"require-token" live:"yes"` // changes: state changes require a token on loopback too
	AllowedHosts []string      `yaml:"allowed-hosts" live:"yes"` // host names that requests may use
	Ignore       []ignore.Rule `yaml:"ignore" live:"yes" example:"ignore: [{id: CVE-2019-10744, reason: not reachable}]"`
	ExcludePaths []string      `yaml:"exclude-paths" example:"exclude-paths: [/srv/backup]"` // and patterns
	Webhook      string        `yaml:"webhook"`
	// of the controller that receives findings; "node": that of the node on this host
	PushURL      string `yaml:"push-url"`
	PushNode     string `yaml:"push-node"`      // node ID of this host; "": from push-node-file
	PushNodeFile string `yaml:"push-node-file"` // file with the identity of the node on this host
	PushKeyID    string `yaml:"push-key-id"`    // of an API key; "": the node credential of this host
	PushKeyFile  string `yaml:"push-key-file"`  // with its private key
	PushCAFile   string `yaml:"push-ca-file"`   // CAs to trust instead of the system's
	PushInterval string `yaml:"push-interval"`  // minimum time between two sends
}

// defaultSettings returns the default settings.
func defaultSettings(p defaultPaths) settings {
	s := settings{
		LogLevel: "info", LogToFile: true, LogFile: p.Log, VulnDBPath: p.Database,
		IgnorePackages: []string{match.DefaultIgnoredPackage}, IgnoreCVEs: []string{}, MinSeverity: "low",
		ListenAddr: "127.0.0.1:8081", DBUpdateInterval: "24h",
		PushNodeFile: defaultNodeFile(), PushInterval: "1m",
	}
	if p.State != "" {
		s.DBBackendPath = filepath.Join(p.State, "catalogue.db") // glossary:allow the name of the file on disk
	}
	return s
}

// readSettings reads a configuration file. With "" it reads the default one, if there is one.
func readSettings(ctx context.Context, path string, p defaultPaths) (settings, error) {
	s := defaultSettings(p)
	raw, err := input.ReadAll(ctx, cmp.Or(path, p.Config, os.DevNull), maxConfigBytes)
	if path == "" && errors.Is(err, fs.ErrNotExist) {
		return s, s.check()
	}
	path = cmp.Or(path, p.Config)
	if err != nil {
		if !strings.Contains(err.Error(), path) {
			err = fmt.Errorf("%s: %w", path, err)
		}
		return s, fmt.Errorf("read configuration file: %w", err)
	}
	if err := settingsfile.Decode(raw, &s); err != nil {
		return s, fmt.Errorf("read configuration file %s: %w", path, err)
	}
	s.setDefaults(defaultSettings(p))
	err = s.check()
	if err == nil && s.Token != "" {
		err = checkPrivate(path)
	}
	if err != nil {
		err = fmt.Errorf("configuration file %s: %w", path, err)
	}
	return s, err
}

// setDefaults replaces empty settings by the defaults, and makes paths absolute.
func (s *settings) setDefaults(u settings) {
	for _, f := range []struct {
		to   *string
		from string
	}{
		{&s.LogLevel, u.LogLevel},
		{&s.LogFile, u.LogFile},
		{&s.VulnDBPath, u.VulnDBPath},
		{&s.MinSeverity, u.MinSeverity},
		{&s.ListenAddr, u.ListenAddr},
		{&s.DBBackendPath, u.DBBackendPath},
		{&s.DBUpdateInterval, u.DBUpdateInterval},
		{&s.PushNodeFile, u.PushNodeFile},
		{&s.PushInterval, u.PushInterval},
	} {
		*f.to = cmp.Or(*f.to, f.from)
	}
	for _, path := range []*string{
		&s.LogFile, &s.VulnDBPath, &s.DBBackendPath, &s.DBKey, &s.TokenFile, &s.PushNodeFile,
		&s.PushKeyFile, &s.PushCAFile,
	} {
		if *path != "" {
			if abs, err := filepath.Abs(*path); err == nil {
				*path = abs
			}
		}
	}
}

// check returns an error for invalid settings.
func (s settings) check() error {
	if _, err := s.logLevel(); err != nil {
		return err
	}
	if err := checkAddress(s.ListenAddr); err != nil {
		return err
	}
	if _, err := s.dbUpdateInterval(); err != nil {
		return err
	}
	if _, err := s.matchRules(); err != nil {
		return err
	}
	if err := s.checkPush(); err != nil {
		return err
	}
	if s.Webhook != "" {
		if _, err := webhook.New(webhook.Options{URL: s.Webhook}); err != nil {
			return fmt.Errorf("webhook: %w", err)
		}
	}
	switch {
	case s.Token != "" && s.TokenFile != "":
		return errors.New("token and token-file are mutually exclusive")
	case s.RequireToken != "" && s.RequireToken != requireForChanges:
		return fmt.Errorf("invalid require-token %q: want %s, or no value", s.RequireToken, requireForChanges)
	case s.DBBackendPath == "":
		return errors.New("home directory not found for the package inventory; set db-backend-path")
	case s.VulnDBPath == "":
		return errors.New("home directory not found for the vulnerability database; set vuln-db-path")
	case s.LogToFile && s.LogFile == "":
		return errors.New("home directory not found for the log; set log-file, or log-to-file to false")
	case s.DBBackendPath == s.VulnDBPath:
		return errors.New(
			"vuln-db-path (vulnerability database) and db-backend-path (package inventory) must be different files")
	}
	var excluded []string
	for _, p := range s.ExcludePaths {
		excluded = append(excluded, filepath.Clean(p)) // as the scanner does
		if !filepath.IsAbs(p) || filepath.Clean(p) == "/" {
			return fmt.Errorf(
				"exclude-paths: %q must be the absolute path of a directory, or a pattern that begins with /",
				p)
		}
	}
	if _, err := glob.NewSet(excluded); err != nil {
		return fmt.Errorf("exclude-paths: %w", err)
	}
	return nil
}

func checkAddress(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("invalid listen-addr %q: want host:port, such as 127.0.0.1:8081", addr)
	}
	return nil
}

func (s settings) logLevel() (l slog.Level, err error) {
	if err = l.UnmarshalText([]byte(s.LogLevel)); err != nil {
		return l, fmt.Errorf("invalid log-level %q: want debug, info, warn or error", s.LogLevel)
	}
	return l, nil
}

// minDBUpdateInterval is the minimum time between two checks for a newer database.
const minDBUpdateInterval = time.Minute

func (s settings) dbUpdateInterval() (time.Duration, error) {
	d, err := time.ParseDuration(s.DBUpdateInterval)
	if err != nil || d < minDBUpdateInterval {
		return 0, fmt.Errorf("invalid db-update-interval %q: want a duration of at least 1m, such as 24h",
			s.DBUpdateInterval)
	}
	return d, nil
}

// matchRules returns the rules that suppress findings in reports.
func (s settings) matchRules() (r host.Rules, err error) {
	r = host.Rules{IgnoredPackages: s.IgnorePackages, IgnoredCVEs: s.IgnoreCVEs, MinScore: s.MinScore}
	if !(s.MinScore >= 0 && s.MinScore <= 10) { // also rejects NaN
		return r, fmt.Errorf("invalid min-score %v: want 0 to 10", s.MinScore)
	}
	if r.MinSeverity, err = match.ParseSeverity(s.MinSeverity); err != nil {
		return r, fmt.Errorf("min-severity: %w", err)
	}
	if err := r.Check(); err != nil {
		return r, fmt.Errorf("ignore-packages: %w", err)
	}
	rules, err := ignore.Compile(s.Ignore, nil)
	if rules != nil { // an interface that holds a nil pointer is not nil
		r.Ignore = rules
	}
	return r, err
}

// databaseOptions returns where the database is and how it is kept up to date.
func (s settings) databaseOptions() (host.Database, error) {
	every, err := s.dbUpdateInterval()
	d := host.Database{Path: s.VulnDBPath, Listing: s.DBUpdateURL, UpdateInterval: every, Manual: s.DisableAutoUpdate}
	if err == nil && s.DBKey != "" {
		if d.Key, err = license.LoadPublicKey(s.DBKey); err != nil {
			err = fmt.Errorf("db-key: %w", err)
		}
	}
	return d, err
}

// checkPrivate rejects a file that other users may read.
func checkPrivate(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return config.CheckPrivate(f)
}

// restartKeys returns the keys whose values differ between two settings and that only apply at the next
// start.
func restartKeys(old, now settings) []string {
	var out []string
	a, b := reflect.ValueOf(old), reflect.ValueOf(now)
	for i := range a.NumField() {
		f := a.Type().Field(i)
		if f.Tag.Get("live") == "" && !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			out = append(out, f.Tag.Get("yaml"))
		}
	}
	slices.Sort(out)
	return out
}
