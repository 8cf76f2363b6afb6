package registry

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/layout"
	"github.com/buildyard/buildyard/internal/metric/metrictest"
)

func TestCollection(t *testing.T) {
	base, clock := t.TempDir(), newClock()
	r, err := Open(t.Context(), Options{Base: base, Now: clock.Now, EmptyPushTimeout: 1000 * time.Hour})
	must(t, err)
	defer r.Close()
	a, b := makeContent("disk", api.FileDisk, "a"), makeContent("disk", api.FileDisk, "b")
	mustPush(t, r, request(idA, "v1", a), a)
	mustPush(t, r, request(idB, "v1", a), a) // shares the layer
	mustPush(t, r, request(idA, "v2", b), b)
	collect := func() {
		t.Helper()
		if err := r.CollectGarbage(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	gone := func(want int) {
		t.Helper()
		for range 3 {
			collect()
			clock.add(2 * time.Hour)
		}
		if got := layerFiles(t, base); len(got) != want {
			t.Fatalf("%d layer files, expected %d", len(got), want)
		}
	}
	gone(2)
	if err := r.Delete(t.Context(), idA); err != nil {
		t.Fatal(err)
	}
	gone(1) // a is still needed by the other template
	// A push that needs the collected layer gets it back without sending it.
	req := request(idA, "v1", b)
	req.Files[0].Root = b.root()
	s, err := r.Negotiate(t.Context(), req)
	if err != nil || s.Files[0].State != api.PushExists {
		t.Fatalf("%+v, %v", s, err)
	}
	gone(2) // pinned by the session
	if _, err := r.CommitPush(t.Context(), s.Session,
		api.PushCommit{Roots: map[string]string{"disk": b.root()}}); err != nil {
		t.Fatal(err)
	}
	gone(2)
	if err := verifyAll(r); err != nil {
		t.Fatal(err)
	}
	_ = r.Revert(t.Context(), VersionRef{ID: idA})
	gone(1)
	figures := metrictest.Values(r.Families())
	for name, want := range map[string]float64{
		"buildyard_registry_pushes_total": 4, "buildyard_registry_gc_layers_total": 2,
		"buildyard_registry_templates": 2, "buildyard_registry_versions": 1, "buildyard_registry_layers": 1,
	} {
		if figures[name] != want {
			t.Errorf("%s is %v, want %v", name, figures[name], want)
		}
	}
	if figures["buildyard_registry_gc_bytes_total"] == 0 ||
		figures["buildyard_registry_received_bytes_total"] == 0 || figures["buildyard_registry_stored_bytes"] == 0 {
		t.Errorf("%v", figures)
	}
	clock.add(30 * time.Hour)
	collect()
	if left, _ := os.ReadDir(filepath.Join(base, layout.TrashDir)); len(left) != 0 {
		t.Fatalf("%d entries left in the trash", len(left))
	}
}

// TestTwoConcurrentCollections: of two goroutines that move the same layer to the trash the second one finds it
// removed, whatever the state of the trash.
func TestTwoConcurrentCollections(t *testing.T) {
	base, clock := t.TempDir(), newClock()
	r := open(t, base, clock)
	a := makeContent("disk", api.FileDisk, "a")
	mustPush(t, r, request(idA, "v1", a), a)
	if err := r.Delete(t.Context(), idA); err != nil {
		t.Fatal(err)
	}
	loose := r.listUnreferenced(clock.Now())
	if len(loose) != 1 {
		t.Fatalf("%d loose layers", len(loose))
	}
	if _, err := r.GC(t.Context(), GCOptions{}); err != nil {
		t.Fatal(err)
	}
	trash := filepath.Join(base, layout.TrashDir)
	if err := os.RemoveAll(trash); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(trash, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for root := range loose {
		if err := r.trashLayer(t.Context(), root, clock.Now()); err != nil {
			t.Errorf("the second one: %v", err)
		}
	}
	if stats, err := r.Stats(t.Context()); err != nil || stats.Layers != 0 {
		t.Errorf("%d layers, %v", stats.Layers, err)
	}
	if n := metrictest.Values(r.Families())["buildyard_registry_gc_layers_total"]; n != 1 {
		t.Errorf("%v layers were collected", n)
	}
}

func TestIdlePushIsGivenUp(t *testing.T) {
	base, clock := t.TempDir(), newClock()
	r := open(t, base, clock)
	a := makeContent("disk", api.FileDisk, "a")
	s, err := r.Negotiate(t.Context(), request(idA, "v1", a))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := send(r, s, []content{a}); err != nil {
		t.Fatal(err)
	}
	clock.add(23 * time.Hour)
	_ = r.CollectGarbage(t.Context())
	if _, err := r.PushSession(t.Context(), s.Session); err != nil {
		t.Fatal(err)
	}
	clock.add(25 * time.Hour)
	if err := r.CollectGarbage(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.PushSession(t.Context(), s.Session); farm.CodeOf(err) != farm.CodeNotFound {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(filepath.Join(base, layout.UploadDir)); len(left) != 0 {
		t.Fatalf("%d uploads left", len(left))
	}
}

// TestSessionsMakePlace: neither recently committed pushes nor abandoned ones keep others out.
func TestSessionsMakePlace(t *testing.T) {
	base, clock := quickDir(t), newClock()
	r, err := Open(t.Context(), Options{Base: base, Now: clock.Now, EmptyPushTimeout: 1000 * time.Hour})
	must(t, err)
	defer r.Close()
	for i := range 20 {
		mustPush(t, r, request(idA, fmt.Sprintf("v%d", i)))
		clock.add(time.Second)
	}
	begin := func(i int) (api.PushSession, error) {
		return r.Negotiate(t.Context(), request(idB, fmt.Sprintf("left%d", i)))
	}
	first, err := begin(0)
	if err != nil {
		t.Fatal(err)
	}
	clock.add(time.Second)
	for i := range DefaultMaxPushes - 1 {
		if _, err := begin(i + 1); err != nil {
			t.Fatalf("push %d while committed ones could go: %v", i+1, err)
		}
	}
	if _, err := begin(DefaultMaxPushes); farm.CodeOf(err) != farm.CodeBusy {
		t.Fatalf("one more than can be open at a time: %v", err)
	}
	clock.add(minEvictableIdle)
	if _, err := begin(DefaultMaxPushes); err != nil {
		t.Fatalf("a push that was idle for an hour keeps another one out: %v", err)
	}
	if _, err := r.PushSession(t.Context(), first.Session); farm.CodeOf(err) != farm.CodeNotFound {
		t.Fatalf("the longest idle push is still there: %v", err)
	}
	if n := len(r.uncommittedSessions()); n != DefaultMaxPushes {
		t.Fatalf("%d sessions", n)
	}
}

// TestRevertDuringPull: a pull that has its manifest ends well although its version is reverted and collected.
func TestRevertDuringPull(t *testing.T) {
	base, clock := t.TempDir(), newClock()
	r := open(t, base, clock)
	a := makeContent("disk", api.FileDisk, "a")
	mustPush(t, r, request(idA, "v1", a), a)
	m, err := r.Manifest(t.Context(), VersionRef{ID: idA})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Revert(t.Context(), VersionRef{ID: idA}); err != nil {
		t.Fatal(err)
	}
	for range 20 { // the grace time passes, but every range request renews the lease
		clock.add(10 * time.Minute)
		if err := r.CollectGarbage(t.Context()); err != nil {
			t.Fatal(err)
		}
		f, err := r.OpenBlob(t.Context(), m.Files[0].Layers[0].Root)
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	for range 3 {
		clock.add(2 * time.Hour)
		_ = r.CollectGarbage(t.Context())
	}
	if _, err := r.OpenBlob(t.Context(), a.root()); farm.CodeOf(err) != farm.CodeNotFound {
		t.Fatalf("the layer stayed for ever: %v", err)
	}
}

func TestDamagedTemplates(t *testing.T) {
	base := t.TempDir()
	r := open(t, base, newClock())
	a, b := makeContent("disk", api.FileDisk, "a"), makeContent("disk", api.FileDisk, "b")
	mustPush(t, r, request(idA, "v1", a), a)
	mustPush(t, r, request(idB, "v1", b), b)
	_ = r.Close()
	ids := map[string]string{ // directory -> content of its template.json
		"cccccccc-0000-4000-8000-000000000001": "",
		"cccccccc-0000-4000-8000-000000000002": "{",
		"cccccccc-0000-4000-8000-000000000003": `{"schema":99}`,
		"cccccccc-0000-4000-8000-000000000004": `{"schema":1,"id":"` + idA + `","name":"x","gen":1}`,
		"not a uuid":                           `{}`,
	}
	for id, text := range ids {
		dir := filepath.Join(base, layout.TemplatesDir, id)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if text != "" {
			if err := os.WriteFile(filepath.Join(dir, "template.json"), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Remove(filepath.Join(base, layout.ImagesDir, b.root()+".ank")); err != nil {
		t.Fatal(err)
	}
	r = open(t, base, newClock())
	if got := r.ListTemplates(); len(got) != 2 {
		t.Fatalf("%+v", got)
	}
	damaged := r.Status().Damaged
	if len(damaged) != len(ids) { // the empty directory is not a template, and is removed; a layer is missing
		t.Fatalf("%+v", damaged)
	}
	last := damaged[len(damaged)-1]
	if last.ID != idB && damaged[0].ID != idB {
		found := false
		for _, d := range damaged {
			found = found || d.ID == idB && d.Version != nil && *d.Version == 0 && strings.Contains(d.Problem, b.root())
		}
		if !found {
			t.Fatalf("%+v", damaged)
		}
	}
	if _, err := r.Manifest(t.Context(), VersionRef{ID: idB}); farm.CodeOf(err) != farm.CodeRefused {
		t.Fatalf("pull of a version without its layer: %v", err)
	}
	// A damaged template can be deleted, a version without its layer reverted.
	if err := r.Delete(t.Context(), "cccccccc-0000-4000-8000-000000000002"); err != nil {
		t.Fatal(err)
	}
	if err := r.Revert(t.Context(), VersionRef{ID: idB}); err != nil {
		t.Fatal(err)
	}
	if n := len(r.Status().Damaged); n != len(ids)-2 {
		t.Fatalf("%d damaged", n)
	}
	// An empty directory did not prevent a push.
	mustPush(t, r, request("cccccccc-0000-4000-8000-000000000001", "v1", a), a)
	if _, err := push(r, request("cccccccc-0000-4000-8000-000000000003", "v1", a), a); err == nil {
		t.Fatal("a template of a newer schema was overwritten")
	}
}

func TestOneOwner(t *testing.T) {
	base := t.TempDir()
	open(t, base, newClock())
	_, err := Open(t.Context(), Options{Base: base})
	if err == nil || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) || !strings.Contains(err.Error(), base) {
		t.Fatalf("a second owner: %v", err)
	}
}

func TestTimesOfPulls(t *testing.T) {
	base, clock := t.TempDir(), newClock()
	r := open(t, base, clock)
	a := makeContent("disk", api.FileDisk, "a")
	mustPush(t, r, request(idA, "v1", a), a)
	_, _ = r.TemplateDetail(idA)
	_, _ = r.VersionConfig(VersionRef{ID: idA})
	if d, _ := r.TemplateDetail(idA); d.LastPull != 0 {
		t.Fatalf("%+v", d)
	}
	for range defaultCompactPullsAfter + 10 {
		clock.add(time.Second)
		if _, err := r.Manifest(t.Context(), VersionRef{ID: idA}); err != nil {
			t.Fatal(err)
		}
	}
	want := clock.Now().Unix()
	_ = r.Close()
	if st, err := os.Stat(filepath.Join(base, layout.TemplatesDir, idA, "pulls.log")); err != nil || st.Size() > 4096 {
		t.Fatalf("log was not folded: %v, %v", st, err)
	}
	d, _ := open(t, base, clock).TemplateDetail(idA)
	if d.LastPull != want || d.Versions[0].LastPull != want {
		t.Fatalf("%+v", d)
	}
}

// TestConcurrentOperations runs pushes, reverts, deletes, lists and collections concurrently. It runs with pulls,
// whose leases keep layers, and without, so that layers come and go.
func TestConcurrentOperations(t *testing.T) {
	t.Run("with pulls", func(t *testing.T) { everythingAtOnce(t, 2) })
	t.Run("without pulls", func(t *testing.T) { everythingAtOnce(t, 0) })
}

// raceTime is how long everything runs concurrently: REGISTRY_RACE=60s for the acceptance test.
func raceTime(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("REGISTRY_RACE")
	if text == "" {
		return 1500 * time.Millisecond
	}
	length, err := time.ParseDuration(text)
	must(t, err)
	return length
}

// chainPusher pushes tags that rest on each other to template idC, and checks that a pushed version exists
// until the next revert. If the parent is removed, it starts again.
func chainPusher(t *testing.T, r *Registry, seed uint64) func(n int) {
	g := newGrown(seed)
	full := true
	return func(n int) {
		step := g.next
		if full {
			step = g.base
		}
		c := step(t)
		tag := fmt.Sprintf("c%d-%d", seed, n)
		_, err := push(r, request(idC, tag, c), c)
		code := farm.CodeOf(err)
		full = err != nil
		switch {
		case code == farm.CodeNoParent || code == farm.CodeRefused:
			return
		case err != nil:
			t.Errorf("push of a chain: %v", err)
			return
		}
		// A revert may remove the tag after the manifest was read.
		if m, err := r.Manifest(context.Background(), VersionRef{ID: idC, Tag: tag}); err == nil &&
			!bytes.Equal(assembleManifest(t, r, m), g.data) {
			t.Errorf("%s is another disk", tag)
		}
		if n%25 == 24 {
			full = true
		}
	}
}

// The clock runs so fast that leases and pushes that the machine holds up would expire: their times are longer.
func everythingAtOnce(t *testing.T, pullers int) {
	base, clock := t.TempDir(), newClock()
	r, err := Open(t.Context(), Options{
		Base: base, Now: clock.Now, GCGrace: time.Nanosecond, LayerLease: 1000 * time.Hour,
		EmptyPushTimeout: 1000 * time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	contents := []content{makeContent("disk", api.FileDisk, "a"), makeContent("disk", api.FileDisk,
		"b"), makeContent("disk", api.FileDisk, "c")}
	ctx, stop := context.WithTimeout(t.Context(), raceTime(t))
	defer stop()
	var wg sync.WaitGroup
	loop := func(work func(n int)) {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				work(n)
			}
		})
	}
	expected := func(what string, err error) {
		switch farm.CodeOf(err) {
		case "", farm.CodeNoVersion, farm.CodeNotFound, farm.CodeRefused:
		default:
			t.Errorf("%s: %v", what, err)
		}
	}
	for i := range 3 {
		loop(func(n int) {
			c := contents[(n+i)%3]
			_, err := push(r, request([]string{idA, idB}[n%2], fmt.Sprintf("v%d-%d", i, n), c), c)
			expected("push", err)
		})
	}
	for seed := range 2 * min(1, pullers) { // with leases, since it reads what may be reverted concurrently
		loop(chainPusher(t, r, uint64(seed)))
	}
	loop(func(n int) {
		if n%40 == 39 {
			expected("revert of a chain", r.Revert(ctx, VersionRef{ID: idC}))
		}
		if _, err := r.SquashChains(ctx); err != nil && ctx.Err() == nil {
			t.Errorf("consolidate: %v", err)
		}
		report, err := r.Check(context.Background(), CheckOptions{})
		if err != nil || report.Lost > 0 {
			t.Errorf("check: %+v, %v", report.Findings, err)
		}
	})
	loop(func(n int) { expected("revert", r.Revert(ctx, VersionRef{ID: []string{idA, idB}[n%2]})) })
	loop(func(n int) {
		if n%10 == 0 {
			expected("delete", r.Delete(ctx, idB))
		}
		_ = r.ListTemplates()
		_ = r.Status()
	})
	loop(func(int) {
		clock.add(time.Second)
		if err := r.CollectGarbage(context.Background()); err != nil {
			t.Errorf("collect: %v", err)
		}
	})
	for range pullers {
		loop(func(int) {
			m, err := r.Manifest(ctx, VersionRef{ID: idA})
			expected("manifest", err)
			for _, f := range m.Files {
				file, err := r.OpenBlob(ctx, f.Layers[0].Root)
				if err != nil {
					t.Errorf("leased layer: %v", err)
					continue
				}
				_ = file.Close()
			}
		})
	}
	wg.Wait()
	if err := verifyAll(r); err != nil {
		t.Fatal(err)
	}
	mustBeClean(t, r)
	everyLayerIsNamed(t, base, r, clock)
}

// everyLayerIsNamed: after a collection all remaining layers are in the text files of some version.
func everyLayerIsNamed(t *testing.T, base string, r *Registry, clock *clock) {
	t.Helper()
	clock.add(2000 * time.Hour) // leases and idle pushes have ended
	for range 3 {
		must(t, r.CollectGarbage(t.Context()))
		clock.add(time.Hour)
	}
	for dir, text := range map[string]string{layout.ImagesDir: "images", layout.StateFileDir: "state_files"} {
		lists, err := filepath.Glob(filepath.Join(base, layout.TemplatesDir, "*", "*", text))
		must(t, err)
		named := map[string]bool{}
		for _, path := range lists {
			raw, err := os.ReadFile(path)
			must(t, err)
			for name := range strings.FieldsSeq(string(raw)) {
				named[name] = true
			}
		}
		files, err := os.ReadDir(filepath.Join(base, dir))
		must(t, err)
		for _, f := range files {
			if !named[f.Name()] {
				t.Errorf("no version names %s/%s", dir, f.Name())
			}
		}
		if len(files) != len(named) {
			t.Errorf("%d files in %s, %d are named", len(files), dir, len(named))
		}
	}
}

// TestPause: nothing is collected while the registry is paused, and a pause ends automatically.
func TestPause(t *testing.T) {
	base, clock := t.TempDir(), newClock()
	r := open(t, base, clock)
	a := makeContent("disk", api.FileDisk, "a")
	mustPush(t, r, request(idA, "v1", a), a)
	if err := r.Delete(t.Context(), idA); err != nil {
		t.Fatal(err)
	}
	collect := func(after time.Duration) int {
		t.Helper()
		clock.add(after)
		if err := r.gcUnlessPaused(t.Context()); err != nil {
			t.Fatal(err)
		}
		return len(layerFiles(t, base))
	}
	collect(0) // the first collection that finds the layer unreferenced
	for range 30 {
		if err := r.PauseGC(MaxGCPause); err != nil {
			t.Fatal(err)
		}
		if n := collect(MaxGCPause - time.Second); n != 1 {
			t.Fatalf("%d layer files are left", n)
		}
	}
	if n := collect(time.Second); n != 0 {
		t.Errorf("%d layer files are left behind the pause", n)
	}
	for _, bad := range []time.Duration{-1, MaxGCPause + 1} {
		if err := r.PauseGC(bad); farm.CodeOf(err) != farm.CodeInvalid {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestNeededLayerInTheTrash: a layer that a version needs is restored from the trash before the trash is emptied.
func TestNeededLayerInTheTrash(t *testing.T) {
	r, err := Open(t.Context(), Options{Base: t.TempDir()})
	must(t, err)
	defer r.Close()
	a := makeContent("disk", api.FileDisk, "a")
	mustPush(t, r, request(idA, "v1", a), a)
	root, err := blob.ParseDigest(a.root())
	must(t, err)
	must(t, r.store.Trash(t.Context(), root, time.Now()))
	r.mu.Lock()
	delete(r.storedLayers, root)
	r.mu.Unlock()
	if _, err := r.GC(t.Context(), GCOptions{EmptyTrash: true}); err != nil {
		t.Fatal(err)
	}
	must(t, verifyAll(r))
}
