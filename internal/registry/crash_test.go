package registry

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/layout"
	"github.com/buildyard/buildyard/internal/tools/crashfs"
	"github.com/buildyard/buildyard/internal/tools/failpoint"
)

// The crash test runs the operations below over a file layer that records what was synced. Before every step
// that changes the disk, and after every operation, it copies the state that a crash may leave: after a power
// loss and after a kill. It opens and checks each such storage, and completes the remaining operations.

// crashAll is set in the environment to carry on from every state.
const crashAll = "BUILDYARD_TEST_ALL"

func TestMain(m *testing.M) {
	warm()
	os.Exit(m.Run())
}

// warm makes the shared decoder before a test with a fake clock does: its channels would be bound to that test.
func warm() {
	c := makeContent("disk", api.FileDisk, "warm")
	if _, err := blob.DecodeFrame(c.index.Frame(0), c.stored, nil); err != nil {
		panic(err)
	}
}

// operations change template idA; want is its state after each. They are repeatable.
var operations = []struct {
	name string
	want string
	do   func(*Registry) error
}{
	{"push of a new template", "amd64: v1", func(r *Registry) error {
		return crashPush(r, "v1", nil, makeContent("disk", api.FileDisk, "one"),
			makeContent("memory", api.FileState, "state"))
	}},
	{"push of the next tag", "amd64: v1 v2", func(r *Registry) error {
		return crashPush(r, "v2", nil, makeContent("disk", api.FileDisk, "two"))
	}},
	{"set arch", "arm64: v1 v2", func(r *Registry) error { return r.SetArch(context.Background(), idA, "arm64") }},
	{"push with revert", "arm64: v1 v3", func(r *Registry) error {
		return crashPush(r, "v3", &api.PushRevert{Tag: "v2"}, makeContent("disk", api.FileDisk, "three"))
	}},
	{"revert", "arm64: ", func(r *Registry) error {
		return r.Revert(context.Background(), VersionRef{ID: idA, Tag: "v1"})
	}},
	{"push of known content", "arm64: v4", func(r *Registry) error {
		return crashPush(r, "v4", nil, makeContent("disk", api.FileDisk, "one"))
	}},
	{"delete", "deleted", func(r *Registry) error { return r.Delete(context.Background(), idA) }},
	{"push after the delete", "amd64: v1", func(r *Registry) error {
		return crashPush(r, "v1", nil, makeContent("disk", api.FileDisk, "one"))
	}},
	{"push of a disk", "amd64: v1 v5", func(r *Registry) error { return crashPush(r, "v5", nil, crashChain[0]) }},
	{"push of what changed", "amd64: v1 v5 v6", func(r *Registry) error {
		return crashPush(r, "v6", nil, crashChain[1])
	}},
	{"consolidate", "amd64: v1 v5 v6", func(r *Registry) error {
		_, err := r.SquashChains(context.Background())
		return err
	}},
	{"collect", "amd64: v1 v5 v6", crashCollect},
	{"take back what was collected", "amd64: v1 v5 v6 v7", func(r *Registry) error {
		c := makeContent("disk", api.FileDisk, "three")
		req := request(idA, "v7", c)
		req.ResumeKey, req.Files[0].Root = "crash v7", c.root()
		_, err := push(r, req, c)
		return err
	}},
	{"revert of a chain", "amd64: v1", func(r *Registry) error {
		return r.Revert(context.Background(), VersionRef{ID: idA, Tag: "v5"})
	}},
	{"collect and empty the trash", "amd64: v1", func(r *Registry) error {
		_, err := r.GC(context.Background(), GCOptions{EmptyTrash: true})
		return err
	}},
	{"pull", "amd64: v1", func(r *Registry) error {
		e, err := r.findTemplate(idA)
		if err != nil {
			return err
		}
		e.pulls.mu.Lock()
		e.pulls.logLines, e.pulls.lastByContent = defaultCompactPullsAfter, map[string]int64{}
		e.pulls.mu.Unlock()
		r.recordPull(e, &e.template.Versions[0])
		return nil
	}},
	{"send what a boot read", "amd64: v1", func(r *Registry) error {
		m, err := r.PeekManifest(context.Background(), VersionRef{ID: idA})
		if err != nil {
			return err
		}
		return r.AddBootTrace("node", api.BootTrace{ID: idA, ContentID: m.ContentID, Files: map[string]api.FileTrace{
			"disk": {Roots: []string{m.Files[0].Layers[0].Root}, Frames: []int{0}},
		}})
	}},
	{"attach a scan", "amd64 scan 1: v1", func(r *Registry) error {
		return attachScan(r, VersionRef{ID: idA}, summaryOf(1), `{"one":1}`)
	}},
	{"attach another scan", "amd64 scan 2: v1", func(r *Registry) error {
		return attachScan(r, VersionRef{ID: idA}, summaryOf(2), `{"two":2}`)
	}},
	{"remove the scan", "amd64: v1", func(r *Registry) error {
		return r.RemoveScan(context.Background(), VersionRef{ID: idA})
	}},
	{"a push that is aborted", "amd64: v1", func(r *Registry) error {
		s, err := r.Negotiate(context.Background(), request(idA, "never", makeContent("disk", api.FileDisk, "never")))
		if err != nil {
			return err
		}
		return r.AbortPush(context.Background(), s.Session)
	}},
	{"scrub", "amd64: v1", func(r *Registry) error {
		r.saveScrub()
		return nil
	}},
	{"make and give up the reserve", "amd64: v1", func(r *Registry) error {
		if err := r.dir.CreateReserve(1000); err != nil {
			return err
		}
		_, err := r.dir.RemoveReserve()
		return err
	}},
	{"repair", "amd64: v1", crashRepair},
}

// crashChain is a disk and what changed of it: all, so that the chain is put together.
var crashChain = func() []content {
	g := newGrown(99)
	one := g.encode(nil, func(o blob.EncodeOptions, sink blob.FrameSink) (*blob.Index, error) {
		return blob.Encode(context.Background(),
			source{bytes.NewReader(slices.Repeat([]byte{1, 2, 3, 4}, len(g.data)/4))}, o, sink)
	})
	old := slices.Repeat([]byte{1, 2, 3, 4}, len(g.data)/4)
	two := g.encode(nil, func(o blob.EncodeOptions, sink blob.FrameSink) (*blob.Index, error) {
		o.Parent = g.tip
		changes := blob.Compare(source{bytes.NewReader(slices.Repeat([]byte{5, 6, 7, 8}, len(g.data)/4))},
			source{bytes.NewReader(old)}, o.Size)
		return blob.EncodeChanges(context.Background(), changes, o, sink)
	})
	return []content{one, two}
}()

// crashCollect collects like days of collections would: layers unreferenced at the first one are removed by the
// second.
func crashCollect(r *Registry) error {
	r.mu.Lock()
	for _, l := range r.storedLayers {
		l.unreferencedSince = time.Unix(1, 0)
	}
	r.mu.Unlock()
	return r.CollectGarbage(context.Background())
}

// crashRepair repairs a storage with a template that cannot be read and one that is not there, which it makes.
func crashRepair(r *Registry) error {
	broken, hollow := idB, "dddddddd-0000-4000-8000-000000000004"
	for id, text := range map[string]string{broken: "{", hollow: ""} {
		if err := r.dir.Root().MkdirAll("vm_dir/"+id, 0o755); err != nil {
			return err
		}
		if text != "" {
			if err := r.dir.Root().WriteFile("vm_dir/"+id+"/template.json", []byte(text), 0o644); err != nil {
				return err
			}
		}
	}
	_, damaged, err := r.dir.Templates()
	if err != nil {
		return err
	}
	r.metadataMu.Lock()
	snap := *r.snapshot.Load()
	snap.damaged = damaged
	r.snapshot.Store(&snap)
	r.metadataMu.Unlock()
	if _, err = r.Repair(context.Background(), CheckOptions{}); err != nil {
		return err
	}
	return r.dir.Root().RemoveAll(layout.QuarantineDir)
}

func crashPush(r *Registry, tag string, revert *api.PushRevert, files ...content) error {
	req := request(idA, tag, files...)
	req.ResumeKey, req.Revert, req.NVRAM = "crash "+tag, revert, []byte("nv")
	if tag == "v1" {
		req.Arch = "amd64"
	}
	_, err := push(r, req, files...)
	return err
}

func crashState(r *Registry) string {
	d, err := r.TemplateDetail(idA)
	switch {
	case err != nil && r.deletedTemplates.has(idA):
		return "deleted"
	case err != nil:
		return "none"
	}
	scan := ""
	if s := d.Versions[max(0, len(d.Versions)-1):]; len(s) > 0 && s[0].Scan != nil {
		scan = fmt.Sprintf(" scan %d", s[0].Scan.Counts.Critical)
		if whole, err := r.OpenScan(VersionRef{ID: idA}); err != nil {
			return err.Error()
		} else if _, err := io.Copy(io.Discard, whole.Report); errors.Join(err, whole.Close()) != nil {
			return "a report that is cut"
		}
	}
	return d.Arch + scan + ": " + tags(r, idA)
}

// unmet are the points that no operation of the crash test passes, and why.
var unmet = map[string]string{
	"layer.remove": "two pushes complete one layer in the same moment: TestConcurrentPushesOfOneTag and the race " +
		"test do",
}

// crash is the state that a crash left.
type crash struct {
	base  string
	where string // the step before which it happened, or an operation
	keep  crashfs.Keep
	done  int  // operations that had returned
	begun bool // the next one had begun
	whole bool // continue to the end of all operations
}

// crashWalk records the states after a crash at every step.
type crashWalk struct {
	t    *testing.T
	dir  string
	tree *crashfs.Tree
	out  chan<- crash
	all  bool // see crashAll

	mu     sync.Mutex // guards the fields below
	done   int
	points map[string]int // name of a step -> how often it was met
	seen   map[string]bool
	count  int // states
	judged int // of them
}

// step is called before a step.
func (w *crashWalk) step(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.points[name]++
	// Each point is carried on from once, in one or another of the operations that come to it.
	w.take(crash{where: "before " + name, done: w.done, begun: true, whole: w.points[name] == 1+len(name)%3})
}

// end is called when an operation has returned: it is acknowledged.
func (w *crashWalk) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done++
	w.take(crash{where: "after " + operations[w.done-1].name, done: w.done})
}

// take writes the states that a crash may leave now, without those that were seen: all of them, or a random
// third and those that the test continues from. The caller holds mu.
func (w *crashWalk) take(c crash) {
	whole := c.whole
	for i, keep := range crashfs.Keeps {
		state, err := w.tree.Crash(keep)
		if err != nil {
			w.t.Error(err)
			return
		}
		w.count++
		c.whole = w.all || whole && i == len(w.points)%len(crashfs.Keeps)
		key := fmt.Sprint(c.done, c.begun, state.Sum)
		if w.seen[key] && !c.whole {
			continue
		}
		w.seen[key] = true
		if !w.all && !c.whole && rand.IntN(3) > 0 {
			continue
		}
		w.judged++
		c.keep, c.base = keep, filepath.Join(w.dir, strconv.Itoa(w.count))
		if err := state.Write(c.base); err != nil {
			w.t.Error(err)
			return
		}
		w.out <- c
	}
}

// TestCrashAtEveryPoint crashes before every step and after every operation. The target "registry" of
// test/fault kills the real program under the real client.
func TestCrashAtEveryPoint(t *testing.T) {
	if testing.Short() {
		t.Skip("opens a storage for every step")
	}
	dir := quickDir(t)
	base := filepath.Join(dir, "storage")
	must(t, os.Mkdir(base, 0o750))
	tree, err := crashfs.Watch(base)
	must(t, err)
	t.Cleanup(func() { _ = tree.Close() })
	states := make(chan crash, 4)
	w := &crashWalk{
		t: t, dir: dir, tree: tree, out: states, all: os.Getenv(crashAll) != "", points: map[string]int{},
		seen: map[string]bool{},
	}
	var judges sync.WaitGroup
	for range 2 {
		judges.Go(func() {
			for c := range states {
				if err := c.judge(); err != nil {
					t.Errorf("crash %s, %s, %d operations done: %v", c.where, c.keep, c.done, err)
				}
				_ = os.RemoveAll(c.base)
			}
		})
	}
	crashRun(t, base, w)
	close(states)
	judges.Wait()
	points, err := failpoint.Read("../..")
	must(t, err)
	for _, p := range points {
		if w.points[p] == 0 && unmet[p] == "" {
			t.Errorf("no operation comes to %s", p)
		}
	}
	t.Logf("%d points, %d states, %d of them judged", len(points), w.count, w.judged)
}

// crashRun carries out all operations.
func crashRun(t *testing.T, base string, w *crashWalk) {
	t.Helper()
	r, err := Open(t.Context(), Options{Base: base, Hooks: layout.Hooks{Step: w.step, Sync: w.tree.Sync}})
	if err != nil {
		t.Error(err)
		return
	}
	defer r.Close()
	for _, op := range operations {
		if err := op.do(r); err != nil {
			t.Errorf("%s: %v", op.name, err)
			return
		}
		w.end()
	}
}

// judge opens the storage after a crash and checks three conditions: acknowledged changes exist, the
// interrupted operation happened completely or not at all, and the remaining operations succeed.
func (c crash) judge() error {
	clock := newClock()
	if _, err := os.Stat(c.base + "/vm_dir"); err == nil {
		report, err := CheckStorage(context.Background(), c.base, CheckOptions{Deep: true})
		if err != nil || slices.ContainsFunc(report.Findings,
			func(f api.RegistryFinding) bool { return f.Loss && f.Template != idB }) {
			return fmt.Errorf("check: %+v: %w", report.Findings, err)
		}
	}
	nothing := func(*os.File) error { return nil } // it is synced no more
	r, err := Open(context.Background(), Options{Base: c.base, Now: clock.Now, Hooks: layout.Hooks{Sync: nothing}})
	if err != nil {
		return err
	}
	defer r.Close()
	before := "none"
	if c.done > 0 {
		before = operations[c.done-1].want
	}
	state := crashState(r)
	if state != before && !(c.begun && state == operations[c.done].want) {
		return fmt.Errorf("state %q, expected %q or, when it was begun, the next one", state, before)
	}
	if c.done >= len(operations)-1 { // the repair breaks a template itself
		if _, err := r.Repair(context.Background(), CheckOptions{}); err != nil {
			return err
		}
	}
	if err := verifyAll(r); err != nil || !c.whole {
		return err
	}
	return c.goOn(r, clock, state == before)
}

// goOn completes the operations, beginning with the interrupted one, which is repeated if needed.
func (c crash) goOn(r *Registry, clock *clock, repeat bool) error {
	next := c.done
	if !repeat {
		next++
	}
	for i := next; i < len(operations); i++ {
		if err := operations[i].do(r); err != nil {
			return fmt.Errorf("resume %s: %w", operations[i].name, err)
		}
	}
	if got := crashState(r); got != operations[len(operations)-1].want {
		return fmt.Errorf("end state %q", got)
	}
	if err := verifyAll(r); err != nil {
		return err
	}
	if report, err := r.Check(context.Background(), CheckOptions{Deep: true}); err != nil || len(report.Findings) > 0 {
		return fmt.Errorf("check at the end: %+v: %w", report.Findings, err)
	}
	return judgeLeftovers(c.base, r, clock)
}

// judgeLeftovers collects for some days: afterwards the store contains only what the template needs.
func judgeLeftovers(base string, r *Registry, clock *clock) error {
	for range 5 {
		clock.add(26 * time.Hour)
		if err := r.CollectGarbage(context.Background()); err != nil {
			return err
		}
	}
	m, err := r.PeekManifest(context.Background(), VersionRef{ID: idA})
	if err != nil {
		return err
	}
	var left []string
	for _, dir := range []string{"images_dir", "state_file_dir", "upload_dir", "trash_dir", "vm_dir/" +
		idA, "vm_dir/" + idA + "/0", "vm_dir/" + idA + "/.traces"} {
		entries, err := os.ReadDir(base + "/" + dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			left = append(left, dir+"/"+e.Name())
		}
	}
	want := []string{
		"images_dir/" + makeContent("disk", api.FileDisk, "one").root() + ".ank",
		"vm_dir/" + idA + "/.traces", "vm_dir/" + idA + "/0", "vm_dir/" + idA + "/pulls.log",
		"vm_dir/" + idA + "/template.json",
		"vm_dir/" + idA + "/0/" + idA + ".yaml", "vm_dir/" + idA + "/0/content_id", "vm_dir/" + idA + "/0/images",
		"vm_dir/" + idA + "/0/nvram", "vm_dir/" + idA + "/0/state_files",
		"vm_dir/" + idA + "/.traces/" + m.ContentID + ".json",
	}
	if strings.Join(left, "\n") != strings.Join(want, "\n") {
		return fmt.Errorf("left on disk:\n%s\nexpected:\n%s", strings.Join(left, "\n"), strings.Join(want, "\n"))
	}
	return nil
}

// TestCrashLosesUnsyncedParts: parts whose bytes were lost in a power cut are detected at the commit and sent
// again.
func TestCrashLosesUnsyncedParts(t *testing.T) {
	base := t.TempDir()
	r := open(t, base, newClock())
	a := makeContent("disk", api.FileDisk, "a")
	req := request(idA, "v1", a)
	req.ResumeKey = "key"
	s, err := r.Negotiate(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	roots, err := send(r, s, []content{a})
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	part := base + "/upload_dir/" + s.Session + "/0.part"
	if err := os.WriteFile(part, make([]byte, len(a.stored)), 0o644); err != nil {
		t.Fatal(err)
	}
	// The map was truncated within an entry, too.
	m, err := os.OpenFile(base+"/upload_dir/"+s.Session+"/0.map", os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriter(m)
	_, _ = w.WriteString("\x00\x00\x00\x00\x00\x00\x00\x00BYPART1")
	if err := errors.Join(w.Flush(), m.Close()); err != nil {
		t.Fatal(err)
	}
	r = open(t, base, newClock())
	if _, err := r.CommitPush(t.Context(), s.Session,
		api.PushCommit{Roots: roots}); farm.CodeOf(err) != farm.CodeConflict {
		t.Fatalf("commit of lost bytes: %v", err)
	}
	mustPush(t, r, req, a)
	if err := verifyAll(r); err != nil {
		t.Fatal(err)
	}
	if len(r.allSessions()) != 1 {
		t.Fatal("the push did not go on in its session")
	}
}
