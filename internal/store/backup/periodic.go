package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// The names of periodic backups sort by their time.
const (
	namePrefix     = "buildyard-"
	nameTimeLayout = "20060102T150405Z"
	nameSuffix     = ".backup"
	nameLayout     = namePrefix + nameTimeLayout + nameSuffix
	retryAfter     = time.Minute // after a periodic backup that failed
)

// PeriodicBackup makes backups into a directory for as long as it runs.
type PeriodicBackup struct {
	Dir       string // created if missing
	Interval  time.Duration
	KeepCount int // so many of the newest stay; at least 1
	Open      func(ctx context.Context) (io.ReadCloser, error)
	Logger    *slog.Logger
}

// Run makes a backup immediately, unless the newest in the directory is younger than Every, then
// one every Every, until the context ends. A failure is logged and tried again after a minute.
func (p PeriodicBackup) Run(ctx context.Context) error {
	for {
		wait := p.untilNext(time.Now())
		if wait <= 0 {
			wait = p.Interval
			if err := p.makeBackup(ctx); err != nil && ctx.Err() == nil {
				p.Logger.ErrorContext(ctx, "periodic backup failed", "dir", p.Dir, "error", err)
				wait = min(retryAfter, p.Interval)
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-timer.C:
		}
	}
}

// untilNext returns how long to wait for the next backup; not positive: now.
func (p PeriodicBackup) untilNext(now time.Time) time.Duration {
	names, _ := p.listBackups(now)
	if len(names) == 0 {
		return 0
	}
	at, err := time.Parse(nameLayout, names[len(names)-1])
	if err != nil {
		return 0
	}
	return p.Interval - now.Sub(at)
}

// NewestBackup returns the newest complete periodic backup of a directory; empty without one.
func NewestBackup(dir string) (path string) {
	names, future := PeriodicBackup{Dir: dir}.listBackups(time.Now())
	for _, name := range slices.Backward(append(future, names...)) { // the age of future ones is not known
		path := filepath.Join(dir, name)
		if _, err := VerifyFile(path); err == nil {
			return path
		}
	}
	return ""
}

// listBackups lists the periodic backups, oldest first, and those that a clock which was ahead has dated
// after now. Files whose names have no time are not periodic backups.
func (p PeriodicBackup) listBackups(now time.Time) (names, future []string) {
	paths, _ := filepath.Glob(filepath.Join(p.Dir, namePrefix+"*"+nameSuffix)) // fails for a bad pattern only
	for _, path := range paths {
		name := filepath.Base(path)
		switch at, err := time.Parse(nameLayout, name); {
		case err != nil:
		case at.After(now):
			future = append(future, name)
		default:
			names = append(names, name)
		}
	}
	slices.Sort(names)
	slices.Sort(future)
	return names, future
}

func (p PeriodicBackup) makeBackup(ctx context.Context) error {
	if err := os.MkdirAll(p.Dir, 0o700); err != nil {
		return fmt.Errorf("create backup directory: %w", err)
	}
	p.removePartial()
	stream, err := p.Open(ctx)
	if err != nil {
		return err
	}
	path := filepath.Join(p.Dir, time.Now().UTC().Format(nameLayout))
	sum, err := WriteFile(path, stream, KeepExisting)
	if err = errors.Join(err, stream.Close()); err != nil {
		return err
	}
	p.Logger.InfoContext(ctx, "backup written", "file", path, "bytes", sum.Size(), "sha256", sum.Digest())
	return p.pruneOld(ctx)
}

// removePartial removes what killed backups left behind.
func (p PeriodicBackup) removePartial() {
	// fails for a bad pattern only
	parts, _ := filepath.Glob(filepath.Join(p.Dir, namePrefix+"*"+nameSuffix+".*"+partSuffix))
	for _, part := range parts {
		_ = os.Remove(part) // tried again next time
	}
}

// pruneOld removes all but the newest backups. Those dated in the future stay and do not count, so
// that the one that was just made is among the newest.
func (p PeriodicBackup) pruneOld(ctx context.Context) error {
	names, future := p.listBackups(time.Now())
	for _, name := range future {
		p.Logger.WarnContext(ctx, "a backup has a time in the future and is never pruned: rename or remove it",
			"file", filepath.Join(p.Dir, name))
	}
	var errs []error
	for _, name := range names[:max(0, len(names)-max(p.KeepCount, 1))] {
		errs = append(errs, os.Remove(filepath.Join(p.Dir, name)))
	}
	return errors.Join(errs...)
}
