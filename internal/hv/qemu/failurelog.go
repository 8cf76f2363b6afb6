package qemu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

const (
	maxFailureLogs     = 50       // logs of failed starts that are kept
	maxFailureLogBytes = 8 << 20  // and their total size
	qemuLogTailBytes   = 64 << 10 // what is taken of QEMU's own log

	failureLogTimeLayout = "20060102T150405.000Z" // the time in the name of a log
)

// withFailureLog keeps the logs of a start that failed, and adds their file to the error. The VM's own
// directory is removed with the VM. A canceled start has not failed.
func (m *machine) withFailureLog(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, errClosed) {
		return err
	}
	path, werr := m.writeFailureLog(err)
	if werr != nil {
		m.driver.log.Warn("storing the log of a failed start failed", "vm", m.id, "error", werr)
		return err
	}
	return fmt.Errorf("%w; the complete log is in %s", err, path)
}

// writeFailureLog writes the log of a failed start, with the whole serial console.
func (m *machine) writeFailureLog(reason error) (string, error) {
	dir := m.driver.opts.FailureLogDir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	now := time.Now().UTC()
	text := m.failureLogText(reason.Error(), now)
	path := filepath.Join(dir, m.id+"-"+now.Format(failureLogTimeLayout)+".log")
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(path)
		return "", err
	}
	return path, pruneFailureLogs(dir)
}

// failureLogText returns the log of a VM that failed: the reason, what QEMU printed and the serial console.
func (m *machine) failureLogText(reason string, at time.Time) string {
	m.mu.Lock()
	c := m.config
	m.mu.Unlock()
	return fmt.Sprintf(
		"VM %s %q, %s\n%s\nQEMU %s, %s, %s\n\n--- what QEMU printed ---\n%s\n--- end of the serial console ---\n%s\n",
		m.id, c.Spec.Name, at.Format(time.RFC3339), stripControl([]byte(reason)), c.Version, c.Machine, c.Accelerator,
		stripControl(lastBytes(filepath.Join(m.dir, logFile), qemuLogTailBytes)),
		stripControl(lastBytes(filepath.Join(m.dir, serialFile), serialBufferBytes)))
}

var _ hv.FailureLogger = (*Driver)(nil)

// FailureLog returns the log of a VM that ended by a failure, or the newest log of a failed start.
func (d *Driver) FailureLog(id string) ([]byte, error) {
	if m, err := d.findMachine(id); err == nil {
		if vm := m.describeVM(); vm.Failure != "" {
			return []byte(m.failureLogText(vm.Failure, vm.StoppedAt.UTC())), nil
		}
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
		if found && len(rest) == len(failureLogTimeLayout)+len(".log") {
			return lastBytes(filepath.Join(d.opts.FailureLogDir, e.Name()), maxFailureLogBytes), nil
		}
	}
	return nil, nil
}

// pruneFailureLogs removes the oldest logs until the others are within the limits.
func pruneFailureLogs(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var logs []fs.FileInfo
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && info.Mode().IsRegular() && strings.HasSuffix(e.Name(), ".log") {
			logs = append(logs, info)
		}
	}
	slices.SortFunc(logs, func(a, b fs.FileInfo) int { // newest first
		return cmp.Or(b.ModTime().Compare(a.ModTime()), strings.Compare(b.Name(), a.Name()))
	})
	var bytes int64
	for i, l := range logs {
		bytes += l.Size()
		if i < maxFailureLogs && bytes <= maxFailureLogBytes {
			continue
		}
		if err := removeFile(filepath.Join(dir, l.Name())); err != nil {
			return err
		}
	}
	return nil
}

// lastBytes returns the last bytes of a file; none when it cannot be read.
func lastBytes(path string, most int64) []byte {
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

// stripControl returns a log without characters that could control a terminal: a guest wrote it.
func stripControl(b []byte) string {
	return strings.Map(func(c rune) rune {
		if c != '\n' && c != '\t' && isControlRune(c) {
			return -1
		}
		return c
	}, strings.ToValidUTF8(string(b), ""))
}

// isControlRune reports whether a character is not visible.
func isControlRune(c rune) bool {
	return c < ' ' || c == '\uFFFD' || (c >= 0x7f && c < 0xa0)
}
