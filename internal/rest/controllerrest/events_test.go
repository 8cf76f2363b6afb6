package controllerrest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/controller"
	"github.com/buildyard/buildyard/internal/controller/events"
)

// nobody accepts and discards every event.
type nobody struct{}

func (nobody) Send(_ context.Context, events []events.EncodedEvent) ([]bool, error) {
	arrived := make([]bool, len(events))
	for i := range arrived {
		arrived[i] = true
	}
	return arrived, nil
}

type event struct {
	ID, Name, Type string
	Instance       string `json:"instance_id"`
	Time           int64
}

// events waits until n events match a query, and returns them.
func (c *cloud) events(query string, n int) (list []event) {
	c.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		c.call("GET", "/api/v1/events"+query, "").into(c.t, &list)
		if len(list) >= n {
			return list
		}
		if time.Now().After(end) {
			c.t.Fatalf("%d events for %s, want %d", len(list), query, n)
		}
	}
}

func TestEvents(t *testing.T) {
	c := newCloudWith(t, controller.Options{Events: events.Options{Machine: "host", Push: nobody{}}})
	if a := c.call("GET", "/api/v1/events", ""); a.code != 200 || string(a.Body) != "[]" {
		t.Errorf("no events yet: %d %s", a.code, a.Body)
	}
	id := c.start(`,"priority":5`)
	first := c.events("", 1)[0]
	if first.Name != "StartVM" || first.Type != "apiAction" || first.Instance != id || first.ID == "" ||
		first.Time == 0 {
		t.Errorf("event %+v", first)
	}
	var fields []map[string]any
	c.call("GET", "/api/v1/events", "").into(t, &fields)
	for _, key := range []string{"group_id", "node_id", "priority", "tag", "template_id", "machineName", "sub_type"} {
		if _, ok := fields[0][key]; !ok {
			t.Errorf("%s is not there: %v", key, fields[0])
		}
	}
	go func() {
		time.Sleep(200 * time.Millisecond)
		c.call("DELETE", "/api/v1/vm", `{"id":"`+id+`"}`)
	}()
	var waited []event
	c.call("GET", "/api/v1/events?wait=20s&after="+first.ID, "").into(t, &waited)
	if len(waited) != 1 || waited[0].Name != "TerminateVM" {
		t.Errorf("waited for %+v", waited)
	}
	all := c.events("?limit=2&after="+first.ID, 2)
	if all[1].Name != "VMTerminated" {
		t.Errorf("after the first: %+v", all)
	}
	want(t, "filtered", c.events(filtered("type:api* -name:start* age<1h"), 1)[0].Name, "TerminateVM")
	want(t, "by instance", len(c.events(filtered("instance:"+id), 3)), 3)
	template := fmt.Sprint(fields[0]["template_id"])
	want(t, "with the template", c.events(filtered(template+" name:startvm"), 1)[0].Name, "StartVM")
	want(t, "the newest", c.events("?limit=1", 1)[0].Name, "VMTerminated")
	for query, field := range map[string]string{
		"?after=x": "after", "?limit=0": "limit", "?limit=1001": "limit",
		"?wait=2m&after=1-1": "wait", "?wait=5s": "wait", "?filter=x:y": "filter",
	} {
		if a := c.call("GET", "/api/v1/events"+query, ""); a.code != 400 || !strings.HasPrefix(a.Message, field+": ") {
			t.Errorf("%s: %d %s", query, a.code, a.Message)
		}
	}
}

func TestEventsThatAreOff(t *testing.T) {
	c := newCloud(t)
	a := c.call("GET", "/api/v1/events", "")
	if a.code != 200 || a.Status != "FAIL" || !strings.Contains(a.Message, "SVC_ENABLE_EVENT_LOGGING") {
		t.Errorf("%d %s", a.code, a.Message)
	}
}
