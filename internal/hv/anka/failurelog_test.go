//go:build linux

package anka

import (
	"strings"
	"testing"
)

// TestFailureLog: what anka said of a failed start stays after the VM was removed.
func TestFailureLog(t *testing.T) {
	m := newMac(t)
	d := m.open()
	m.knob("no-child", "0")
	s := m.nextSpec()
	if _, err := d.Start(t.Context(), s); err == nil {
		t.Fatal("the VM has started")
	}
	if err := d.Delete(t.Context(), s.ID); err != nil {
		t.Error(err)
	}
	log, err := d.FailureLog(s.ID)
	for _, want := range []string{
		"VM " + s.ID, "log in there", "anka 3.5.0", "anka clone buildyard-image-", "anka start buildyard-" + s.ID,
		`"message":"buildyard-` + s.ID + `: failed to start: No child processes"`,
	} {
		if err != nil || !strings.Contains(string(log), want) {
			t.Errorf("the log lacks %q: %v\n%s", want, err, log)
		}
	}
	for _, id := range []string{"other", "../" + s.ID} {
		if log, err := d.FailureLog(id); log != nil || err != nil {
			t.Errorf("%s: %s, %v", id, log, err)
		}
	}
}

// TestFailureLogOfRun: a VM that crashes has a log.
func TestFailureLogOfRun(t *testing.T) {
	m := newMac(t)
	d := m.open()
	s := m.nextSpec()
	m.start(d, s)
	m.knob("crash", "0")
	m.eventually("the crash is noticed", func() bool {
		vm, err := d.Get(t.Context(), s.ID)
		return err == nil && vm.Failure != ""
	})
	log, err := d.FailureLog(s.ID)
	if err != nil || !strings.Contains(string(log), "anka shows the VM as failed") {
		t.Errorf("got %s, %v", log, err)
	}
}
