// Package failurelog keeps the logs of VM starts that failed: files of a directory, the newest 50, at
// most 8 MiB together. A VM's own directory is removed with the VM.
//
// It does not know what a log contains; callers remove what could control a terminal.
//
// Invariant: Write never changes or replaces a log, and the oldest logs are removed first.
package failurelog

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	maxLogs  = 50      // that are kept
	maxBytes = 8 << 20 // of all logs

	suffix     = ".log"
	timeLayout = "20060102T150405.000Z" // the time in the name of a log
)

// Dir is the path of the directory. It need not exist.
type Dir string

// Write stores the log of a VM whose start has failed at a time, and returns its path.
func (d Dir) Write(id string, at time.Time, text string) (path string, err error) {
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return "", err
	}
	path = filepath.Join(string(d), id+"-"+at.UTC().Format(timeLayout)+suffix)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(path))
	}
	return path, d.prune()
}

// Newest returns the newest log of a VM, or nil.
func (d Dir) Newest(id string) ([]byte, error) {
	entries, err := os.ReadDir(string(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the logs of failed starts: %w", err)
	}
	for _, e := range slices.Backward(entries) { // by name, which is by time for one VM
		rest, found := strings.CutPrefix(e.Name(), id+"-")
		if found && len(rest) == len(timeLayout)+len(suffix) {
			return LastBytes(filepath.Join(string(d), e.Name()), maxBytes), nil
		}
	}
	return nil, nil
}

// prune removes the oldest logs until the others are within the limits. Other files stay.
func (d Dir) prune() error {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return err
	}
	var logs []fs.FileInfo
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && info.Mode().IsRegular() && strings.HasSuffix(e.Name(), suffix) {
			logs = append(logs, info)
		}
	}
	slices.SortFunc(logs, func(a, b fs.FileInfo) int { // newest first
		return cmp.Or(b.ModTime().Compare(a.ModTime()), strings.Compare(b.Name(), a.Name()))
	})
	var bytes int64
	for i, l := range logs {
		bytes += l.Size()
		if i < maxLogs && bytes <= maxBytes {
			continue
		}
		if err := os.Remove(filepath.Join(string(d), l.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// LastBytes returns the last bytes of a file; none when it cannot be read.
func LastBytes(path string, most int64) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil
	}
	b := make([]byte, min(most, info.Size()))
	n, _ := f.ReadAt(b, info.Size()-int64(len(b))) // a file that was truncated since then is shorter
	return b[:n]
}
