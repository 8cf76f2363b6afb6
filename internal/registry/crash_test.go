package registry

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/layout"
	"github.com/buildyard/buildyard/internal/tools/failpoint"
)

// The crash test runs the same operations in child processes. Each child kills itself with SIGKILL before the
// n-th step that changes the disk; then the store is opened and judged, and the operations are carried to their end.

const (
	crashBase = "REGISTRY_CRASH_BASE"
	crashStep = "REGISTRY_CRASH_STEP"
)

func TestMain(m *testing.M) {
	if base := os.Getenv(crashBase); base != "" {
		crashChild(base)
		return
	}
	warm()
	os.Exit(m.Run())
}

// warm makes the shared decoder before a test with a clock of its own does: its channels would be bound to that.
func warm() {
	c := makeContent("disk", api.FileDisk, "warm")
	if _, err := blob.Unpack(c.index.Frame(0), c.stored, nil); err != nil {
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
		return crashPush(r, "v1", nil, makeContent("disk", api.FileDisk, "one"), makeContent("memory", api.FileState, "state"))
	}},
	{"push of the next tag", "amd64: v1 v2", func(r *Registry) error {
		return crashPush(r, "v2", nil, makeContent("disk", api.FileDisk, "two"))
	}},
	{"set arch", "arm64: v1 v2", func(r *Registry) error { return r.SetArch(context.Background(), idA, "arm64") }},
	{"push with revert", "arm64: v1 v3", func(r *Registry) error {
		return crashPush(r, "v3", &api.PushRevert{Tag: "v2"}, makeContent("disk", api.FileDisk, "three"))
	}},
	{"revert", "arm64: ", func(r *Registry) error { return r.Revert(context.Background(), Ref{ID: idA, Tag: "v1"}) }},
	{"push of known content", "arm64: v4", func(r *Registry) error {
		return crashPush(r, "v4", nil, makeContent("disk", api.FileDisk, "one"))
	}},
	{"delete", "none", func(r *Registry) error { return r.Delete(context.Background(), idA) }},
	{"push after the delete", "amd64: v1", func(r *Registry) error {
		return crashPush(r, "v1", nil, makeContent("disk", api.FileDisk, "one"))
	}},
	{"push of a disk", "amd64: v1 v5", func(r *Registry) error { return crashPush(r, "v5", nil, crashChain[0]) }},
	{"push of what changed", "amd64: v1 v5 v6", func(r *Registry) error { return crashPush(r, "v6", nil, crashChain[1]) }},
	{"consolidate", "amd64: v1 v5 v6", func(r *Registry) error {
		_, err := r.Consolidate(context.Background())
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
	{"revert of a chain", "amd64: v1", func(r *Registry) error { return r.Revert(context.Background(), Ref{ID: idA, Tag: "v5"}) }},
	{"collect and empty the trash", "amd64: v1", func(r *Registry) error {
		_, err := r.GC(context.Background(), GCOptions{EmptyTrash: true})
		return err
	}},
	{"pull", "amd64: v1", func(r *Registry) error {
		e, err := r.lookup(idA)
		if err != nil {
			return err
		}
		e.pulls.mu.Lock()
		e.pulls.lines, e.pulls.last = foldPulls, map[string]int64{}
		e.pulls.mu.Unlock()
		r.recordPull(e, &e.t.Versions[0])
		return nil
	}},
	{"attach a scan", "amd64 scan 1: v1", func(r *Registry) error { return attachScan(r, Ref{ID: idA}, summaryOf(1), `{"one":1}`) }},
	{"attach another scan", "amd64 scan 2: v1", func(r *Registry) error {
		return attachScan(r, Ref{ID: idA}, summaryOf(2), `{"two":2}`)
	}},
	{"remove the scan", "amd64: v1", func(r *Registry) error { return r.RemoveScan(context.Background(), Ref{ID: idA}) }},
	{"a push that is aborted", "amd64: v1", func(r *Registry) error {
		s, err := r.Negotiate(context.Background(), request(idA, "never", makeContent("disk", api.FileDisk, "never")))
		if err != nil {
			return err
		}
		return r.Abort(context.Background(), s.Session)
	}},
	{"scrub", "amd64: v1", func(r *Registry) error {
		r.saveScrub()
		return nil
	}},
	{"make and give up the reserve", "amd64: v1", func(r *Registry) error {
		if err := r.dir.MakeReserve(1000); err != nil {
			return err
		}
		_, err := r.dir.DropReserve()
		return err
	}},
	{"repair", "amd64: v1", crashRepair},
}

// crashChain is a disk and what changed of it: all, so that the chain is put together.
var crashChain = func() []content {
	g := newGrown(99)
	one := g.encode(nil, func(o blob.EncodeOptions, sink blob.Sink) (*blob.Index, error) {
		return blob.Encode(context.Background(), source{bytes.NewReader(slices.Repeat([]byte{1, 2, 3, 4}, len(g.data)/4))}, o, sink)
	})
	old := slices.Repeat([]byte{1, 2, 3, 4}, len(g.data)/4)
	two := g.encode(nil, func(o blob.EncodeOptions, sink blob.Sink) (*blob.Index, error) {
		o.Parent = g.tip
		changes := blob.Compare(source{bytes.NewReader(slices.Repeat([]byte{5, 6, 7, 8}, len(g.data)/4))}, source{bytes.NewReader(old)}, o.Size)
		return blob.EncodeChanges(context.Background(), changes, o, sink)
	})
	return []content{one, two}
}()

// crashCollect collects as days would: what is loose at the first look goes at the second.
func crashCollect(r *Registry) error {
	r.mu.Lock()
	for _, l := range r.held {
		l.loose = time.Unix(1, 0)
	}
	r.mu.Unlock()
	return r.Collect(context.Background())
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
	r.write.Lock()
	snap := *r.snap.Load()
	snap.damaged = damaged
	r.snap.Store(&snap)
	r.write.Unlock()
	if _, err = r.Repair(context.Background(), CheckOptions{}); err != nil {
		return err
	}
	return r.dir.Root().RemoveAll(layout.Aside)
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
	d, err := r.Detail(idA)
	if err != nil {
		return "none"
	}
	scan := ""
	if s := d.Versions[max(0, len(d.Versions)-1):]; len(s) > 0 && s[0].Scan != nil {
		scan = fmt.Sprintf(" scan %d", s[0].Scan.Counts.Critical)
		if whole, err := r.Scan(Ref{ID: idA}); err != nil {
			return err.Error()
		} else if _, err := io.Copy(io.Discard, whole.Report); errors.Join(err, whole.Close()) != nil {
			return "a report that is cut"
		}
	}
	return d.Arch + scan + ": " + tags(r, idA)
}

// crashChild runs all operations and says after each that it is done.
func crashChild(base string) {
	kill, _ := strconv.Atoi(os.Getenv(crashStep))
	n := 0
	hook := func(step string) {
		if n++; n == kill {
			fmt.Println("killed before", step)
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		if kill == 0 {
			fmt.Println("step", step)
		}
	}
	r, err := Open(context.Background(), Options{Base: base, Hook: hook})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	for i, op := range operations {
		if err := op.do(r); err != nil {
			fmt.Println("error", op.name, err)
			os.Exit(1)
		}
		fmt.Println("done", i)
	}
	fmt.Println("end")
	os.Exit(0)
}

// unmet are the points that no operation of the crash test passes, and why.
var unmet = map[string]string{
	"layer.remove": "two pushes complete one layer in the same moment: TestConcurrentPushesOfOneTag and the race test do",
}

// TestKilledAtEveryPoint kills once at every point that the sources have. It is the quick one of three: with
// REGISTRY_CRASH_ALL it kills at every step of every operation, and the target "registry" of test/fault does so with
// the real program and the real client.
func TestKilledAtEveryPoint(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a process for every step")
	}
	steps := listSteps(t)
	points, err := failpoint.Read("../..")
	must(t, err)
	for _, p := range points {
		if !slices.ContainsFunc(steps, func(s crashPoint) bool { return s.step == p }) && unmet[p] == "" {
			t.Errorf("no operation comes to %s", p)
		}
	}
	kills := worth(steps)
	t.Logf("%d steps, %d points, %d kills", len(steps), len(points), len(kills))
	dir := quickDir(t)
	next := make(chan int, len(kills))
	for _, n := range kills {
		next <- n
	}
	close(next)
	var workers sync.WaitGroup
	for range 2 {
		workers.Go(func() {
			for n := range next {
				base := filepath.Join(dir, fmt.Sprint(n))
				step, done, err := runChild(t.Context(), base, n)
				if err == nil {
					err = judge(base, done)
				}
				if err != nil {
					t.Errorf("killed before step %d (%s), after %d operations: %v", n, step, done, err)
				}
				_ = os.RemoveAll(base)
			}
		})
	}
	workers.Wait()
}

// crashPoint is a step that an operation comes to.
type crashPoint struct {
	op   int
	step string
}

// listSteps runs the operations to their end and gives their steps in order.
func listSteps(t *testing.T) []crashPoint {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), crashBase+"="+t.TempDir(), crashStep+"=0")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("child: %v\n%s", err, out)
	}
	var steps []crashPoint
	op := 0
	for line := range strings.Lines(string(out)) {
		if step, ok := strings.CutPrefix(strings.TrimSpace(line), "step "); ok {
			steps = append(steps, crashPoint{op, step})
		} else if strings.HasPrefix(line, "done ") {
			op++
		}
	}
	return steps
}

// worth gives the numbers, from 1, of the steps to try: each point once, in one or another of the operations that come
// to it. With REGISTRY_CRASH_ALL it gives all.
func worth(steps []crashPoint) []int {
	times := map[string][]int{}
	var all []int
	for i, s := range steps {
		times[s.step] = append(times[s.step], i+1)
		all = append(all, i+1)
	}
	if os.Getenv("REGISTRY_CRASH_ALL") != "" {
		return all
	}
	var some []int
	for i, step := range slices.Sorted(maps.Keys(times)) {
		some = append(some, times[step][i*5%len(times[step])])
	}
	slices.Sort(some)
	return some
}

// runChild gives the step at which the child killed itself and the number of operations that it said were done.
func runChild(ctx context.Context, base string, step int) (killed string, done int, err error) {
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), crashBase+"="+base, crashStep+"="+strconv.Itoa(step))
	out, err := cmd.Output()
	for line := range strings.Lines(string(out)) {
		text := strings.TrimSpace(line)
		if at, ok := strings.CutPrefix(text, "killed before "); ok {
			killed = at
		} else if strings.HasPrefix(text, "done ") {
			done++
		}
	}
	var exit *exec.ExitError
	if killed == "" || !errors.As(err, &exit) || exit.ExitCode() != -1 {
		return killed, done, fmt.Errorf("child: %w\n%s", err, out)
	}
	return killed, done, nil
}

// judge opens the store after a kill: what was acknowledged is there, the operation that was cut happened as a
// whole or not at all, and everything can be carried on.
func judge(base string, done int) error {
	clock := newClock()
	if _, err := os.Stat(base + "/vm_dir"); err == nil {
		report, err := CheckStorage(context.Background(), base, CheckOptions{Deep: true})
		if err != nil || slices.ContainsFunc(report.Findings, func(f api.RegistryFinding) bool { return f.Loss && f.Template != idB }) {
			return fmt.Errorf("check: %+v: %w", report.Findings, err)
		}
	}
	r, err := Open(context.Background(), Options{Base: base, Now: clock.Now})
	if err != nil {
		return err
	}
	defer r.Close()
	before, after := "none", "none"
	if done > 0 {
		before = operations[done-1].want
	}
	if done < len(operations) {
		after = operations[done].want
	}
	state := crashState(r)
	if state != before && state != after {
		return fmt.Errorf("state %q, expected %q or %q", state, before, after)
	}
	if done == len(operations)-1 { // the repair breaks a template itself
		if _, err := r.Repair(context.Background(), CheckOptions{}); err != nil {
			return err
		}
	}
	if err := verifyAll(r); err != nil {
		return err
	}
	if done < len(operations) && state == before {
		if err := operations[done].do(r); err != nil {
			return fmt.Errorf("repeat %s: %w", operations[done].name, err)
		}
	}
	for i := done + 1; i < len(operations); i++ {
		if err := operations[i].do(r); err != nil {
			return fmt.Errorf("go on with %s: %w", operations[i].name, err)
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
	return judgeLeftovers(base, r, clock)
}

// judgeLeftovers collects for some days: afterwards the store holds what the template needs and nothing else.
func judgeLeftovers(base string, r *Registry, clock *clock) error {
	for range 5 {
		clock.add(26 * time.Hour)
		if err := r.Collect(context.Background()); err != nil {
			return err
		}
	}
	var left []string
	for _, dir := range []string{"images_dir", "state_file_dir", "upload_dir", "trash_dir", "vm_dir/" + idA, "vm_dir/" + idA + "/0"} {
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
		"vm_dir/" + idA + "/0", "vm_dir/" + idA + "/pulls.log", "vm_dir/" + idA + "/template.json",
		"vm_dir/" + idA + "/0/" + idA + ".yaml", "vm_dir/" + idA + "/0/content_id", "vm_dir/" + idA + "/0/images",
		"vm_dir/" + idA + "/0/nvram", "vm_dir/" + idA + "/0/state_files",
	}
	if strings.Join(left, "\n") != strings.Join(want, "\n") {
		return fmt.Errorf("left on disk:\n%s\nexpected:\n%s", strings.Join(left, "\n"), strings.Join(want, "\n"))
	}
	return nil
}

// TestCrashLosesUnsyncedParts: parts whose bytes a power cut took are found out at the commit and sent again.
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
	// The map was cut in the middle of an entry, too.
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
	if _, err := r.Commit(t.Context(), s.Session, api.PushCommit{Roots: roots}); farm.CodeOf(err) != farm.CodeConflict {
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
