package controllerrest_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller"
	"github.com/buildyard/buildyard/internal/controller/instances"
	"github.com/buildyard/buildyard/internal/farm"
)

// fixed is a license that stays.
type fixed farm.Tier

var _ controller.License = fixed("")

func (f fixed) Tier() farm.Tier  { return farm.Tier(f) }
func (fixed) Expires() time.Time { return time.Date(2030, 1, 2, 0, 0, 0, 0, time.UTC) }
func (fixed) Alarm() string      { return "look at the license" }

func TestStatusReportsTheLicense(t *testing.T) {
	var open, basic api.ControllerStatus
	if err := json.Unmarshal(newCloud(t).call("GET", "/api/v1/status", "").Body, &open); err != nil {
		t.Fatal(err)
	}
	if open.License != "enterprise plus" || !open.LicenseExpires.IsZero() || open.Alarms != nil {
		t.Errorf("without a license: %+v", open)
	}
	c := newCloudWith(t, controller.Options{License: fixed(farm.TierBasic)})
	if err := json.Unmarshal(c.call("GET", "/api/v1/status", "").Body, &basic); err != nil {
		t.Fatal(err)
	}
	if basic.License != "basic" || basic.LicenseExpires.Year() != 2030 ||
		!slices.Equal(basic.Alarms, []string{"look at the license"}) {
		t.Errorf("with one: %+v", basic)
	}
}

// TestBasicRefusesByName: features beyond the license are refused with status 200 and a message; absent and
// default values are accepted.
func TestBasicRefusesByName(t *testing.T) {
	start := func(more string) string { return `{"vmid":"` + templateID + `"` + more + `}` }
	for name, c := range map[string]struct{ path, body, want string }{
		"priority": {
			"/api/v1/vm", start(`,"priority":1`),
			"priority requires the license tier enterprise, and this controller has basic: leave it out, or install " +
				"a license " +
				"(SVC_LICENSE_FILE)",
		},
		"priority as text": {
			"/api/v1/vm", start(`,"priority":"999"`),
			"priority requires the license tier enterprise, and this controller has basic: leave it out, or install " +
				"a license " +
				"(SVC_LICENSE_FILE)",
		},
		"priority in query": {
			"/api/v1/vm?priority=5", start(``),
			"priority requires the license tier enterprise, and this controller has basic: leave it out, or install " +
				"a license " +
				"(SVC_LICENSE_FILE)",
		},
		"usb": {
			"/api/v1/vm", start(`,"usb_device":"phone"`),
			"usb_device requires the license tier enterprise, and this controller has basic: leave it out, " +
				"or install " +
				"a license " +
				"(SVC_LICENSE_FILE)",
		},
		"group": {
			"/api/v1/vm", start(`,"group_id":"x"`),
			"group_id requires the license tier enterprise, and this controller has basic: leave it out, or install " +
				"a license " +
				"(SVC_LICENSE_FILE)",
		},
		"usb of a restart": {
			"/api/v1/rpc/vm/restart", `{"instance_id":"x","usb_device":"phone"}`,
			"usb_device requires the license tier enterprise, and this controller has basic: leave it out, " +
				"or install " +
				"a license " +
				"(SVC_LICENSE_FILE)",
		},
		"group of templates": {
			"/api/v1/registry/vm/distribute", `{"template_id":"` + templateID +
				`","group_id":"x"}`,
			"group_id requires the license tier enterprise, and this controller has basic: leave it out, or install " +
				"a license " +
				"(SVC_LICENSE_FILE)",
		},
		"groups at join": {
			api.PathJoin, `{"protocol":1,"groups":["a"]}`,
			"groups requires the license tier enterprise, and this controller has basic: leave it out, or install " +
				"a license " +
				"(SVC_LICENSE_FILE)",
		},
		"nothing":          {"/api/v1/vm", start(``), ""},
		"what is empty":    {"/api/v1/vm", start(`,"group_id":"","usb_device":null,"priority":null`), ""},
		"no priority":      {"/api/v1/vm", start(`,"priority":0`), ""},
		"default priority": {"/api/v1/vm", start(`,"priority":1000`), ""},
		"default as text":  {"/api/v1/vm", start(`,"priority":"1000"`), ""},
	} {
		cloud := newCloudWith(t, controller.Options{License: fixed(farm.TierBasic)})
		got := cloud.call("POST", c.path, c.body)
		status := map[bool]string{true: "OK", false: "FAIL"}[c.want == ""]
		if got.code != 200 || got.Status != status || got.Message != c.want {
			t.Errorf("%s: %d %s %q", name, got.code, got.Status, got.Message)
		}
		if started := len(cloud.Instances.List(instances.Page{})); (started == 1) != (c.want == "") {
			t.Errorf("%s: %d instances", name, started)
		}
	}
}

// TestBasicHasNoGroups: all that a client can do with them is refused, the list too; so are
// USB devices.
func TestBasicHasNoGroups(t *testing.T) {
	c := newCloudWith(t, controller.Options{License: fixed(farm.TierBasic)})
	for route, what := range map[string]string{
		"GET /api/v1/group": "Node groups", "POST /api/v1/group": "Node groups", "PUT /api/v1/group": "Node groups",
		"DELETE /api/v1/group": "Node groups", "POST /api/v1/node/group": "Node groups",
		"DELETE /api/v1/node/group": "Node groups",
		"GET /api/v1/usb":           "USB devices",
	} {
		method, path, _ := strings.Cut(route, " ")
		got := c.call(method, path, `{"name":"a"}`)
		if got.code != 200 || got.Status != "FAIL" ||
			got.Message != what+
				" require the license tier enterprise, and this controller has basic: install a license "+
				"(SVC_LICENSE_FILE)" {
			t.Errorf("%s: %d %s %q", route, got.code, got.Status, got.Message)
		}
	}
}

// TestWrongInputIsCalledSoAtEveryTier: a value out of range is not a question of the license.
func TestWrongInputIsCalledSoAtEveryTier(t *testing.T) {
	c := newCloudWith(t, controller.Options{License: fixed(farm.TierBasic)})
	got := c.call("POST", "/api/v1/vm", `{"vmid":"`+templateID+`","priority":20000}`)
	if got.code != 400 || !strings.HasPrefix(got.Message, "priority: ") {
		t.Errorf("%d %q", got.code, got.Message)
	}
}

func TestEnterpriseTakesThem(t *testing.T) {
	for _, tier := range []farm.Tier{farm.TierEnterprise, farm.TierEnterprisePlus} {
		c := newCloudWith(t, controller.Options{License: fixed(tier)})
		if got := c.call("POST", "/api/v1/vm", `{"vmid":"`+templateID+`","priority":1}`); got.Status != "OK" {
			t.Errorf("%s: %q", tier, got.Message)
		}
	}
}

func TestStatsHaveTheirShape(t *testing.T) {
	c := newCloud(t)
	c.call("POST", "/api/v1/vm", `{"vmid":"`+templateID+`","count":2}`)
	var got map[string]any
	deadline := time.Now().Add(time.Minute)
	for {
		if err := json.Unmarshal(c.call("GET", "/api/v1/stats", "").Body, &got); err != nil {
			t.Fatal(err)
		}
		if got["queue_depth"] == 2.0 || time.Now().After(deadline) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	for _, key := range []string{
		"average_queue_time", "tasks_per_second", "capacity", "capacity_used", "queue_depth", "oldest_wait",
		"starts_last_hour", "failures_last_hour", "terminations_last_hour", "uptime",
	} {
		if n, ok := got[key].(float64); !ok || n < 0 {
			t.Errorf("%s is %v", key, got[key])
		}
	}
	states, _ := got["instances"].(map[string]any)
	nodes, _ := got["nodes"].(map[string]any)
	if len(got) != 13 || len(states) != 9 || states["Scheduling"] != 2.0 || len(nodes) != 6 ||
		nodes["Drain Mode"] != 0.0 {
		t.Errorf("%v", got)
	}
}
