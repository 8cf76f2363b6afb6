package cachejob_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/cache"
	"github.com/buildyard/buildyard/internal/agent/cachejob"
	"github.com/buildyard/buildyard/internal/farm"
)

// shelf is a cache whose pulls take one second per percent. It fails a test that calls it with a
// lock held that a pull's progress needs.
type shelf struct {
	mu     sync.Mutex
	here   map[string]cache.Ref
	held   map[string][]string // content ID -> holders
	fail   error
	under  map[string]string // content ID -> one that is based on it
	pulls  int               // that are running
	most   int               // maximum number of concurrent pulls
	begun  []string
	failed int
}

func newShelf() *shelf {
	return &shelf{here: map[string]cache.Ref{}, held: map[string][]string{}, under: map[string]string{}}
}

func (s *shelf) Has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.here[id]
	return ok
}

func (s *shelf) Fetch(ctx context.Context, ref cache.Ref, progress func(float64)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.here[ref.ContentID]; ok {
		return nil
	}
	s.pulls++
	s.most = max(s.most, s.pulls)
	s.begun = append(s.begun, ref.ContentID)
	defer func() { s.pulls-- }()
	for i := range 100 {
		s.mu.Unlock()
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
		s.mu.Lock()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if s.fail != nil && i == 50 {
			s.failed++
			return s.fail
		}
		progress(float64(i+1) / 100)
	}
	s.here[ref.ContentID] = ref
	return nil
}

func (s *shelf) Pin(id, holder string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.held[id], holder) {
		s.held[id] = append(s.held[id], holder)
	}
}

func (s *shelf) Unpin(id, holder string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[id] = slices.DeleteFunc(s.held[id], func(h string) bool { return h == holder })
}

func (s *shelf) List() []api.NodeTemplate {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []api.NodeTemplate
	for id, ref := range s.here {
		list = append(list, api.NodeTemplate{ID: ref.TemplateID, ContentID: id})
	}
	slices.SortFunc(list, func(a, b api.NodeTemplate) int { return strings.Compare(a.ContentID, b.ContentID) })
	return list
}

func (s *shelf) Remove(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	above := s.under[id]
	if _, there := s.here[above]; there || len(s.held[id]) > 0 {
		return farm.Refused("Template version %s is in use by a VM", id)
	}
	delete(s.here, id)
	return nil
}

func (s *shelf) set(edit func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	edit()
}

func (s *shelf) holders(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.held[id], " ")
}

// node is a runner with the part of its agent.
type node struct {
	*cachejob.Runner
	t       *testing.T
	shelf   *shelf
	file    string
	ctx     context.Context
	stop    context.CancelFunc
	changed chan struct{}
	told    map[string]api.CacheJobStatus
	reports int
}

// boot starts a runner; the controller receives all its statuses.
func boot(t *testing.T, s *shelf, file string) *node {
	n := &node{t: t, shelf: s, file: file, changed: make(chan struct{}, 1), told: map[string]api.CacheJobStatus{}}
	n.Runner = cachejob.New(cachejob.Options{
		NodeID: "node", Templates: s, StoreFile: file, Logger: slog.New(slog.DiscardHandler),
		RegistryAddress: func(address string) string { return address },
		StatusChanged: func() {
			select {
			case n.changed <- struct{}{}:
			default:
			}
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	n.ctx, n.stop = ctx, func() { cancel(); n.Wait() }
	n.Resume(ctx)
	n.listen()
	return n
}

// listen receives the pending statuses.
func (n *node) listen() {
	synctest.Wait()
	select {
	case <-n.changed:
	default:
	}
	for list := n.Statuses(); len(list) > 0; list = n.Statuses() {
		n.reports++
		for _, s := range list {
			n.told[s.ID] = s
		}
		n.MarkReceived(list)
	}
}

// after lets time pass and receives the statuses of every second.
func (n *node) after(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second) {
		n.listen()
	}
	n.listen()
}

// order passes cache jobs to the runner.
func (n *node) order(orders ...api.CacheJob) {
	n.Accept(n.ctx, orders)
	n.listen()
}

func (n *node) want(id string, stage api.CacheJobStage, progress float64) {
	n.t.Helper()
	n.listen()
	got := n.told[id]
	if got.Stage != stage || got.Progress < progress-0.03 || got.Progress > progress+0.03 {
		n.t.Errorf("%s is %+v, want %s at %g", id, got, stage, progress)
	}
}

func pull(id string) api.CacheJob {
	return api.CacheJob{
		ID: id, Kind: api.CacheJobPull, TemplateID: "T", TemplateName: "base", Tag: "v1",
		ContentID: "c-" + id, Registry: "r",
	}
}

func drop(id string) api.CacheJob { return api.CacheJob{ID: id, Kind: api.CacheJobDrop} }

func remove(id string) api.CacheJob {
	return api.CacheJob{ID: id, Kind: api.CacheJobRemove, TemplateID: "t"}
}

func inBubble(t *testing.T, do func(t *testing.T, n *node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := boot(t, newShelf(), filepath.Join(t.TempDir(), "errands.json"))
		defer func() { n.stop() }()
		do(t, n)
	})
}

func TestPull(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.order(pull("a"))
		n.want("a", api.CacheJobWorking, 0)
		n.order(pull("a"), pull("a")) // repeated
		n.after(50 * time.Second)
		n.want("a", api.CacheJobWorking, 0.5)
		if n.shelf.holders("c-a") != "errand:a" {
			t.Errorf("while it is pulled it is held by %q", n.shelf.holders("c-a"))
		}
		n.after(51 * time.Second)
		n.want("a", api.CacheJobDone, 1)
		if n.reports > 60 {
			t.Errorf("%d reports of a pull of 100 s", n.reports)
		}
		if n.shelf.holders("c-a") != "" || !n.shelf.Has("c-a") {
			t.Error("it is kept for nobody, or gone")
		}
		n.order(drop("a"))
		n.want("a", api.CacheJobDropped, 0)
		n.order(drop("a"), drop("unknown")) // repeated, and of an earlier agent
		n.want("a", api.CacheJobDropped, 0)
		n.want("unknown", api.CacheJobDropped, 0)
	})
}

// TestFewPullsAtATime: the others wait, and each gets a slot.
func TestFewPullsAtATime(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		for i := range 6 {
			n.order(pull(fmt.Sprint(i)))
		}
		n.after(150 * time.Second)
		if n.shelf.most != 2 {
			t.Errorf("%d pulls at a time", n.shelf.most)
		}
		n.after(160 * time.Second)
		for i := range 6 {
			n.want(fmt.Sprint(i), api.CacheJobDone, 1)
		}
	})
}

// TestStartsComeFirst: while an instance pulls, nothing is pulled for a cache job, regardless of
// the duration, and that is not a failure.
func TestStartsComeFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.order(pull("a"))
		n.after(10 * time.Second)
		first, second := n.PauseForInstance(), n.PauseForInstance()
		n.order(pull("b"))
		n.after(20 * time.Minute)
		if n.shelf.pulls != 0 || len(n.shelf.begun) != 1 {
			t.Errorf("%d pulls go on beside a start; begun are %v", n.shelf.pulls, n.shelf.begun)
		}
		first()
		n.after(time.Minute)
		if n.shelf.pulls != 0 {
			t.Error("it goes on while another instance pulls")
		}
		second()
		n.after(102 * time.Second)
		n.want("a", api.CacheJobDone, 1)
		n.want("b", api.CacheJobDone, 1)
	})
}

func TestFailures(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.shelf.set(func() { n.shelf.fail = farm.Refused("the disk has 1GB free") })
		n.order(pull("full"))
		n.after(60 * time.Second)
		n.want("full", api.CacheJobFailed, 0.5)
		if n.told["full"].Message != "the disk has 1GB free" || n.shelf.holders("c-full") != "" {
			t.Errorf("told is %+v, held by %q", n.told["full"], n.shelf.holders("c-full"))
		}
		// A pull with a temporary error is retried as long as it may progress.
		n.shelf.set(func() {
			n.shelf.fail, n.shelf.failed = farm.Unavailable(nil, "The registry cannot be reached"),
				0
		})
		n.order(pull("away"))
		n.after(10 * time.Minute)
		if got := n.told["away"].Stage; got == api.CacheJobFailed {
			t.Error("it has failed already")
		}
		n.after(5 * time.Minute)
		n.want("away", api.CacheJobFailed, 0.5)
		if n.shelf.failed < 5 || n.shelf.failed > 15 {
			t.Errorf("it was tried %d times", n.shelf.failed)
		}
		// The pull continues when the cause is gone.
		n.order(pull("back"))
		n.after(2 * time.Minute)
		n.shelf.set(func() { n.shelf.fail = nil })
		n.after(4 * time.Minute)
		n.want("back", api.CacheJobDone, 1)
	})
}

// TestDropStopsAPull: the pull stops immediately, and its slot is free.
func TestDropStopsAPull(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.order(pull("a"), pull("b"), pull("c"))
		n.after(10 * time.Second)
		n.order(drop("a"), drop("b"))
		n.after(102 * time.Second)
		n.want("a", api.CacheJobDropped, 0)
		n.want("c", api.CacheJobDone, 1)
		if n.shelf.Has("c-a") || n.shelf.holders("c-a")+n.shelf.holders("c-b") != "" {
			t.Error("something of what was dropped is left")
		}
	})
}

// TestANewAgentContinues: pulls resume before the controller sends anything, and repeated cache jobs
// are known. A cache job that is done and reported is removed; when it is requested again, the
// version is cached.
func TestANewAgentContinues(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.order(pull("done"))
		n.after(101 * time.Second)
		n.order(pull("half"))
		n.after(10 * time.Second)
		n.stop()
		n.shelf.set(func() { clear(n.shelf.held) })
		*n = *boot(t, n.shelf, n.file)
		if len(n.told) != 1 || n.shelf.holders("c-half") != "errand:half" {
			t.Errorf("a new agent tells %v, %q is kept", n.told, n.shelf.holders("c-half"))
		}
		n.order(pull("done"), pull("half"))
		n.want("done", api.CacheJobDone, 1)
		n.after(102 * time.Second)
		n.want("half", api.CacheJobDone, 1)
		if got := strings.Join(n.shelf.begun, " "); got != "c-done c-half c-half" {
			t.Errorf("pulled were %s", got)
		}
		n.order(pull("dropped"))
		n.order(drop("dropped"))
		n.stop()
		*n = *boot(t, n.shelf, n.file)
		if len(n.told) != 0 || n.shelf.holders("c-dropped") != "" {
			t.Errorf("what was dropped came back: %v", n.told)
		}
	})
}

// TestUnreportedIsReportedByTheNextAgent: an unacknowledged result is reported once the cache job is
// requested again.
func TestUnreportedIsReportedByTheNextAgent(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.Accept(n.ctx, []api.CacheJob{pull("a")})
		time.Sleep(101 * time.Second)
		n.stop()
		*n = *boot(t, n.shelf, n.file)
		n.order(pull("a"))
		n.want("a", api.CacheJobDone, 1)
		if got := strings.Join(n.shelf.begun, " "); got != "c-a" {
			t.Errorf("pulled were %s", got)
		}
	})
}

func TestFilesThatAreNotOurs(t *testing.T) {
	for name, text := range map[string]string{
		"another identity": `{"node":"other","errands":[{"id":"a","kind":"pull","content_id":"c"}]}`,
		"damaged":          `{"node":"node","errands":[{`,
		"an empty id":      `{"node":"node","errands":[{"id":"","kind":"pull"},{"id":"x","kind":"dance"}]}`,
	} {
		synctest.Test(t, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "errands.json")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			n := boot(t, newShelf(), file)
			defer n.stop()
			n.after(time.Minute)
			if len(n.told) != 0 || len(n.shelf.begun) != 0 {
				t.Errorf("%s: told %v, begun %v", name, n.told, n.shelf.begun)
			}
			n.order(pull("b"))
			n.want("b", api.CacheJobWorking, 0)
		})
	}
}

// TestNothingIsTooMuch: a node accepts a limited number of cache jobs, and carries them out even if
// the file cannot be written.
func TestNothingIsTooMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := boot(t, newShelf(), filepath.Join(t.TempDir(), "missing", "errands.json"))
		defer n.stop()
		var many []api.CacheJob
		for i := range 1200 {
			many = append(many, pull(fmt.Sprint(i)))
		}
		n.order(many...)
		if len(n.told) != 1000 {
			t.Errorf("%d were taken", len(n.told))
		}
		n.after(101 * time.Second)
		done := 0
		for _, s := range n.told {
			if s.Stage == api.CacheJobDone {
				done++
			}
		}
		if done != 2 {
			t.Errorf("%d are done", done)
		}
	})
}

func TestRemove(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.order(pull("a"))
		n.after(101 * time.Second)
		for id, template := range map[string]string{
			"base": "T", "child": "T", "used": "t", "other": "u", "lower": "T", "upper": "u",
		} {
			n.shelf.here[id] = cache.Ref{TemplateID: template, ContentID: id}
		}
		n.shelf.under["base"] = "child" // and "base" comes first
		n.shelf.under["lower"] = "upper"
		n.shelf.Pin("used", "vm")
		n.order(remove("r"))
		n.want("r", api.CacheJobFailed, 0)
		got := n.told["r"]
		if got.Removed != 3 || got.Kept != 2 ||
			!strings.HasPrefix(got.Message, "2 of its versions stay: Template version ") {
			t.Errorf("told is %+v", got)
		}
		var left []string
		for _, v := range n.shelf.List() {
			left = append(left, v.ContentID)
		}
		if fmt.Sprint(left) != "[lower other upper used]" {
			t.Errorf("left are %v", left)
		}
		n.shelf.Unpin("used", "vm")
		n.shelf.set(func() { delete(n.shelf.under, "lower") })
		n.order(remove("s"))
		n.want("s", api.CacheJobDone, 0)
		if n.told["s"].Removed != 2 {
			t.Errorf("told is %+v", n.told["s"])
		}
		n.order(remove("again"))
		n.want("again", api.CacheJobDone, 0)
	})
}

// TestLostReports: lost statuses are reported again, with changes since then.
func TestLostReports(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.Accept(n.ctx, []api.CacheJob{pull("a"), drop("x")})
		lost := n.Statuses()
		if len(lost) != 2 || len(n.Statuses()) != 0 {
			t.Fatalf("to be told are %+v", lost)
		}
		time.Sleep(101 * time.Second)
		n.MarkUnsent(lost)
		n.listen()
		n.want("a", api.CacheJobDone, 1)
		n.want("x", api.CacheJobDropped, 0)
		n.order(pull("b"))
		clear(n.told)
		n.ResendStatuses()
		n.want("b", api.CacheJobWorking, 0)
		n.DropAll()
		n.listen()
		if len(n.told) != 1 || n.shelf.holders("c-a")+n.shelf.holders("c-b") != "" {
			t.Errorf("after leaving: told %v, held by %q and %q", n.told, n.shelf.holders("c-a"),
				n.shelf.holders("c-b"))
		}
		n.ResendStatuses()
		if left := n.Statuses(); len(left) != 0 {
			t.Errorf("left are %+v", left)
		}
	})
}

func TestAnUnknownFailureIsForGood(t *testing.T) {
	inBubble(t, func(t *testing.T, n *node) {
		n.shelf.fail = errors.New("the registry gave another version")
		n.order(pull("a"))
		n.after(60 * time.Second)
		n.want("a", api.CacheJobFailed, 0.5)
	})
}
