package portal_test

import (
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
)

// TestDashboardOfAnEmptyCloud: the dashboard of an empty cloud explains how to add a node.
func TestDashboardOfAnEmptyCloud(t *testing.T) {
	w := newWorld(t, nil)
	w.get("/").has(200, "First steps", "Join a node<", "buildnode join "+w.URL()+" --token-file token", "buildnode run",
		"--name my-image", "push my-image --tag v1", "optional, not ticked",
		"no schedulable nodes", "Registry storage", "!Not shown")
	w.get("/nowhere").has(404)
}

// TestDashboard: the dashboard shows the state of the cloud, with the numbers of the charts as a
// table.
func TestDashboard(t *testing.T) {
	w := newWorld(t, nil)
	w.join("worker", 2)
	w.push(debian, "debian")
	w.start(client.StartRequest{TemplateID: debian, Count: 3})
	w.await("the sums, which follow the instances", func() (bool, error) {
		stats, err := w.API.Stats(t.Context())
		return stats.Instances["Started"] == 3, err
	})
	w.get("/?range=24h").has(200, "Active nodes", ">2</a><small>of 2</small>", "Running instances", ">3</a>",
		"3 of 8, 5 free", `id="numbers"`, "No problems", "2 of 2 nodes are active.", "!First steps", "!Not shown")
	w.get("/?range=x").has(200, `href="/?range=1h" aria-current="true"`)
}

// TestCapacityByGroup: the slots of a group are counted as those of the cloud.
func TestCapacityByGroup(t *testing.T) {
	w := newWorld(t, nil)
	nodes := w.join("worker", 2)
	w.push(debian, "debian")
	group, err := w.API.CreateGroup(t.Context(), client.GroupRequest{Name: "ci"})
	if err == nil {
		err = w.API.AddNodeToGroups(t.Context(), nodes[0].NodeID, group.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.start(client.StartRequest{TemplateID: debian, GroupID: group.ID, Count: 3})
	w.await("the group's slots", func() (bool, error) {
		s, err := w.API.GroupSparklines(t.Context(), api.RangeHour)
		return err == nil && len(s.Series) == 1 && s.Series[0].Now.Slots.Running == 3, err
	})
	w.get("/").has(200, "Capacity by group", `aria-label="3 of 4 slots used"`, `>3 <span class="faint">of 4</span>`,
		`>1 <span class="faint">of 1</span>`)
}

// TestDashboardWithoutPermissions: without a login the dashboard redirects to the login.
func TestDashboardWithoutPermissions(t *testing.T) {
	w := newGuarded(t)
	w.get("/").has(303)
	w.logIn()
	w.get("/").has(200, "Join a node<")
}
