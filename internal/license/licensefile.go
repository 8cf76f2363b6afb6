package license

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

const (
	checkInterval = 10 * time.Second
	// expiryWarning is how long before the end of a license its program begins to warn.
	expiryWarning = 14 * 24 * time.Hour
)

// TierWithoutLicense is the tier of a program that no license was installed for.
const TierWithoutLicense = farm.TierEnterprisePlus

// Options are the license of a program.
type Options struct {
	Product       Product
	Path          string // of the license file; "": none is installed
	AuthorityFile string // file of the authority; "": those of the machine and of the user
	Logger        *slog.Logger
	Now           func() time.Time // nil: time.Now
}

// File is the license that a program runs under. It follows changes of its file: a new license is
// used as soon as it is valid, and a broken or missing file changes nothing but the alarm. So no
// accident with the file grants or revokes anything.
type File struct {
	opts Options

	mu          sync.Mutex // guards the fields below
	license     License
	problem     string // what is wrong with the current file; ""
	stamp       fileStamp
	loggedAlarm string // the last logged alarm
}

// fileStamp detects changes of a file.
type fileStamp struct {
	modified time.Time
	size     int64
	removed  bool
}

// Open reads the license of a program. A file that cannot be read or verified is an
// error; one that has expired is not: its program continues at the tier basic.
func Open(o Options) (*File, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	f := &File{opts: o}
	if o.Path == "" {
		return f, nil
	}
	f.stamp = statFile(o.Path)
	var err error
	f.license, err = ReadLicense(o.Path, o.AuthorityFile, o.Product)
	return f, err
}

// ReadLicense reads and verifies a license file: a key on a separate line. Lines that begin with # are for
// people.
func ReadLicense(path, authority string, product Product) (License, error) {
	key, err := ReadLicenseKey(path)
	if err != nil {
		return License{}, err
	}
	trust, err := LoadTrustedKeys(authority)
	if err != nil {
		return License{}, err
	}
	l, err := trust.VerifyFor(product, key)
	if err != nil {
		return License{}, fmt.Errorf("license file %s: %w", path, err)
	}
	return l, nil
}

// ReadLicenseKey reads the key of a license file.
func ReadLicenseKey(path string) (string, error) {
	raw, err := readBounded(path, maxFileBytes)
	if err != nil {
		return "", fmt.Errorf("read license file: %w", err)
	}
	key := ""
	for line := range strings.Lines(string(raw)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		if key != "" {
			return "", fmt.Errorf("license file %s: %w: the file has more than one line", path, ErrNotAKey)
		}
		key = line
	}
	if key == "" {
		return "", fmt.Errorf("license file %s: %w: the file is empty", path, ErrNotAKey)
	}
	return key, nil
}

func statFile(path string) fileStamp {
	st, err := os.Stat(path)
	if err != nil {
		return fileStamp{removed: errors.Is(err, os.ErrNotExist)}
	}
	return fileStamp{modified: st.ModTime(), size: st.Size()}
}

// Tier returns the current tier. An expired license leaves the tier basic.
func (f *File) Tier() farm.Tier {
	if f == nil || f.opts.Path == "" {
		return TierWithoutLicense
	}
	l := f.License()
	if l.Expired(f.opts.Now()) {
		return farm.TierBasic
	}
	return l.Tier
}

// Expires returns when the active license expires; zero: never.
func (f *File) Expires() time.Time { return f.License().Expires }

// License returns the active license; zero when none is installed.
func (f *File) License() License {
	if f == nil {
		return License{}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.license
}

// Alarm returns the problem that an operator has to fix; "" for none.
func (f *File) Alarm() string {
	if f == nil {
		return ""
	}
	f.mu.Lock()
	l, trouble := f.license, f.problem
	f.mu.Unlock()
	now := f.opts.Now()
	var parts []string
	switch {
	case l.Expired(now):
		parts = append(parts,
			fmt.Sprintf("The license expired on %s: %s, and running instances continue; install a new one in %s",
				formatDate(l.Expires), f.expiredEffect(), f.opts.Path))
	case !l.Expires.IsZero() && l.Expires.Sub(now) < expiryWarning:
		parts = append(parts, fmt.Sprintf("The license expires on %s; install a new one in %s", formatDate(l.Expires),
			f.opts.Path))
	}
	if trouble != "" {
		parts = append(parts, trouble)
	}
	return strings.Join(parts, "; ")
}

// expiredEffect describes what a program lacks because its license has expired.
func (f *File) expiredEffect() string {
	if f.opts.Product == Node {
		return "this node gets no new VMs"
	}
	return fmt.Sprintf("what needs more than the tier %s is refused", farm.TierBasic)
}

func formatDate(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// Run logs the license immediately, and follows the file until ctx ends.
func (f *File) Run(ctx context.Context) {
	l := f.License()
	if f.opts.Path == "" {
		f.opts.Logger.InfoContext(ctx, "no license installed; every feature is enabled", "tier",
			string(TierWithoutLicense))
		return
	}
	f.opts.Logger.InfoContext(ctx, "license active", "tier", string(f.Tier()), "subject", l.Subject, "expires",
		formatExpiry(l))
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for {
		f.logAlarm(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f.reloadIfChanged(ctx)
		}
	}
}

func formatExpiry(l License) string {
	if l.Expires.IsZero() {
		return "never"
	}
	return l.Expires.UTC().Format(time.RFC3339)
}

// logAlarm logs an alarm that is new.
func (f *File) logAlarm(ctx context.Context) {
	alarm := f.Alarm()
	f.mu.Lock()
	fresh := alarm != f.loggedAlarm
	f.loggedAlarm = alarm
	f.mu.Unlock()
	if fresh && alarm != "" {
		f.opts.Logger.WarnContext(ctx, "license requires attention", "alarm", alarm)
	}
}

// reloadIfChanged loads a changed file when it is valid.
func (f *File) reloadIfChanged(ctx context.Context) {
	now := statFile(f.opts.Path)
	f.mu.Lock()
	same := now == f.stamp && f.problem == "" // else what was missing may be there by now
	f.mu.Unlock()
	if same {
		return
	}
	l, err := ReadLicense(f.opts.Path, f.opts.AuthorityFile, f.opts.Product)
	f.mu.Lock()
	f.stamp, f.problem = now, ""
	if err != nil {
		f.problem = fmt.Sprintf("The changed license file is not valid, and the previous license stays active: %v", err)
	} else {
		f.license = l
	}
	f.mu.Unlock()
	if err == nil {
		f.opts.Logger.InfoContext(ctx, "license replaced", "tier", string(f.Tier()), "subject", l.Subject, "expires",
			formatExpiry(l))
	}
}
