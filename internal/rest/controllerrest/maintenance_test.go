package controllerrest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
)

func TestMaintenance(t *testing.T) {
	c := newCloud(t)
	shown := func() (m api.Maintenance) {
		t.Helper()
		c.call("GET", "/api/v1/maintenance", "").into(t, &m)
		return m
	}
	status := func() (s api.ControllerStatus) {
		t.Helper()
		c.call("GET", "/api/v1/status", "").into(t, &s)
		return s
	}
	if shown().On || status().Maintenance != nil {
		t.Error("maintenance goes on from the beginning")
	}
	var begun api.Maintenance
	c.call("POST", "/api/v1/maintenance", `{"for":"2h","reason":"disks"}`).into(t, &begun)
	if !begun.On || begun.Reason != "disks" || begun.Until.Sub(begun.Since) != 2*time.Hour {
		t.Errorf("begun = %+v", begun)
	}
	if m := status().Maintenance; m == nil || *m != shown() || !m.Since.Equal(begun.Since) {
		t.Errorf("status = %+v", m)
	}
	if a := c.call("DELETE", "/api/v1/maintenance", ""); a.Status != api.StatusOK || shown().On {
		t.Errorf("ended: %+v", a)
	}
	for body, says := range map[string]string{
		`{"for":"a while"}`: "for: must be seconds or a duration", `{"for":2592001}`: "at most 720h0m0s",
		`{"reason":"` + strings.Repeat("x", 1025) + `"}`: "reason: must have at most 1024 bytes",
	} {
		if a := c.call("POST", "/api/v1/maintenance", body); a.code != 400 || !strings.Contains(a.Message, says) {
			t.Errorf("%.40s: %d %q", body, a.code, a.Message)
		}
	}
}
