package farm

import (
	"testing"
	"time"
)

func TestEventRecord(t *testing.T) {
	at := time.Unix(1601991701, 5)
	for _, c := range []struct {
		event Event
		want  string
	}{
		{
			Event{Name: EventStartVM, InstanceID: "i", Time: at, Extra: map[string]any{
				"template_id": "t", "tag": "v1", "priority": 0, "node_id": nil, "group_id": nil,
			}},
			`{"group_id":null,"instance_id":"i","machineName":"host","name":"StartVM","node_id":null,"priority":0,` +
				`"sub_type":"vmAction","tag":"v1","template_id":"t","time":1601991701,"type":"apiAction"}`,
		},
		{
			Event{
				Name: EventNodeUnregistered, Time: at,
				Extra: map[string]any{"node_id": "n", "type": "no key of its own"},
			},
			`{"instance_id":"","machineName":"host","name":"NodeUnregistered","node_id":"n","sub_type":"nodeAction","time":1601991701,"type":"systemAction"}`,
		},
		{
			Event{Name: EventsDropped, Time: at, Extra: map[string]any{"count": 3}},
			`{"count":3,"instance_id":"","machineName":"host","name":"EventsDropped","sub_type":"logAction","time":1601991701,"type":"systemAction"}`,
		},
		{
			Event{
				Name: EventDistribute, Time: at, Actor: Actor{"anna", "ci", "192.0.2.1", "4f", "ben"},
				Extra: map[string]any{"request_id": "r"},
			},
			`{"address":"192.0.2.1","for_user":"ben","instance_id":"","key_id":"ci","machineName":"host","name":"DistributeTemplateToNodes","request":"4f",` +
				`"request_id":"r","sub_type":"templateAction","time":1601991701,"type":"apiAction","user":"anna"}`,
		},
		{
			Event{Name: EventAudit, Time: at, Actor: Actor{User: "root"}, Extra: map[string]any{"verb": "POST"}},
			`{"instance_id":"","machineName":"host","name":"Audit","sub_type":"auditAction","time":1601991701,"type":"apiAction","user":"root","verb":"POST"}`,
		},
	} {
		got, err := c.event.EncodeRecord("host")
		if err != nil || string(got) != c.want {
			t.Errorf("%s:\n got %s\nwant %s (%v)", c.event.Name, got, c.want, err)
		}
	}
}

func TestEventsHaveTypes(t *testing.T) {
	if len(EventKinds) != 12 { // those of the specification, and Audit
		t.Errorf("%d events, want 12", len(EventKinds))
	}
	for name := range EventKinds {
		if eventGroups[name] == "" {
			t.Errorf("%s has no sub type", name)
		}
	}
}
