package anka

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/sanitize"
)

var _ hv.FailureLogger = (*Driver)(nil)

const (
	maxFailureLogs     = 50 // that are kept
	maxFailureLogBytes = 1 << 20
	logSuffix          = ".log"
)

func (d *Driver) failureLogFile(id string) string {
	return filepath.Join(d.opts.Dir, failuresDir, id+logSuffix)
}

// writeFailureLog stores why a start or a run of the VM has failed, with what anka printed. It replaces the former log
// of the VM. A failure to do so is only logged.
func (m *machine) writeFailureLog(reason string, at time.Time) {
	text := fmt.Sprintf("VM %s, %s\n%s\nanka %s\n\n--- what anka printed ---\n%s", m.id, at.Format(time.RFC3339),
		sanitize.EscapeText(reason), m.driver.host.Version, m.said.String())
	err := os.WriteFile(m.driver.failureLogFile(m.id), []byte(text), 0o600)
	if err == nil {
		err = pruneFailureLogs(filepath.Join(m.driver.opts.Dir, failuresDir))
	}
	if err != nil {
		m.driver.log.Warn("storing the log of a failed VM failed", "vm", m.id, "error", err)
	}
}

// FailureLog returns the log of the last failure of a VM, also after the VM was removed.
func (d *Driver) FailureLog(id string) ([]byte, error) {
	if !hv.ValidID(id) {
		return nil, nil
	}
	f, err := os.Open(d.failureLogFile(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFailureLogBytes))
}

// pruneFailureLogs removes the oldest logs above the limit.
func pruneFailureLogs(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var logs []fs.FileInfo
	for _, e := range entries {
		if info, err := e.Info(); err == nil && strings.HasSuffix(e.Name(), logSuffix) {
			logs = append(logs, info)
		}
	}
	slices.SortFunc(logs, func(a, b fs.FileInfo) int { // newest first
		return cmp.Or(b.ModTime().Compare(a.ModTime()), strings.Compare(b.Name(), a.Name()))
	})
	for _, l := range logs[min(len(logs), maxFailureLogs):] {
		err = errors.Join(err, removeFile(filepath.Join(dir, l.Name())))
	}
	return err
}
