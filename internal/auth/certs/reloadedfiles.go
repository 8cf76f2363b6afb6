package certs

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	checkInterval = 5 * time.Second
	// fileTimeResolution is how old a file's time must be for "same time, same size" to mean "same
	// content": times of files are coarse.
	fileTimeResolution = 2 * time.Second
	// expiryWarningTime is how long before the end of a certificate the alarm begins.
	expiryWarningTime = 14 * 24 * time.Hour
	// maxFileBytes is the largest file that is read, in bytes; revocation lists are the largest.
	maxFileBytes = 32 << 20
)

// reloadedFiles are files that are loaded together: all of them, or none.
type reloadedFiles struct {
	description  string // they are, in the log
	paths        []string
	activate     func(texts [][]byte) error // activates the contents, or returns an error and changes nothing
	dateWarnings func(now time.Time) []string
	log          *slog.Logger
	now          func() time.Time

	mu              sync.Mutex // guards the fields below
	fileInfos       []fs.FileInfo
	recentlyChanged bool // a file was so new that it may have changed unnoticed since
	contentSum      [sha256.Size]byte
	failedLoads     int    // how often in a row the changed files were not valid
	problem         string // why they are not; "" while the change may be incomplete
	loggedAlarm     string // the last logged alarm
}

// newFiles fills in the defaults.
func newFiles(what string, log *slog.Logger, now func() time.Time, paths ...string) *reloadedFiles {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if now == nil {
		now = time.Now
	}
	return &reloadedFiles{description: what, paths: paths, log: log, now: now}
}

// loadFirst loads the files for the first time.
func (f *reloadedFiles) loadFirst() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen, texts, err := readAll(f.paths)
	if err == nil {
		err = f.activate(texts)
	}
	f.recordRead(seen, texts)
	return err
}

// recordRead records what was read; f.mu is held.
func (f *reloadedFiles) recordRead(seen []fs.FileInfo, texts [][]byte) {
	f.fileInfos, f.contentSum, f.recentlyChanged = seen, checksum(texts), false
	for _, s := range seen {
		f.recentlyChanged = f.recentlyChanged || f.now().Sub(s.ModTime()) < fileTimeResolution
	}
}

// run follows the files until ctx ends: every few seconds, and when the process receives SIGHUP.
func (f *reloadedFiles) run(ctx context.Context) {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	f.watchLoop(ctx, hangup)
}

func (f *reloadedFiles) watchLoop(ctx context.Context, hangup <-chan os.Signal) {
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for {
		f.logAlarm(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f.reloadChanged(ctx, 0)
		case <-hangup:
			f.log.InfoContext(ctx, "SIGHUP received; reading certificate files again", "files", f.description)
			f.reloadChanged(ctx, 1)
		}
	}
}

// reloadChanged loads changed files when they are valid. Two files cannot be replaced atomically, and one
// may be half written: an invalid file is read again at the next check, and there is an alarm when
// it is invalid then too. A request by SIGHUP counts as one more check.
func (f *reloadedFiles) reloadChanged(ctx context.Context, asked int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if asked == 0 && f.failedLoads == 0 && !f.recentlyChanged && f.unchanged() {
		return
	}
	seen, texts, err := readAll(f.paths)
	if err == nil && checksum(texts) == f.contentSum {
		f.recordRead(seen, texts)
		f.failedLoads, f.problem = 0, ""
		return
	}
	if err == nil {
		err = f.activate(texts)
	}
	if err == nil {
		f.recordRead(seen, texts)
		f.failedLoads, f.problem = 0, ""
		f.log.InfoContext(ctx, "certificates reloaded", "files", f.description)
		return
	}
	if f.failedLoads += 1 + asked; f.failedLoads > 1 {
		f.problem = fmt.Sprintf("The changed files of %s are not valid, and the former ones count: %v", f.description,
			err)
	}
}

// unchanged reports whether the files look as they did when they were read; f.mu is held.
func (f *reloadedFiles) unchanged() bool {
	for i, path := range f.paths {
		st, err := os.Stat(path)
		if err != nil || !os.SameFile(st, f.fileInfos[i]) || st.Size() != f.fileInfos[i].Size() ||
			!st.ModTime().Equal(f.fileInfos[i].ModTime()) {
			return false
		}
	}
	return true
}

// alarm returns the problem that an operator has to fix; "" for none.
func (f *reloadedFiles) alarm() string {
	parts := f.dateWarnings(f.now())
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.problem != "" {
		parts = append(parts, f.problem)
	}
	return strings.Join(parts, "; ")
}

// logAlarm logs a new alarm.
func (f *reloadedFiles) logAlarm(ctx context.Context) {
	alarm := f.alarm()
	f.mu.Lock()
	fresh := alarm != f.loggedAlarm
	f.loggedAlarm = alarm
	f.mu.Unlock()
	if fresh && alarm != "" {
		f.log.WarnContext(ctx, "certificates invalid or expiring", "files", f.description, "alarm", alarm)
	}
}

// readAll reads complete files. The metadata of each is from before it was read, so that a change
// in between is noticed later.
func readAll(paths []string) (seen []fs.FileInfo, texts [][]byte, err error) {
	for _, path := range paths {
		st, text, err := readFile(path)
		if err != nil {
			return nil, nil, err
		}
		seen, texts = append(seen, st), append(texts, text)
	}
	return seen, texts, nil
}

func readFile(path string) (fs.FileInfo, []byte, error) {
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, nil, readError(path, err)
	case !st.Mode().IsRegular(): // a pipe would be waited for
		return nil, nil, fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, readError(path, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	switch {
	case err != nil:
		return nil, nil, readError(path, err)
	case len(text) > maxFileBytes:
		return nil, nil, fmt.Errorf("%s is larger than %d MiB", path, maxFileBytes>>20)
	}
	return st, text, nil
}

// readError returns the error of an unreadable file, without naming it twice.
func readError(path string, err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		err = at.Err
	}
	return fmt.Errorf("read %s: %w", path, err)
}

func checksum(texts [][]byte) (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, text := range texts {
		one := sha256.Sum256(text)
		h.Write(one[:])
	}
	h.Sum(sum[:0])
	return sum
}
