package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/test/rig"
)

// receiver is the endpoint that a cloud pushes its events to. It is away at first.
type receiver struct {
	address string
	server  *http.Server

	mu      sync.Mutex
	refused int
	taken   []map[string]any
}

// refusals is how many pushes the receiver refuses before it takes one.
const refusals = 3

func openReceiver(ctx context.Context) (*receiver, error) {
	var lc net.ListenConfig
	socket, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &receiver{address: "http://" + socket.Addr().String() + "/events"}
	r.server = &http.Server{Handler: r, ReadHeaderTimeout: 10 * time.Second, ErrorLog: quiet}
	go func() { _ = r.server.Serve(socket) }()
	return r, nil
}

// ServeHTTP takes one event.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	raw, err := io.ReadAll(io.LimitReader(req.Body, bulk))
	var event map[string]any
	if err == nil {
		err = json.Unmarshal(raw, &event)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refused < refusals || err != nil || req.Method != http.MethodPost {
		r.refused++
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	r.taken = append(r.taken, event)
}

// names returns the events about the VM of an instance, in the order in which they came.
func (r *receiver) names(id string) (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.taken {
		if name, _ := e["name"].(string); e["instance_id"] == id && e["sub_type"] == "vmAction" &&
			!slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// undocumented lists the events that came with other keys than their reference has.
func (r *receiver) undocumented() (faults []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, event := range r.taken {
		if err := documentedKeys(event); err != nil && !slices.Contains(faults, err.Error()) {
			faults = append(faults, err.Error())
		}
	}
	return faults
}

// pushedEvents follows an instance at the receiver, and reads the file of events.
func pushedEvents(ctx context.Context, p *caseRunner) error {
	c := p.stage.clouds["split"]
	id, err := c.start(ctx, "node_work", "Started")
	if err != nil {
		return err
	}
	if err := c.caller().Send(ctx, "DELETE", "/api/v1/vm", map[string]string{"id": id}, nil); err != nil {
		return err
	}
	want := []string{"StartVM", "VMStarted", "TerminateVM", "VMTerminated"}
	for deadline := time.Now().Add(patience); !slices.Equal(p.stage.receiver.names(id), want); {
		if time.Now().After(deadline) {
			return fmt.Errorf("pushed were %v, and %v was expected", p.stage.receiver.names(id), want)
		}
		if !rig.Pause(ctx, pause) {
			return ctx.Err()
		}
	}
	p.stage.receiver.mu.Lock()
	refused := p.stage.receiver.refused
	p.stage.receiver.mu.Unlock()
	if refused < refusals {
		return fmt.Errorf("%d pushes were refused, and not tried again", refused)
	}
	return eventFile(filepath.Join(c.base, "files", "central-logs", "event", "event.log"))
}

// eventFile reads a file of events: its head, and an object with sorted keys a line.
func eventFile(file string) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	head, rest, _ := strings.Cut(string(raw), "\n")
	if _, err := time.Parse("Log file created at: 2006/01/02 15:04:05", head); err != nil {
		return err
	}
	n := 0
	for line := range strings.Lines(rest) {
		var event map[string]any
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			return fmt.Errorf("event.log: %q: %w", short(line, 200), err)
		}
		sorted, err := json.Marshal(event)
		if err != nil || !bytes.Equal(sorted, []byte(strings.TrimSuffix(line, "\n"))) {
			return fmt.Errorf("event.log: the keys of %q are not sorted", short(line, 200))
		}
		n++
	}
	if n < 4 {
		return fmt.Errorf("event.log has %d events", n)
	}
	return nil
}

// commonKeys are the keys that every event has; callerKeys those of a change that an authenticated
// caller made.
var (
	commonKeys = []string{"name", "type", "sub_type", "time", "machineName", "instance_id"}
	callerKeys = []string{"user", "key_id", "address", "request", "for_user"}
)

// documentedKeys checks that an event has the keys of its reference, and no others.
func documentedKeys(event map[string]any) error {
	list := farm.Events()
	i := slices.IndexFunc(list, func(e farm.EventInfo) bool { return string(e.Name) == event["name"] })
	if i < 0 {
		return fmt.Errorf("event %v is not documented", event["name"])
	}

	must := slices.Concat(commonKeys, list[i].RequiredKeys)
	may := slices.Concat(must, callerKeys, list[i].OptionalKeys)
	for _, key := range must {
		if _, ok := event[key]; !ok {
			return fmt.Errorf("event %v has no %s", event["name"], key)
		}
	}
	for key := range event {
		if !slices.Contains(may, key) {
			return fmt.Errorf("event %v has %s, which is not documented", event["name"], key)
		}
	}
	return nil
}
