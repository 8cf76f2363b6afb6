package buildyard

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/buildyard/buildyard/api"
)

// mover changes everything there is in a cloud, and looks at it.
type mover struct {
	*yard
	disks     []string
	templates []string
	shapes    *shapes
	answers   atomic.Int64
	changes   atomic.Int64

	mu       sync.Mutex
	ended    map[string]bool // instances that were asked to end
	requests []string        // distributions
}

// ask makes a call. Every answer is an envelope with status 200: what goes wrong here are
// races, which are answered by a sentence.
func (m *mover) ask(
	ctx context.Context, method, path string, in map[string]any,
) (body json.RawMessage, message string) {
	raw, err := json.Marshal(in)
	if err != nil {
		m.t.Error(err)
	}
	req, err := http.NewRequestWithContext(context.WithoutCancel(ctx), method, m.service.URL()+path,
		bytes.NewReader(raw))
	if err != nil {
		m.t.Error(err)
		return nil, "-"
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		m.t.Errorf("%s %s: %v", method, path, err)
		return nil, "-"
	}
	defer resp.Body.Close()
	raw, err = io.ReadAll(resp.Body)
	var e api.Envelope[json.RawMessage]
	if err == nil {
		err = json.Unmarshal(raw, &e)
	}
	m.answers.Add(1)
	if method != http.MethodGet {
		m.changes.Add(1)
	}
	if err != nil || resp.StatusCode != http.StatusOK || e.Status == api.StatusFail && e.Message == "" ||
		e.Status == api.StatusOK && e.Message != "" {
		m.t.Errorf("%s %s answers %s %.300s (%v)", method, path, resp.Status, raw, err)
		return nil, "-"
	}
	return e.Body, e.Message
}

// publish pushes a version, and takes versions and templates back.
func (m *mover) publish(ctx context.Context, rng *rand.Rand) {
	id := m.templates[rng.IntN(len(m.templates))]
	tag := fmt.Sprintf("t+%d", rng.Uint32())
	switch rng.IntN(4) {
	case 0:
		m.ask(ctx, "DELETE", "/api/v1/registry/revert", map[string]any{"id": id, "tag": m.tags(ctx, id, 1)})
	case 1:
		gone := m.push("", tag, m.disks[2]).ID
		m.distributeTo(ctx, map[string]any{"template_id": gone})
		m.ask(ctx, "DELETE", "/api/v1/registry/vm?id="+gone, nil)
	default:
		m.push(id, tag, m.disks[rng.IntN(len(m.disks))])
	}
}

// tags returns a tag of a template that at least so many are older than; "-" when there is
// none.
func (m *mover) tags(ctx context.Context, id string, older int) string {
	body, _ := m.ask(ctx, "GET", "/api/v1/registry/vm?id="+id, nil)
	var detail api.TemplateDetail
	if json.Unmarshal(body, &detail) != nil || len(detail.Versions) <= older {
		return "-"
	}
	return detail.Versions[len(detail.Versions)-1].Tag
}

// run starts instances and ends them, at whatever they are.
func (m *mover) run(ctx context.Context, rng *rand.Rand) {
	in := map[string]any{"vmid": m.templates[rng.IntN(len(m.templates))], "count": 1 + rng.IntN(3)}
	if rng.IntN(2) == 0 {
		in["external_id"], in["name"], in["metadata"] = "http://ci/job", "n",
			map[string]any{"a": 1, "b": "x", "c": true}
	}
	body, _ := m.ask(ctx, "POST", "/api/v1/vm", in)
	var ids []string
	_ = json.Unmarshal(body, &ids)
	time.Sleep(time.Duration(rng.IntN(600)) * time.Millisecond)
	for _, id := range ids {
		if _, refused := m.ask(ctx, "DELETE", "/api/v1/vm", map[string]any{"id": id}); refused != "" &&
			refused != "Not found" {
			m.t.Errorf("termination of %s: %s", id, refused)
		}
		m.mu.Lock()
		m.ended[id] = true
		m.mu.Unlock()
	}
}

// distribute asks for distributions, takes them back, and has templates removed.
func (m *mover) distribute(ctx context.Context, rng *rand.Rand) {
	id := m.templates[rng.IntN(len(m.templates))]
	in := map[string]any{"template_id": id}
	if rng.IntN(2) == 0 {
		in["tag"] = m.tags(ctx, id, 0)
	}
	request := m.distributeTo(ctx, in)
	if request == "" { // refused: the tag was reverted concurrently
		return
	}
	time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond)
	switch rng.IntN(4) {
	case 0:
		m.ask(ctx, "DELETE", "/api/v1/registry/vm/distribute?id="+request, nil)
	case 1:
		m.ask(ctx, "DELETE", "/api/v1/registry/vm/remove", map[string]any{"id": id})
	}
}

func (m *mover) distributeTo(ctx context.Context, in map[string]any) string {
	body, refused := m.ask(ctx, "POST", "/api/v1/registry/vm/distribute", in)
	var made api.DistributeAnswer
	if refused != "" {
		if !strings.HasPrefix(refused, "No such tag ") && refused != "Not found" {
			m.t.Errorf("a distribution is refused: %s", refused)
		}
		return ""
	}
	_ = json.Unmarshal(body, &made)
	d := m.distribution(made.RequestID)
	if len(d.Status) != 6 {
		m.t.Errorf("the first answer has %d nodes", len(d.Status))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests = append(m.requests, made.RequestID)
	return made.RequestID
}

// readAll reads the lists.
func (m *mover) readAll(ctx context.Context, _ *rand.Rand) {
	m.mu.Lock()
	ended := make(map[string]bool, len(m.ended))
	for id := range m.ended {
		ended[id] = true
	}
	m.mu.Unlock()
	for path, check := range map[string]func(map[string]any) string{
		"/api/v1/vm":                     instanceElement(ended),
		"/api/v1/node":                   nodeElement,
		"/api/v1/registry/vm":            templateElement,
		"/api/v1/registry/vm?apiVer=v1":  anyElement,
		"/api/v1/registry/vm/distribute": distributionElement,
		"/api/v1/registry/vm/remove":     anyElement,
		"/api/v1/image":                  anyElement,
	} {
		body, refused := m.ask(ctx, "GET", path, nil)
		var list []map[string]any
		if err := json.Unmarshal(body, &list); err != nil || list == nil || refused != "" {
			m.t.Errorf("%s is %.200s %s (%v)", path, body, refused, err)
			continue
		}
		for _, element := range list {
			m.judge(path, element, check)
		}
	}
}

// readEach reads records one by one, which may have been removed.
func (m *mover) readEach(ctx context.Context, rng *rand.Rand) {
	m.one(ctx, "/api/v1/registry/vm?id="+m.templates[rng.IntN(len(m.templates))], detailElement)
	m.one(ctx, "/api/v1/status", anyElement)
	m.mu.Lock()
	requests := slices.Clone(m.requests)
	m.mu.Unlock()
	if len(requests) > 0 {
		m.one(ctx, "/api/v1/registry/vm/distribute?id="+requests[rng.IntN(len(requests))], distributionElement)
	}
	body, _ := m.ask(ctx, "GET", "/api/v1/vm", nil)
	var list []api.InstanceItem
	_ = json.Unmarshal(body, &list)
	for _, item := range list[:min(len(list), 3)] {
		m.one(ctx, "/api/v1/vm?id="+item.InstanceID, vmElement)
	}
}

func (m *mover) one(ctx context.Context, path string, check func(map[string]any) string) {
	body, refused := m.ask(ctx, "GET", path, nil)
	if refused == "Not found" {
		return
	}
	var element map[string]any
	if err := json.Unmarshal(body, &element); err != nil || refused != "" {
		m.t.Errorf("%s is %.200s %s (%v)", path, body, refused, err)
		return
	}
	what, _, _ := strings.Cut(path, "?")
	m.judge(what+" of one", element, check)
}

func (m *mover) judge(what string, element map[string]any, check func(map[string]any) string) {
	wrong := check(element)
	if wrong == "" {
		wrong = m.shapes.differs(what, element)
	}
	if wrong != "" {
		raw, _ := json.Marshal(element)
		m.t.Errorf("%s: %s in %.600s", what, wrong, raw)
	}
}

// settle ends everything: nothing is left, and no distribution hangs.
func (m *mover) settle() {
	ctx := context.Background()
	body, _ := m.ask(ctx, "GET", "/api/v1/vm", nil)
	var list []api.InstanceItem
	_ = json.Unmarshal(body, &list)
	for _, item := range list {
		m.ask(ctx, "DELETE", "/api/v1/vm?id="+item.InstanceID, nil)
	}
	m.await("every instance to end", func() bool {
		var left []api.InstanceItem
		m.get("/api/v1/vm", &left)
		return !slices.ContainsFunc(left, func(i api.InstanceItem) bool { return i.VM.InstanceState != "Terminated" })
	})
	m.await("every distribution to end", func() bool {
		var all []api.Distribution
		m.get("/api/v1/registry/vm/distribute", &all)
		for _, d := range all {
			for _, s := range d.Status {
				if !s.Status && s.Error == "" {
					return false
				}
			}
		}
		return len(all) > 0
	})
}
