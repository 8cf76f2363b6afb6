package tart

import (
	"fmt"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/failurelog"
	"github.com/buildyard/buildyard/internal/sanitize"
)

var _ hv.FailureLogger = (*Driver)(nil)

// withFailureLog keeps the log of a start that failed, and adds its file to the error.
func (m *machine) withFailureLog(reason error) error {
	now := time.Now().UTC()
	path, err := m.driver.failureLogs().Write(m.id, now, m.failureLogText(reason.Error(), now))
	if err != nil {
		m.driver.log.Warn("storing the log of a failed start failed", "vm", m.id, "error", err)
		return reason
	}
	return fmt.Errorf("%w; the complete log is in %s", reason, path)
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
	return d.failureLogs().Newest(id)
}

func (d *Driver) failureLogs() failurelog.Dir { return failurelog.Dir(d.opts.FailureLogDir) }
