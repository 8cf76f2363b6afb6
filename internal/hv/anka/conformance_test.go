//go:build linux

package anka

import (
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/cliproc"
	"github.com/buildyard/buildyard/internal/hv/hvtest"
)

// TestConformance runs the suite against the imitation of anka.
func TestConformance(t *testing.T) {
	hvtest.Run(t, func(t *testing.T) hvtest.Subject {
		m := newMac(t)
		d := m.open()
		return hvtest.Subject{
			Driver: d, Spec: m.nextSpec, MaxVMs: 2,
			NeverReady: func() hv.Spec {
				s := m.nextSpec()
				s.BootTimeout = 2 * time.Second
				m.knob("buildyard-"+s.ID+"/agent-delay", "never")
				return s
			},
			Kill: func(t *testing.T, vm hv.VM) {
				p, err := cliproc.Find(vm.PID)
				if err == nil {
					err = p.Kill()
				}
				if err != nil {
					t.Fatal(err)
				}
			},
			Reopen: func(*testing.T) hv.Driver { return m.open() },
			// Commands of the fake's guests begin in their home directory, which is on the disk.
			Paths: map[string]string{"/root": "."},
		}
	})
}
