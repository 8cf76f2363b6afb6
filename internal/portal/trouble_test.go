package portal

import (
	"strings"
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
		"disk": "/nodes/n1", "clock": "/nodes/n1", "orphans": "/nodes/n1", "queue": "/groups?q=id%3Ag1",
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

// TestOutageAmongOthers: the dashboard shows one outage in full, counts all of them, and lists the other problems.
// TestUnhealthyNodes: nodes that are Unhealthy have contact, so the card of an outage is not about them; the banner has
// the reason and the action.
func TestUnhealthyNodes(t *testing.T) {
	list := troubleOf(&api.ControllerStatus{RegistryStatus: "Running", Outages: []api.Outage{
		{State: "Unhealthy", Nodes: 4, Of: 4, Reason: "it is full, and none of its 2 VMs runs"},
	}}, nil)
	var d dashboard
	if d.setOutage(list); d.Outage != nil || len(d.Others) > 0 {
		t.Errorf("%+v", d)
	}
	const next = "Reason: it is full, and none of its 2 VMs runs. Repair their hypervisor, or terminate the " +
		"instances that hold their slots."
	if len(list) != 1 || !list[0].Urgent || list[0].Next != next {
		t.Errorf("%+v", list)
	}
}

func TestOutageAmongOthers(t *testing.T) {
	status := &api.ControllerStatus{
		RegistryStatus: "Running",
		ActiveAlarms:   []api.Alarm{{Name: api.AlarmNodeClock, Subject: "n", Message: "clock"}},
		Outages:        []api.Outage{{State: "Offline", Nodes: 3, Of: 4}, {State: "Unhealthy", Nodes: 1, Of: 4}},
	}
	var d dashboard
	d.setOutage(troubleOf(status, nil))
	if d.Outage == nil || d.Outage.Outage.Nodes != 3 || d.OutageCount != 2 || len(d.Others) != 2 {
		t.Fatalf("%+v", d)
	}
	var text strings.Builder
	if err := pageTemplates()["dashboard"]().ExecuteTemplate(&text, "outage", &d); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"one of 2 outages", "2 other problems", "1 of 4 nodes is Unhealthy", `href="/nodes/n">clock`,
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in the card: %s", want, &text)
		}
	}
	d = dashboard{}
	d.setOutage(troubleOf(&api.ControllerStatus{
		RegistryStatus: "Running", Outages: []api.Outage{{State: "Offline", Nodes: 1, Of: 9}},
	}, nil))
	if d.Outage != nil {
		t.Error("an outage of few nodes hides the banner")
	}
}
