package main

import (
	"net"
	"regexp"
	"testing"

	"github.com/buildyard/buildyard/internal/hv/hvtest"
)

var screenLine = regexp.MustCompile(`VNC server is running at vnc://:([a-z-]+)@(\S+)\n`)

// TestScreen: the first 8 bytes of the password count.
func TestScreen(t *testing.T) {
	h := newHost(t)
	h.create("a", "b")
	h.knob("a/vnc-delay", "0.3")
	h.knob("b/no-vnc", "")
	h.start("a", "--vnc-experimental")
	var found []string
	h.eventually("the screen is served", func() bool {
		found = screenLine.FindStringSubmatch(h.log("a"))
		return found != nil
	})
	view := func(password string) error {
		c, err := net.Dial("tcp", found[2])
		if err != nil {
			return err
		}
		defer c.Close()
		_, _, err = hvtest.View(c, password)
		return err
	}
	if err := view(found[1][:8]); err != nil {
		t.Error(err)
	}
	if err := view("x" + found[1]); err == nil {
		t.Error("another password was taken")
	}
	h.start("b", "--vnc-experimental")
	if h.log("b") != "" {
		t.Errorf("a screen that is switched off: %q", h.log("b"))
	}
}
