package authfile

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/auth/authtest"
	"github.com/buildyard/buildyard/internal/farm"
)

func openFolder(t testing.TB, dir string) *Dir {
	t.Helper()
	f, err := OpenDir(dir)
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestKeys(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "auth", "keys")
	authtest.Keys(t, func(t *testing.T) auth.KeyStore {
		keys, err := openFolder(t, dir).Keys()
		must(t, err)
		return keys
	})
}

func TestNonces(t *testing.T) {
	dir := t.TempDir()
	authtest.Nonces(t, func(t *testing.T) auth.NonceStore {
		m, err := openFolder(t, dir).OpenNonces()
		must(t, err)
		t.Cleanup(func() { _ = m.Close() })
		return m
	}, authtest.Durable)
}

func TestGrants(t *testing.T) {
	dir := t.TempDir()
	authtest.Grants(t, func(t *testing.T) auth.GrantStore {
		grants, err := openFolder(t, dir).Grants(farm.ServiceRegistry)
		must(t, err)
		return grants
	}, authtest.Durable)
}

// TestOwnerOnly: no other user of the machine can read keys.
func TestOwnerOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "auth")
	f := openFolder(t, dir)
	_, err := f.Ring()
	must(t, err)
	m, err := f.OpenNonces()
	must(t, err)
	_, err = m.Use(t.Context(), auth.Nonce{1}, time.Now().Add(time.Minute))
	must(t, err)
	must(t, m.Close())
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	files, err := os.ReadDir(dir)
	must(t, err)
	if len(files) != 2 {
		t.Errorf("%v", files)
	}
	for _, file := range files {
		if info, err := file.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", file.Name(), info.Mode(), err)
		}
	}
}

func TestRingAndGrants(t *testing.T) {
	dir := t.TempDir()
	f := openFolder(t, dir)
	ring, err := f.Ring()
	must(t, err)
	text := auth.NewSigner(ring).Sign("p", []byte("x"))
	again, err := openFolder(t, dir).Ring()
	must(t, err)
	if _, err := auth.NewSigner(again).Verify("p", text, time.Minute); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	must(t, f.SaveRing(again.Rotated(time.Now())))
	if rotated, err := f.Ring(); err != nil {
		t.Errorf("%v, %v", rotated, err)
	}

	const s = farm.ServiceRegistry
	grants, err := f.Grants(s)
	must(t, err)
	if grants.Grants().Groups != nil {
		t.Errorf("%+v", grants.Grants())
	}
	must(t, grants.Change(t.Context(), func(g auth.Grants) (auth.Grants, error) {
		g.Enforced = true
		g, err := g.SetGroup(s, "<ci> & ü/", []farm.Permission{"pull_vm"})
		must(t, err)
		return g.SetGroupResources(s, "ops",
			[]farm.ResourcePermission{{ID: "t", Type: farm.ResourceTemplate, Permissions: []farm.Permission{"pull"}}})
	}))
	reopened, err := openFolder(t, dir).Grants(s)
	must(t, err)
	back := reopened.Grants()
	if len(back.Groups["<ci> & ü/"]) != 1 || len(back.Resources["ops"]) != 1 || !back.Enforced {
		t.Errorf("%+v", back)
	}
	if _, err := f.Grants(farm.ServiceController); err == nil {
		t.Error("the grants of another service are taken")
	}
}

// TestDamageIsRefused changes every byte of each document, and cuts it off everywhere.
func TestDamageIsRefused(t *testing.T) {
	dir := t.TempDir()
	f := openFolder(t, dir)
	keys, err := f.Keys()
	must(t, err)
	must(t, keys.Create(t.Context(), authtest.Key("one")))
	_, err = f.Ring()
	must(t, err)
	grants, err := f.Grants(farm.ServiceRegistry)
	must(t, err)
	must(t, grants.Change(t.Context(),
		func(g auth.Grants) (auth.Grants, error) { return g.SetGroup(farm.ServiceRegistry, "a", nil) }))
	for name, open := range map[string]func() error{
		keysFile:   func() error { _, err := f.Keys(); return err },
		ringFile:   func() error { _, err := f.Ring(); return err },
		grantsFile: func() error { _, err := f.Grants(farm.ServiceRegistry); return err },
	} {
		path := filepath.Join(dir, name)
		good, err := os.ReadFile(path)
		must(t, err)
		check := func(what string, raw []byte) {
			t.Helper()
			must(t, os.WriteFile(path, raw, 0o600))
			err := open()
			if err == nil {
				t.Fatalf("%s: %s is taken: %s", name, what, raw)
			}
			if !strings.Contains(err.Error(), name) ||
				!strings.Contains(err.Error(), "damaged") && !strings.Contains(err.Error(), "update this program") {
				t.Errorf("%s: %s: %v", name, what, err)
			}
		}
		for i := range len(good) - 1 { // the last one is the end of the line
			check("cut off", good[:i])
			bad := bytes.Clone(good)
			bad[i] ^= 1
			check("a changed byte", bad)
		}
		check("a later form", bytes.Replace(good, []byte(`"form":1`), []byte(`"form":2`), 1))
		must(t, os.WriteFile(path, good, 0o600))
		must(t, open())
	}
}

func TestWrongContentsAreRefused(t *testing.T) {
	f := openFolder(t, t.TempDir())
	for _, data := range []string{
		`{}`, `[{"id":""}]`, `[{"id":"a","generation":"x"},{"id":"a","generation":"x"}]`, `[{"id":"a"}]`, `["a"]`,
	} {
		must(t, f.saveDocument(keysFile, []byte(data)))
		if _, err := f.Keys(); err == nil || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("%s: %v", data, err)
		}
	}
	must(t, f.saveDocument(ringFile, []byte(`{"form":1}`)))
	if _, err := f.Ring(); err == nil {
		t.Error("a ring without keys")
	}
	must(t, f.saveDocument(grantsFile, []byte(`[]`)))
	if _, err := f.Grants(farm.ServiceRegistry); err == nil {
		t.Error("grants that are none")
	}
	must(t, f.root.Mkdir("x", 0o700))
	if _, err := f.readFile("x", 1); err == nil {
		t.Error("a directory is read")
	}
	must(t, f.replaceFile("large", make([]byte, 11)))
	if _, err := f.readFile("large", 10); err == nil || !strings.Contains(err.Error(), "larger than 10") {
		t.Error(err)
	}
}

// TestTornNonces: what a crash leaves at the end of a log hides nothing.
func TestTornNonces(t *testing.T) {
	until := time.Now().Add(time.Hour)
	whole := appendRecord(appendRecord(nil, auth.Nonce{1}, until), auth.Nonce{2}, until)
	for cut := range recordSize {
		dir := t.TempDir()
		f := openFolder(t, dir)
		raw := append(bytes.Clone(whole), appendRecord(nil, auth.Nonce{3}, until)[:cut]...)
		raw = append(raw, make([]byte, cut%3*recordSize)...) // and blocks that never came
		must(t, os.WriteFile(filepath.Join(dir, "marks-old.log"), raw, 0o600))
		m, err := f.OpenNonces()
		must(t, err)
		for n, want := range map[byte]bool{1: false, 2: false, 3: true} {
			if first, err := m.Use(t.Context(), auth.Nonce{n}, until); err != nil || first != want {
				t.Errorf("cut at %d: mark %d: %t, %v", cut, n, first, err)
			}
		}
		must(t, m.Close())
	}
}

// TestTornPages: blocks of one write reach the disk in any order.
func TestTornPages(t *testing.T) {
	dir, until := t.TempDir(), time.Now().Add(time.Hour)
	f := openFolder(t, dir)
	raw := appendRecord(make([]byte, recordSize), auth.Nonce{1}, until)
	must(t, os.WriteFile(filepath.Join(dir, "marks-old.log"), raw, 0o600))
	m, err := f.OpenNonces()
	must(t, err)
	if first, err := m.Use(t.Context(), auth.Nonce{1}, until); first || err != nil {
		t.Errorf("a record behind one that never came: %t, %v", first, err)
	}
	must(t, m.Close())
}

// TestLogsGo: files of marks that are over are removed, also by a restart.
func TestLogsGo(t *testing.T) {
	dir := t.TempDir()
	f := openFolder(t, dir)
	synctest.Test(t, func(t *testing.T) {
		m, err := f.OpenNonces()
		must(t, err)
		count := func(want int) {
			t.Helper()
			names, err := f.filesWithPrefix(noncePrefix)
			if err != nil || len(names) != want {
				t.Errorf("%d logs, want %d: %v", len(names), want, err)
			}
		}
		use := func(n byte) {
			t.Helper()
			first, err := m.Use(t.Context(), auth.Nonce{n}, time.Now().Add(4*time.Minute))
			if !first || err != nil {
				t.Error(first, err)
			}
		}
		use(1)
		count(1)
		time.Sleep(logAge - time.Second)
		use(2)
		count(1)
		time.Sleep(2 * time.Second)
		use(3)
		count(2) // the first log still has a mark that counts
		time.Sleep(4 * time.Minute)
		use(4)
		count(1)
		must(t, m.Close())
		time.Sleep(3 * time.Minute)
		if m, err = f.OpenNonces(); err != nil {
			t.Fatal(err)
		}
		count(1)
		must(t, m.Close())
		time.Sleep(2 * time.Minute)
		if m, err = f.OpenNonces(); err != nil {
			t.Fatal(err)
		}
		count(0)
	})
}

// TestNoncesAfterAFailure: a log that could not be written is not written again, and what was
// not made durable is not promised.
func TestNoncesAfterAFailure(t *testing.T) {
	f := openFolder(t, t.TempDir())
	m, err := f.OpenNonces()
	must(t, err)
	until := time.Now().Add(time.Hour)
	if first, err := m.Use(t.Context(), auth.Nonce{1}, until); !first || err != nil {
		t.Fatal(first, err)
	}
	_ = m.logs[0].file.Close() // the next write fails
	if first, err := m.Use(t.Context(), auth.Nonce{2}, until); first || err == nil {
		t.Error("a mark that is not written is promised")
	}
	if first, err := m.Use(t.Context(), auth.Nonce{2}, until); first || err != nil {
		t.Errorf("its second use: %t, %v", first, err)
	}
	if first, err := m.Use(t.Context(), auth.Nonce{3}, until); !first || err != nil {
		t.Errorf("the next one: %t, %v", first, err)
	}
	if len(m.logs) != 2 {
		t.Errorf("%d logs", len(m.logs))
	}
	must(t, m.Close())
	if _, err := m.Use(t.Context(), auth.Nonce{4}, until); !errors.Is(err, errClosed) {
		t.Error(err)
	}
	must(t, m.Close())
}

// TestGroupCommit: marks that come while the disk is written share one write.
func TestGroupCommit(t *testing.T) {
	f := openFolder(t, t.TempDir())
	m, err := f.OpenNonces()
	must(t, err)
	begun, go1 := make(chan struct{}), make(chan struct{})
	writes := 0
	f.beforeStep = func(step string) { // called by the one writer
		if step != "append" {
			return
		}
		if writes++; writes == 1 {
			close(begun)
			<-go1
		}
	}
	done := make(chan error, 101)
	use := func(n int) {
		_, err := m.Use(t.Context(), auth.Nonce{byte(n), 1}, time.Now().Add(time.Hour))
		done <- err
	}
	go use(0)
	<-begun
	for n := range 100 {
		go use(n + 1)
	}
	for waiting := 0; waiting < 100; {
		m.mu.Lock()
		waiting = len(m.nextBatch.records) / recordSize
		m.mu.Unlock()
	}
	close(go1)
	for range 101 {
		must(t, <-done)
	}
	must(t, m.Close())
	if writes != 2 {
		t.Errorf("%d writes", writes)
	}
}

func FuzzRecords(f *testing.F) {
	f.Add(appendRecord(nil, auth.Nonce{1, 2}, time.Unix(1<<33, 0)))
	f.Add(make([]byte, recordSize))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) != recordSize {
			return
		}
		mark, until, ok := parseRecord(raw)
		if again := appendRecord(nil, mark, until); ok && !bytes.Equal(again[:24], raw[:24]) {
			t.Fatalf("%x is read as %x", raw, again)
		}
	})
}

// BenchmarkNonces is the durable marks of many handshakes at a time.
func BenchmarkNonces(b *testing.B) {
	f := openFolder(b, b.TempDir())
	m, err := f.OpenNonces()
	must(b, err)
	defer func() { _ = m.Close() }()
	until := time.Now().Add(time.Hour)
	next := make(chan int, 1)
	next <- 0
	b.SetParallelism(64)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			n := <-next
			next <- n + 1
			if _, err := m.Use(b.Context(), auth.Nonce{byte(n), byte(n >> 8), byte(n >> 16)}, until); err != nil {
				b.Error(err)
			}
		}
	})
}
