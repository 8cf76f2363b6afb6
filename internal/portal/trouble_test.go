package portal

import (
	"testing"

	"github.com/buildyard/buildyard/api"
)

// TestAlarmPaths: only alarms about nodes and groups have a page, and the urgent ones are first.
func TestAlarmPaths(t *testing.T) {
	status := &api.ControllerStatus{RegistryStatus: "Running", ActiveAlarms: []api.Alarm{
		{Name: api.AlarmNodeDisk, Subject: "n1", Message: "disk"},
		{Name: api.AlarmNodeClock, Subject: "n1", Message: "clock"},
		{Name: api.AlarmNodeClock, Message: "more clocks"},
		{Name: api.AlarmOrphans, Subject: "n1", Message: "orphans"},
		{Name: api.AlarmQueueGrows, Subject: "g1", Message: "queue"},
		{Name: api.AlarmEvents, Subject: "push", Message: "events"},
		{Name: api.AlarmCertificate, Subject: "node_interface", Message: "certificate expires"},
		{Name: api.AlarmCertificate, Subject: "api", Message: "certificate expired", Urgent: true},
		{Name: "a later version's", Subject: "s", Message: "later"},
	}}
	paths := map[string]string{
		"disk": "/nodes/n1", "clock": "/nodes/n1", "orphans": "/nodes/n1", "queue": "/groups#g-g1",
	}
	list := troubleOf(status, nil)
	if len(list) != len(status.ActiveAlarms) || list[0].What != "certificate expired" || list[1].Urgent {
		t.Errorf("%+v", list)
	}
	for _, p := range list {
		if p.Path != paths[p.What] {
			t.Errorf("%s leads to %q, not %q", p.What, p.Path, paths[p.What])
		}
	}
}
