package tart

import (
	"errors"
	"path/filepath"
	"testing"
	"time"
)

// TestReadyProbe: a guest whose agent does not answer is tried by SSH, but not by each attempt.
func TestReadyProbe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := &Driver{cli: program{path: filepath.Join(dir, "missing")}, opts: Options{Home: dir}}
	sentinel := errors.New("the last attempt by SSH")
	m := &machine{driver: d, id: "vm", dir: dir}
	p := readyProbe{machine: m, nextSSH: time.Now().Add(time.Hour), sshErr: sentinel}
	if err := p.reachGuest(t.Context()); !errors.Is(err, sentinel) {
		t.Errorf("an attempt too early: %v", err)
	}
	p.nextSSH = time.Time{}
	if err := p.reachGuest(t.Context()); err == nil || errors.Is(err, sentinel) {
		t.Errorf("a later attempt: %v", err)
	}
	if !p.nextSSH.After(time.Now().Add(-sshDelay)) || p.useSSH.Load() {
		t.Errorf("next attempt at %v, by SSH: %v", p.nextSSH, p.useSSH.Load())
	}
}
