package qemu

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/failurelog"
)

const qemuLogTailBytes = 64 << 10 // what is taken of QEMU's own log

// withFailureLog keeps the logs of a start that failed, and adds their file to the error. The VM's own
// directory is removed with the VM. A canceled start has not failed.
func (m *machine) withFailureLog(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, errClosed) {
		return err
	}
	now := time.Now()
	path, werr := m.driver.failureLogs().Write(m.id, now, m.failureLogText(err.Error(), now.UTC()))
	if werr != nil {
		m.driver.log.Warn("storing the log of a failed start failed", "vm", m.id, "error", werr)
		return err
	}
	return fmt.Errorf("%w; the complete log is in %s", err, path)
}

// failureLogText returns the log of a VM that failed: the reason, what QEMU printed and the serial console.
func (m *machine) failureLogText(reason string, at time.Time) string {
	m.mu.Lock()
	c := m.config
	m.mu.Unlock()
	return fmt.Sprintf(
		"VM %s %q, %s\n%s\nQEMU %s, %s, %s\n\n--- what QEMU printed ---\n%s\n--- end of the serial console ---\n%s\n",
		m.id, c.Spec.Name, at.Format(time.RFC3339), stripControl([]byte(reason)), c.Version, c.Machine, c.Accelerator,
		stripControl(failurelog.LastBytes(filepath.Join(m.dir, logFile), qemuLogTailBytes)),
		stripControl(failurelog.LastBytes(filepath.Join(m.dir, serialFile), serialBufferBytes)))
}

var _ hv.FailureLogger = (*Driver)(nil)

// FailureLog returns the log of a VM that ended by a failure, or the newest log of a failed start.
func (d *Driver) FailureLog(id string) ([]byte, error) {
	if m, err := d.findMachine(id); err == nil {
		if vm := m.describeVM(); vm.Failure != "" {
			return []byte(m.failureLogText(vm.Failure, vm.StoppedAt.UTC())), nil
		}
	}
	return d.failureLogs().Newest(id)
}

func (d *Driver) failureLogs() failurelog.Dir { return failurelog.Dir(d.opts.FailureLogDir) }

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
