package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/test/rig"
)

// fake is a controller with one instance, whose node writes a log.
type fake struct {
	t    *testing.T
	log  string
	boot time.Duration // of QEMU and the guest
	fail string        // why the instance ends in Error; "": it starts
	save api.SaveImage // the record of every save

	mu    sync.Mutex // guards the fields below
	calls []string   // method and path
	looks int
	ended bool
	start time.Time // of QEMU
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	call := r.Method + " " + r.URL.Path
	f.calls = append(f.calls, call)
	answer := api.Envelope[any]{Status: api.StatusOK}
	switch {
	case call == "POST /api/v1/vm":
		answer.Body = []string{"vm1"}
	case call == "GET /api/v1/vm" && f.ended:
		answer.Status, answer.Message = api.StatusFail, "Not found"
	case call == "GET /api/v1/vm":
		answer.Body = f.look()
	case call == "DELETE /api/v1/vm":
		f.ended = true
	case call == "POST /api/v1/image":
		answer.Body, f.ended = api.SaveImageAnswer{RequestID: "save1"}, true
		f.say("STOP", time.Unix(100, 0))
		f.say("RESUME", time.Unix(100, int64(70*time.Millisecond)))
		f.write(`{"msg":"VM saved","instance_id":"vm1","pause":60000000}`)
	case call == "GET /api/v1/image":
		answer.Body = f.save
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		f.t.Error(err)
	}
}

// look starts QEMU at the first look; the guest is ready at the third.
func (f *fake) look() api.Instance {
	f.looks++
	inst := api.Instance{InstanceID: "vm1", InstanceState: "Scheduling"}
	switch {
	case f.looks == 1:
		f.start = time.Now()
	case f.looks == 3 && f.fail != "":
		inst.InstanceState, inst.Message = "Error", f.fail
	case f.looks == 3:
		f.say("VSERPORT_CHANGE", f.start.Add(f.boot))
		inst.InstanceState, inst.VMInfo = "Started", &api.VMInfo{StartDate: f.start}
	}
	return inst
}

func (f *fake) say(name string, at time.Time) {
	f.write(fmt.Sprintf(`{"vm":"vm1","event":%q,"at":%q,"port":"qga0","open":true}`, name, at.Format(time.RFC3339Nano)))
}

func (f *fake) write(line string) {
	file, err := os.OpenFile(f.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = file.WriteString(line + "\n")
		_ = file.Close()
	}
	if err != nil {
		f.t.Error(err)
	}
}

// newFake returns the stage of a fake controller. Its programs are two that sleep.
func newFake(t *testing.T, f *fake) *stage {
	t.Helper()
	dir := t.TempDir()
	f.t, f.log = t, filepath.Join(dir, "events")
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	s := &stage{dir: dir, client: rig.NewClient(server.URL), template: "t1"}
	s.cloud = &rig.Cloud{Process: rig.NewProcess(dir, "cloud", "sleep", "600")}
	s.node = rig.NewProcess(dir, "node", "sleep", "600")
	for _, p := range []*rig.Process{s.cloud.Process, s.node} {
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.End() })
	}
	s.node.Log = f.log
	return s
}

func TestStart(t *testing.T) {
	s := newFake(t, &fake{boot: time.Millisecond})
	st, err := s.start(t.Context(), "v1")
	if err != nil {
		t.Fatal(err)
	}
	if st.id != "vm1" || st.boot != time.Millisecond || st.whole < 2*look || st.whole-st.boot != st.own() ||
		(st.before+st.boot+st.after-st.whole).Abs() > time.Millisecond {
		t.Errorf("the start is %+v", st)
	}
}

// TestStartFails: a start that cannot be measured is an error, and its instance is ended.
func TestStartFails(t *testing.T) {
	for want, f := range map[string]*fake{
		"the instance failed: no room": {fail: "no room"},
		"contradict":                   {boot: time.Hour},
	} {
		s := newFake(t, f)
		if st, err := s.start(t.Context(), "v1"); err == nil || !strings.Contains(err.Error(), want) || st.id != "" {
			t.Errorf("%s: started %+v, %v", want, st, err)
		}
		if !f.ended {
			t.Errorf("%s: the instance was left", want)
		}
	}
}

func TestSave(t *testing.T) {
	s := newFake(t, &fake{save: api.SaveImage{Status: "done"}})
	if d, err := s.save(t.Context(), "vm1", "v2", "true\n"); err != nil || d.longer() != 70*time.Millisecond {
		t.Errorf("the guest stood still for %v, %v", d, err)
	}
	s = newFake(t, &fake{save: api.SaveImage{Status: "error", Error: &api.SaveImageError{Message: "disk full"}}})
	if _, err := s.save(t.Context(), "vm1", "v2", ""); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("a failed save gives %v", err)
	}
}

// TestAwaitSeesTheEndOfPrograms: await does not wait for a cloud that has ended.
func TestAwaitSeesTheEndOfPrograms(t *testing.T) {
	s := newFake(t, &fake{})
	if err := s.node.Kill(); err != nil {
		t.Fatal(err)
	}
	err := s.await(t.Context(), time.Minute, look, "nothing", func() (bool, error) { return false, nil })
	if err == nil || !strings.Contains(err.Error(), "node has ended") {
		t.Errorf("waiting gave %v", err)
	}
	s = newFake(t, &fake{})
	err = s.await(t.Context(), 3*look, look, "the moon", func() (bool, error) { return false, nil })
	if err == nil || !strings.Contains(err.Error(), "for the moon") {
		t.Errorf("waiting gave %v", err)
	}
}
