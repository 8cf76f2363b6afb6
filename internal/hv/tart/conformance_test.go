//go:build linux

package tart

import (
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/hvtest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	hvtest.RunSerially(t, func(t *testing.T) hvtest.Subject {
		m := newMac(t)
		m.setKnob("ssh", "22")
		o := m.options()
		d := m.open(o)
		return hvtest.Subject{
			Driver: d, Spec: m.spec, MaxVMs: 2,
			Paths: map[string]string{"/root": ".", "/dev/shm": "."}, // of the user that commands run as
			NeverReady: func() hv.Spec {
				s := m.spec()
				s.BootTimeout = 3 * time.Second
				m.setKnob(s.ID+"/agent-delay", "never")
				m.setKnob(s.ID+"/ssh", "")
				return s
			},
			Kill:   func(t *testing.T, vm hv.VM) { killPID(t, vm.PID) },
			Reopen: func(*testing.T) hv.Driver { return m.open(o) },
			Other:  func(*testing.T) hv.Driver { return m.open(m.options()) },
		}
	})
}
