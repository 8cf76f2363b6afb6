package anka

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/failurelog"
	"github.com/buildyard/buildyard/internal/sanitize"
)

var _ hv.FailureLogger = (*Driver)(nil)

func (d *Driver) failureLogs() failurelog.Dir {
	return failurelog.Dir(filepath.Join(d.opts.Dir, failuresDir))
}

// writeFailureLog stores why a start or a run of the VM has failed, with what anka printed. A failure to do so is only
// logged.
func (m *machine) writeFailureLog(reason string, at time.Time) {
	text := fmt.Sprintf("VM %s, %s\n%s\nanka %s\n\n--- what anka printed ---\n%s", m.id, at.Format(time.RFC3339),
		sanitize.EscapeText(reason), m.driver.host.Version, m.transcript.String())
	if _, err := m.driver.failureLogs().Write(m.id, at, text); err != nil {
		m.driver.log.Warn("storing the log of a failed VM failed", "vm", m.id, "error", err)
	}
}

// FailureLog returns the log of the last failure of a VM, also after the VM was removed.
func (d *Driver) FailureLog(id string) ([]byte, error) {
	if !hv.ValidID(id) {
		return nil, nil
	}
	return d.failureLogs().Newest(id)
}
