package tart

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

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/sanitize"
)

var _ hv.FailureLogger = (*Driver)(nil)

const (
	maxFailureLogs = 50                     // logs of failed starts that are kept
	logTimeLayout  = "20060102T150405.000Z" // the time in the name of a log
)

// withFailureLog keeps the log of a start that failed, and adds its file to the error.
func (m *machine) withFailureLog(reason error) error {
	path, err := m.writeFailureLog(reason)
	if err != nil {
		m.driver.log.Warn("storing the log of a failed start failed", "vm", m.id, "error", err)
		return reason
	}
	return fmt.Errorf("%w; the complete log is in %s", reason, path)
}

func (m *machine) writeFailureLog(reason error) (string, error) {
	dir := m.driver.opts.FailureLogDir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	now := time.Now().UTC()
	path := filepath.Join(dir, m.id+"-"+now.Format(logTimeLayout)+".log")
	if err := os.WriteFile(path, []byte(m.failureLogText(reason.Error(), now)), 0o600); err != nil {
		return "", errors.Join(err, os.Remove(path))
	}
	return path, pruneFailureLogs(dir)
}

// failureLogText returns the reason and what tart run printed. The addresses of VNC servers contain
// passwords and are left out.
func (m *machine) failureLogText(reason string, at time.Time) string {
	var said strings.Builder
	for line := range strings.Lines(string(m.runLog())) {
		if !strings.HasPrefix(line, vncLine) {
			said.WriteString(sanitize.EscapeText(strings.TrimSuffix(line, "\n")) + "\n")
		}
	}
	return fmt.Sprintf("VM %s, %s\n%s\ntart %s\n\n--- what tart run printed ---\n%s", m.id, at.Format(time.RFC3339),
		sanitize.EscapeText(reason), m.driver.host.Version, said.String())
}

// FailureLog returns the log of a VM that ended by a failure, or the newest log of a failed start.
func (d *Driver) FailureLog(id string) ([]byte, error) {
	if !hv.ValidID(id) {
		return nil, nil
	}
	m := d.machine(id)
	if vm, err := m.describe(); err == nil && vm.Failure != "" {
		return []byte(m.failureLogText(vm.Failure, vm.StoppedAt)), nil
	}
	entries, err := os.ReadDir(d.opts.FailureLogDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the logs of failed starts: %w", err)
	}
	for _, e := range slices.Backward(entries) { // by name, which is by time for one VM
		rest, found := strings.CutPrefix(e.Name(), id+"-")
		if found && len(rest) == len(logTimeLayout)+len(".log") {
			return os.ReadFile(filepath.Join(d.opts.FailureLogDir, e.Name()))
		}
	}
	return nil, nil
}

// pruneFailureLogs removes the oldest logs above the limit.
func pruneFailureLogs(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var logs []fs.FileInfo
	for _, e := range entries {
		if info, err := e.Info(); err == nil && strings.HasSuffix(e.Name(), ".log") {
			logs = append(logs, info)
		}
	}
	slices.SortFunc(logs, func(a, b fs.FileInfo) int { // newest first
		return cmp.Or(b.ModTime().Compare(a.ModTime()), strings.Compare(b.Name(), a.Name()))
	})
	for _, l := range logs[min(len(logs), maxFailureLogs):] {
		err = errors.Join(err, os.Remove(filepath.Join(dir, l.Name())))
	}
	return err
}
