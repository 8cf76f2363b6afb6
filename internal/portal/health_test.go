package portal_test

import (
	"testing"

	"github.com/buildyard/buildyard/client"
)

// TestHealth: the page of a new cloud shows the license and that everything was checked.
func TestHealth(t *testing.T) {
	w := newWorld(t, nil)
	w.get("/health").has(200, "License", "Running at", "does not expire", "!Not checked")
}

// TestTimelineOfALiveInstance: the page of a running instance shows its state history so far.
func TestTimelineOfALiveInstance(t *testing.T) {
	w := newWorld(t, nil)
	w.join("worker", 1)
	w.push(debian, "debian")
	id := w.start(client.StartRequest{TemplateID: debian})[0]
	w.get("/instances/"+id).has(200, ">Timeline<", ">Waiting for a slot<", ">Running<")
}
