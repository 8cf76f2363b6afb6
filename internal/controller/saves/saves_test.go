package saves

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/controller/record/recordtest"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

const templateID = "11111111-2222-4333-8444-555555555555"

// cloud is what saves need of other parts: one instance, and a template with two versions.
type cloud struct {
	db      record.DB
	inst    *farm.Instance
	pruned  int  // calls of PruneChunks
	surplus bool // every failed request is too many
}

func (c *cloud) Latest(_ context.Context, id string) (*farm.Instance, error) {
	if id != c.inst.ID {
		return nil, farm.NotFound()
	}
	return c.inst, nil
}

func (c *cloud) BeginTask(
	ctx context.Context, _ string, _ farm.InstanceEvent, task *farm.NodeTask, with ...store.Change,
) error {
	c.inst.Task = task
	return c.db.Store.Commit(ctx, with...)
}

func (c *cloud) ForSave(_ context.Context, id string) (api.TemplateDetail, error) {
	if !strings.EqualFold(id, templateID) {
		return api.TemplateDetail{}, farm.NotFound()
	}
	return api.TemplateDetail{
		Template: api.Template{ID: templateID, Name: "base", Arch: "amd64"},
		Versions: []api.TemplateVersion{{Tag: "v1"}, {Tag: "v2", Number: 1}},
	}, nil
}

func (c *cloud) ForSaveRevert(ctx context.Context, id string, denied error) (api.TemplateDetail, error) {
	detail, err := c.ForSave(ctx, id)
	return detail, errors.Join(err, denied)
}

func (c *cloud) StoreSaveScript(context.Context, string, []byte) error { return nil }

func (c *cloud) WithOutput(s *farm.SaveRequest, _ int) *farm.SaveRequest { return s }

func (c *cloud) PruneChunks(context.Context, *record.Term, time.Time) error {
	c.pruned++
	return nil
}

// newSaves returns the saves of a cloud with one started instance.
func newSaves(t *testing.T, limit int) (*Saves, *cloud) {
	t.Helper()
	c := &cloud{
		db: recordtest.Open(t),
		inst: &farm.Instance{
			ID: "instance", State: farm.Started, NodeID: "node", Template: farm.TemplateRef{Arch: "amd64"},
		},
	}
	return New(c.db, Options{
		Max: limit, Instances: c, Templates: c, Contents: c,
		Admit:    func(string, int) (func(), error) { return func() {}, nil },
		Response: func(context.Context, any) ([]store.Change, error) { return nil, nil },
		Surplus:  func() func(*farm.SaveRequest) bool { return func(*farm.SaveRequest) bool { return c.surplus } },
		From:     func(t time.Time) time.Time { return t },
	}), c
}

// TestCreate checks what is accepted, and the destination of what is.
func TestCreate(t *testing.T) {
	into := func(target string, edits ...func(*Request)) func(*Request) {
		return func(r *Request) {
			r.TemplateID, r.NewTemplateName = target, ""
			for _, edit := range edits {
				edit(r)
			}
		}
	}
	named := func(name string) func(*Request) { return func(r *Request) { r.NewTemplateName = name } }
	tagged := func(tag string) func(*Request) { return func(r *Request) { r.Tag = tag } }
	revert := func(tag string) func(*Request) {
		return func(r *Request) { r.RevertBeforePush, r.RevertTag = true, tag }
	}
	for _, tc := range []struct {
		name    string
		edit    func(*Request)
		message string // "": accepted
	}{
		{"new template", func(*Request) {}, ""},
		{"unknown instance", func(r *Request) { r.InstanceID = "other" }, "Not found"},
		{"unknown target", into("99999999-2222-4333-8444-555555555555"), "Not found"},
		{"target", into(templateID), ""},
		{"target and its name", into(templateID, named("base")), ""},
		{
			"target and another name", into(templateID, named("other")),
			"new_template_name other does not match target_vm_id, which has the template name base: leave one of " +
				"them out",
		},
		{"tag that exists", into(templateID, tagged("v2")), "Template base already has the tag v2"},
		{"the tag that is reverted", into(templateID, tagged("v2"), revert("")), ""},
		{"an older tag that is reverted", into(templateID, tagged("v1"), revert("v1")), ""},
		{"a newer tag that is reverted too", into(templateID, tagged("v2"), revert("v1")), ""},
		{"a tag that stays", into(templateID, tagged("v1"), revert("v2")), "Template base already has the tag v1"},
		{"unknown revert tag", into(templateID, revert("v9")), ""},
		{
			"unknown revert tag and a tag that exists", into(templateID, tagged("v2"), revert("v9")),
			"Template base already has the tag v2",
		},
		{
			"a revert tag alone", into(templateID, tagged("v2"), func(r *Request) { r.RevertTag = "v2" }),
			"Template base already has the tag v2",
		},
		{
			"a revert that is denied",
			into(templateID, revert("v1"), func(r *Request) { r.NoRevert = errors.New("denied") }),
			"denied",
		},
	} {
		s, c := newSaves(t, DefaultMax)
		r := Request{SaveOptions: farm.SaveOptions{InstanceID: c.inst.ID, Tag: "new", NewTemplateName: "saved"}}
		tc.edit(&r)
		id, err := s.Create(t.Context(), r)
		if text := fmt.Sprint(err); tc.message != "" {
			if text != tc.message || c.db.Tables.Saves.Len() != 0 {
				t.Errorf("%s: %s, %d requests; want %s", tc.name, text, c.db.Tables.Saves.Len(), tc.message)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		req, err := s.Get(t.Context(), id)
		if err != nil || req.Status != farm.SavePending || !c.inst.WorksOn(id) {
			t.Errorf("%s: request %+v, %v, task %+v", tc.name, req, err, c.inst.Task)
			continue
		}
		if isNew := r.TemplateID == ""; isNew != (req.Request.NewTemplateName != "") ||
			isNew == (req.Request.TemplateID == templateID) {
			t.Errorf("%s: saved to %s %q", tc.name, req.Request.TemplateID, req.Request.NewTemplateName)
		}
	}
}

// put writes requests.
func put(t *testing.T, db record.DB, list ...*farm.SaveRequest) {
	t.Helper()
	for _, s := range list {
		if err := db.Store.Commit(t.Context(), store.Put(db.Tables.Saves, s.ID, s, store.Any)); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.UpToDate(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestPrune removes the requests that are too old or too many; those that are pending stay.
func TestPrune(t *testing.T) {
	const most = 50
	s, c := newSaves(t, most)
	begin := c.db.Now()
	prune := func(at time.Time, want int) {
		t.Helper()
		if err := s.Prune(t.Context(), recordtest.Term(c.db), at); err != nil {
			t.Fatal(err)
		}
		if err := c.db.UpToDate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := c.db.Tables.Saves.Len(); n != want {
			t.Errorf("%d requests after %s, want %d", n, at.Sub(begin), want)
		}
	}
	for i := range most + 15 {
		put(t, c.db, &farm.SaveRequest{ID: fmt.Sprintf("%08d", i), Status: farm.SaveSucceeded, Updated: begin})
	}
	prune(begin, most)
	if list := s.List("", 1, nil); len(list) != 1 || list[0].ID != "00000015" {
		t.Errorf("the oldest request is %+v", list)
	}
	if page := s.List("00000020", 2, nil); len(page) != 2 || page[0].ID != "00000021" {
		t.Errorf("page = %+v", page)
	}
	put(t, c.db, &farm.SaveRequest{ID: "00000015", Status: farm.SavePending, Updated: begin})
	s.o.From = func(t time.Time) time.Time { return t.Add(time.Hour) } // maintenance mode in between
	prune(begin.Add(Retention), most)
	prune(begin.Add(Retention+time.Hour), 1)
	put(t, c.db, &farm.SaveRequest{ID: "failed", Status: farm.SaveError, Updated: begin.Add(Retention)})
	c.surplus = true
	prune(begin.Add(Retention+time.Hour), 1)
	if c.pruned != 4 {
		t.Errorf("contents were pruned %d times", c.pruned)
	}
}

// TestEndPending ends the requests on which no instance works.
func TestEndPending(t *testing.T) {
	s, c := newSaves(t, DefaultMax)
	works := &farm.Instance{ID: "works", State: farm.Pushing, Task: &farm.NodeTask{ID: "a", Kind: farm.TaskSave}}
	if err := c.db.Store.Commit(t.Context(), store.Put(c.db.Tables.Instances, works.ID, works, store.Any)); err != nil {
		t.Fatal(err)
	}
	for id, inst := range map[string]string{"a": "works", "b": "works", "c": "removed"} {
		put(t, c.db, &farm.SaveRequest{
			ID: id, Status: farm.SavePending, Request: farm.SaveOptions{InstanceID: inst},
		})
	}
	if err := s.EndPending(t.Context(), recordtest.Term(c.db), c.db.Now()); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{
		"a": "",
		"b": "The instance is Pushing and is no longer being saved",
		"c": "The instance was terminated before the save had ended",
	} {
		if req, err := s.Get(t.Context(), id); err != nil || req.ErrorMessage != want {
			t.Errorf("request %s: %+v, %v; want %q", id, req, err, want)
		}
	}
}

// TestHypervisor: what the node cannot do is refused before anything is written, or stops the guest where
// the settings allow it.
func TestHypervisor(t *testing.T) {
	const running = " cannot save a running guest: macOS ties its state to the Mac that made it; save without suspend"
	for name, tc := range map[string]struct {
		abilities string
		os        string
		suspend   bool
		fallback  bool
		message   string // "": accepted
		suspends  bool   // what was accepted
	}{
		"a former agent":         {"bridge", "", true, false, "", true},
		"a guest of QEMU":        {"pc save suspend", "linux", true, false, "", true},
		"a stopped Mac":          {"macos save", "macos", false, false, "", false},
		"a running Mac":          {"macos save", "macos", true, false, "tart" + running, false},
		"a running Mac, stopped": {"macos save", "macos", true, true, "", false},
		"one of two drivers":     {"macos pc save suspend", "macos", true, false, "Node mini" + running, false},
		"the other driver":       {"macos pc save suspend", "linux", true, false, "", true},
		"QEMU without suspend": {
			"pc save", "linux", true, false,
			"tart cannot save a running guest on this host; save without suspend", false,
		},
		"anka next to QEMU": {
			"anka-images macos pc save suspend", "macos", false, true,
			"Anka cannot save VMs: change the VM of the template with anka, and import it again", false,
		},
		"no save": {
			"macos", "macos", false, true, "This node's hypervisor (tart) cannot save VMs", false,
		},
		"a guest of QEMU, stopped": {"pc save suspend", "linux", true, true, "", true},
	} {
		s, c := newSaves(t, DefaultMax)
		s.o.StopFallback = tc.fallback
		c.inst.NodeName, c.inst.Template.OS = "mini", tc.os
		c.inst.Template.AnkaImage = strings.HasPrefix(tc.abilities, farm.AbilityAnkaImages)
		info := &farm.NodeInfo{
			NodeID: "node", Abilities: strings.Fields(tc.abilities), Hypervisor: farm.Hypervisor{Driver: "tart"},
		}
		if err := c.db.Store.Commit(t.Context(), store.Put(c.db.Tables.Infos, "node", info, store.Any)); err != nil {
			t.Fatal(err)
		}
		id, err := s.Create(t.Context(), Request{SaveOptions: farm.SaveOptions{
			InstanceID: c.inst.ID, Tag: "new", NewTemplateName: "saved", Suspend: tc.suspend, SanityTest: tc.suspend,
		}})
		if tc.message != "" {
			if fmt.Sprint(err) != tc.message || farm.CodeOf(err) != farm.CodeRefused || c.inst.Task != nil {
				t.Errorf("%s: %v, want %q", name, err, tc.message)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		req, err := s.Get(t.Context(), id)
		if err != nil || req.Request.Suspend != tc.suspends || req.Request.SanityTest != tc.suspends {
			t.Errorf("%s: %+v, %v", name, req, err)
		}
	}
}
