package portal_test

import (
	"testing"

	"github.com/buildyard/buildyard/client"
)

// TestHealth says that nothing is wrong, and then what is.
func TestHealth(t *testing.T) {
	w := newWorld(t, nil)
	w.get("/health").has(200, "Licence", "Running at", "without an end", "!Not looked at")
}

// TestTimelineOfALiveInstance shows what became of it so far.
func TestTimelineOfALiveInstance(t *testing.T) {
	w := newWorld(t, nil)
	w.join("worker", 1)
	w.push(debian, "debian")
	id := w.start(client.StartRequest{TemplateID: debian})[0]
	w.get("/instances/"+id).has(200, "What became of it", "Scheduling", ">now<")
}
