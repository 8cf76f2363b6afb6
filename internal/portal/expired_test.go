package portal_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/client"
)

// TestExpiredLogIn: whose log-in is over is led to a new one by every page and by every change, also by
// those that go on where a part of them fails.
func TestExpiredLogIn(t *testing.T) {
	w := newGuarded(t)
	for _, path := range []string{"/instances/start", "/instances/end?chosen=a", "/nodes/drain?chosen=a", "/keys/create", "/nodes/join"} {
		w.get(path).leadsTo("/login?return=" + url.QueryEscape(path))
	}
	for path, area := range map[string]string{
		"/instances/end": "/instances", "/nodes/drain": "/nodes", "/permission-groups/edit": "/permission-groups", "/instances/start": "/instances",
	} {
		s := w.post(path, url.Values{"chosen": {"a"}, "name": {"a"}, "service": {"controller"}, "vmid": {debian}})
		s.leadsTo("/login?return=" + url.QueryEscape(area))
	}
}

// TestEndsWhatLives: all that fit are those that are not over; what has no name is told from its like.
func TestEndsWhatLives(t *testing.T) {
	w := newWorld(t, nil)
	w.join("worker", 1)
	w.push(debian, "debian")
	ids := w.start(client.StartRequest{TemplateID: debian, Count: 3})
	list := w.get("/instances").Text
	for _, id := range ids {
		if !strings.Contains(list, `aria-label="Choose `+id[len(id)-8:]+`"`) {
			t.Errorf("%s is not told from the others", id)
		}
	}
	w.post("/instances/end", url.Values{"chosen": {ids[0]}}).has(303)
	w.await("the end", func() (bool, error) {
		page, err := w.API.InstancePage(t.Context(), client.PageOptions{Filter: "state:terminated"})
		return page.Total == 1, err
	})
	w.get("/instances/end?all=1").has(200, "End 2 instances", "!"+ids[0])
	w.get("/instances/end?all=1&q=state:terminated").has(400, "left to end")
}
