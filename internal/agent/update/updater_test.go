package update

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/release"
)

const (
	oldVersion = "1.0.0-old"
	newVersion = "1.1.0-new"
)

// node is a node with its data directory, and a controller that has a package for it.
type node struct {
	t      *testing.T
	home   datadir.Dir
	secret ed25519.PrivateKey

	archive []byte // as the controller serves it
	pkg     api.AgentPackage

	mu     sync.Mutex
	cut    int      // a response ends after this many bytes; 0: it is complete
	status int      // status of the controller's response; 0: the file
	ranges []string // that were requested
	became []string // programs that this process became
	broken error    // why it cannot become another program
}

// archiveOf packs files; a name that ends in > is a link to passwd.
func archiveOf(t testing.TB, files ...string) []byte {
	t.Helper()
	var raw bytes.Buffer
	zipped := gzip.NewWriter(&raw)
	w := tar.NewWriter(zipped)
	for i := 0; i < len(files); i += 2 {
		h := &tar.Header{Name: files[i], Mode: 0o644, Size: int64(len(files[i+1])), Typeflag: tar.TypeReg}
		if name, link := strings.CutSuffix(files[i], ">"); link {
			h = &tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}
			files[i+1] = ""
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write([]byte(files[i+1]))
	}
	if err := errors.Join(w.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	return raw.Bytes()
}

// filler returns text that makes a package longer than one read.
func filler() string {
	b := make([]byte, 300<<10)
	_, _ = rand.Read(b)
	return string(b)
}

func newNode(t *testing.T) *node {
	t.Helper()
	public, secret, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	at, err := datadir.At(filepath.Join(t.TempDir(), "node"))
	if err != nil {
		t.Fatal(err)
	}
	if err := at.Create(); err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, home: at, secret: secret}
	if err := os.WriteFile(at.UpdateKeysFile(), []byte(base64.StdEncoding.EncodeToString(public)+"\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	n.publish(newVersion, archiveOf(t, "LICENSE", filler(), "./buildnode", "program "+newVersion))
	return n
}

// publish signs an archive as a version.
func (n *node) publish(version string, archive []byte) {
	n.t.Helper()
	sum := sha256.Sum256(archive)
	n.archive = archive
	n.pkg = api.AgentPackage{
		Version: version, OS: runtime.GOOS, Arch: runtime.GOARCH, Size: int64(len(archive)),
		SHA256: hex.EncodeToString(sum[:]),
	}
	n.signAs(n.secret)
}

func (n *node) signAs(secret ed25519.PrivateKey) {
	n.t.Helper()
	text, err := release.Sign(secret, n.pkg)
	if err != nil {
		n.t.Fatal(err)
	}
	if n.pkg, err = release.Parse(text); err != nil {
		n.t.Fatal(err)
	}
}

// RoundTrip acts as the controller.
func (n *node) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	n.mu.Lock()
	n.ranges = append(n.ranges, r.Header.Get("Range"))
	cut, status := n.cut, n.status
	n.mu.Unlock()
	user, password, _ := r.BasicAuth()
	switch {
	case status != 0:
		http.Error(w, "no", status)
	case user != "id" || password != "secret" || r.URL.Path != "/pkg/"+n.pkg.Name:
		http.Error(w, "who?", http.StatusUnauthorized)
	default:
		w.Header().Set("ETag", `"`+n.pkg.SHA256+`"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(n.archive))
	}
	if body := w.Body.Bytes(); cut > 0 && len(body) > cut {
		w.Body = bytes.NewBuffer(body[:cut])
	}
	return w.Result(), nil
}

// ask returns the version that a fake program reports.
func ask(_ context.Context, path string) (string, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm()&0o111 == 0 {
		return "", errors.New("it cannot be run")
	}
	version, ok := strings.CutPrefix(string(raw), "program ")
	if !ok {
		return "", errors.New("exec format error")
	}
	return version, nil
}

// become ends the goroutine, as an exec ends the program.
func (n *node) become(path string) error {
	n.mu.Lock()
	n.became = append(n.became, path)
	broken := n.broken
	n.mu.Unlock()
	if broken != nil {
		return broken
	}
	runtime.Goexit()
	return nil
}

func (n *node) last() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.became) == 0 {
		return ""
	}
	return n.became[len(n.became)-1]
}

const basePath = "/base/buildnode"

// run starts a program as the agent.
func (n *node) run(version, path string) *Updater {
	u := New(Options{
		DataDir:   n.home,
		Identity:  datadir.Identity{NodeID: "id", Credential: "secret", ControllerURL: "http://controller/"},
		Transport: n,
		Version:   version, ProgramPath: path, Logger: slog.New(slog.DiscardHandler), QueryVersion: ask,
		ReplaceProcess: n.become,
	})
	n.t.Cleanup(func() { _ = u.Close() })
	return u
}

func (n *node) base() *Updater { return n.run(oldVersion, basePath) }

// boot starts the base program and returns the version that runs; "" is the base.
func (n *node) boot(version string) string {
	n.t.Helper()
	n.mu.Lock()
	n.became = nil
	n.mu.Unlock()
	done := make(chan error)
	go func() {
		defer close(done)
		if err := Boot(BootOptions{
			DataDir: n.home, Version: version, ProgramPath: basePath, ReplaceProcess: n.become,
			Logger: slog.New(slog.DiscardHandler),
		}); err != nil {
			n.t.Error(err)
		}
	}()
	<-done
	if n.last() == "" {
		return ""
	}
	if _, err := ask(context.Background(), n.last()); err != nil {
		n.t.Errorf("what is begun is not whole: %v", err)
	}
	return filepath.Base(filepath.Dir(n.last()))
}

func (n *node) asked(id string) *api.AgentUpdate { return &api.AgentUpdate{ID: id, Package: n.pkg} }

// settled waits until an updater is idle.
func settled(u *Updater) api.UpdateStatus {
	for {
		if s := u.Status(); s == nil || s.Stage != api.UpdateLoading {
			if s == nil {
				return api.UpdateStatus{}
			}
			return *s
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// swap replaces the process by the version that is ready.
func swap(u *Updater) (err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = u.ReplaceProcess()
	}()
	<-done
	return err
}

func bubble(t *testing.T, test func(t *testing.T, n *node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newNode(t)) })
}

// TestUpdateIsInstalledAndProves tests a whole update, from the request to the next start.
func TestUpdateIsInstalledAndProves(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		u := n.base()
		u.HandleUpdate(nil)
		if u.Status() != nil {
			t.Fatal("it says something of nothing")
		}
		u.HandleUpdate(n.asked("one"))
		if s := settled(u); s.Stage != api.UpdateWaiting || s.ID != "one" {
			t.Fatalf("%+v", s)
		}
		<-u.Ready()
		u.SetWaiting("a script")
		if s := u.Status(); s.Message != "a script" {
			t.Errorf("%+v", s)
		}
		_ = swap(u)
		if n.last() != programPath(n.home, newVersion) {
			t.Fatalf("it became %q", n.last())
		}
		second := n.run(newVersion, n.last())
		if !second.OnTrial() {
			t.Fatal("the new version is not on trial")
		}
		second.HandleUpdate(n.asked("one")) // the controller has not seen its version yet
		if second.OnTrial() || second.Status() != nil {
			t.Errorf("still on trial: %+v", second.Status())
		}
		time.Sleep(2 * trialTimeout)
		for range maxTrialStarts + 2 {
			if got := n.boot(oldVersion); got != newVersion {
				t.Fatalf("the next start runs %q", got)
			}
		}
		if got := n.boot("1.5.0-hand"); got != "" {
			t.Errorf("over a version that was installed by hand, %q runs", got)
		}
		if got := n.boot("1.5.0-hand"); got != "" {
			t.Errorf("and then %q", got)
		}
	})
}

// TestUpdateThatDoesNotProveGoesBack: when it does not reach its controller in time, or ends before
// that.
func TestUpdateThatDoesNotProveGoesBack(t *testing.T) {
	for name, end := range map[string]func(*Updater){
		"silence": func(*Updater) { time.Sleep(trialTimeout + time.Second) },
		"an error": func(u *Updater) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = u.Rollback("the new agent ended: no hypervisor")
			}()
			<-done
		},
	} {
		bubble(t, func(t *testing.T, n *node) {
			u := n.base()
			u.HandleUpdate(n.asked("one"))
			settled(u)
			_ = swap(u)
			n.moveBase()
			end(n.run(newVersion, programPath(n.home, newVersion)))
			if n.last() != n.basePath() {
				t.Fatalf("%s: it became %q", name, n.last())
			}
			if got := n.boot(oldVersion); got != "" {
				t.Errorf("%s: the next start runs %q", name, got)
			}
			back := n.run(oldVersion, n.basePath())
			if s := back.Status(); s == nil || s.Stage != api.UpdateFailed || s.ID != "one" || s.Message == "" {
				t.Fatalf("%s: the old agent says %+v", name, s)
			}
			back.HandleUpdate(n.asked("one")) // not received yet
			if s := back.Status(); s == nil || s.Stage != api.UpdateFailed {
				t.Errorf("%s: it tries again by itself: %+v", name, s)
			}
			back.HandleUpdate(nil)
			if again := n.run(oldVersion, n.basePath()); again.Status() != nil {
				t.Errorf("%s: it says so for ever", name)
			}
		})
	}
}

func (n *node) basePath() string { return filepath.Join(n.home.Path(), "base") }

// moveBase moves the base program to a separate file.
func (n *node) moveBase() {
	n.t.Helper()
	if err := os.WriteFile(n.basePath(), []byte("program "+oldVersion), 0o755); err != nil {
		n.t.Fatal(err)
	}
	s, err := loadState(n.home)
	if err != nil {
		n.t.Fatal(err)
	}
	s.BasePath = n.basePath()
	if err := s.save(n.home); err != nil {
		n.t.Fatal(err)
	}
}

// TestTrialWithoutReturnStays: a program that has not proved itself is better than none.
func TestTrialWithoutReturnStays(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		u := n.base()
		u.HandleUpdate(n.asked("one"))
		settled(u)
		_ = swap(u)
		before := n.last()
		second := n.run(newVersion, before)
		if err := second.Rollback("why"); err == nil || n.last() != before {
			t.Errorf("%v, it became %q", err, n.last())
		}
	})
}

func TestWhatIsNotInstalled(t *testing.T) {
	_, foreign, _ := ed25519.GenerateKey(nil)
	for name, tt := range map[string]struct {
		edit func(n *node)
		want string
	}{
		"a foreign key":  {func(n *node) { n.signAs(foreign) }, "not signed with a trusted key"},
		"no trusted key": {func(n *node) { _ = os.Remove(n.home.UpdateKeysFile()) }, "--update-key"},
		"another platform": {func(n *node) {
			n.pkg.OS = map[string]string{"linux": "darwin", "darwin": "linux"}[runtime.GOOS]
			n.signAs(n.secret)
		}, "and this node is"},
		"an older version": {func(n *node) {
			n.publish("0.9.0-x", n.archive)
		}, "0.9.0-x is older than the running agent"},
		"other bytes": {func(n *node) {
			n.archive = bytes.Repeat([]byte("x"), len(n.archive))
		}, "does not match its signature"},
		"fewer bytes": {func(n *node) { n.archive = n.archive[:100] }, "416"},
		"no archive":  {func(n *node) { n.publish(newVersion, []byte("hello")) }, "the package is not a tar.gz"},
		"no program": {func(n *node) {
			n.publish(newVersion, archiveOf(n.t, "other", "x"))
		}, "the package has no program buildnode"},
		"a link": {func(n *node) {
			n.publish(newVersion, archiveOf(n.t, "buildnode>", ""))
		}, "not a regular file"},
		"an empty program": {func(n *node) {
			n.publish(newVersion, archiveOf(n.t, "buildnode", ""))
		}, "not a regular file"},
		"deeper": {func(n *node) {
			n.publish(newVersion, archiveOf(n.t, "bin/buildnode", "program "+newVersion))
		}, "the package has no program"},
		"one that is broken": {func(n *node) {
			n.publish(newVersion, archiveOf(n.t, "buildnode", "junk"))
		}, "does not run on this node"},
		"another program": {func(n *node) {
			n.publish(newVersion, archiveOf(n.t, "buildnode", "program 7"))
		}, "is version 7, not " + newVersion},
		"not there":         {func(n *node) { n.status = http.StatusNotFound }, "404"},
		"wrong credential":  {func(n *node) { n.status = http.StatusUnauthorized }, "401"},
		"another package":   {func(n *node) { n.status = http.StatusPreconditionFailed }, "now offers another package"},
		"a busy controller": {func(n *node) { n.status = http.StatusServiceUnavailable }, "stalled"},
	} {
		bubble(t, func(t *testing.T, n *node) {
			tt.edit(n)
			u := n.base()
			u.HandleUpdate(n.asked("one"))
			if s := settled(u); s.Stage != api.UpdateFailed || !strings.Contains(s.Message, tt.want) {
				t.Errorf("%s: %+v, want %q", name, s, tt.want)
			}
			if got := n.boot(oldVersion); got != "" {
				t.Errorf("%s: %q runs", name, got)
			}
			if left, _ := os.ReadDir(filepath.Join(n.home.AgentVersionsDir(), newVersion)); len(left) > 0 {
				t.Errorf("%s: it is installed", name)
			}
		})
	}
}

// TestOlderVersionByForce: the controller alone cannot bring back an older agent, only together
// with the node's owner.
func TestOlderVersionByForce(t *testing.T) {
	for _, allowed := range []bool{false, true} {
		bubble(t, func(t *testing.T, n *node) {
			n.publish("0.9.0-x", archiveOf(t, "buildnode", "program 0.9.0-x"))
			u := n.base()
			u.opts.AllowDowngrade = allowed
			asked := n.asked("one")
			asked.Force = true
			u.HandleUpdate(asked)
			s := settled(u)
			if allowed && s.Stage != api.UpdateWaiting ||
				!allowed &&
					(s.Stage != api.UpdateFailed ||
						!strings.Contains(s.Message,
							"the owner of this node does not allow that: run it with --allow-downgrade")) {
				t.Errorf("allowed %t: %+v", allowed, s)
			}
		})
	}
}

// TestDownloadContinues: bytes from a broken connection or a killed agent are kept.
func TestDownloadContinues(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		n.cut = 100 << 10
		u := n.base()
		u.HandleUpdate(n.asked("one"))
		for u.Status().Progress < 0.5 {
			time.Sleep(10 * time.Millisecond)
		}
		if s := u.Status(); s.Stage != api.UpdateLoading || s.Progress >= 1 {
			t.Errorf("%+v", s)
		}
		_ = u.Close()
		n.mu.Lock()
		want := fmt.Sprintf("bytes=%d-", len(n.ranges)*int(n.cut))
		n.cut, n.ranges = 0, nil
		n.mu.Unlock()
		u = n.base()
		u.HandleUpdate(n.asked("two"))
		if s := settled(u); s.Stage != api.UpdateWaiting || len(n.ranges) != 1 || n.ranges[0] != want {
			t.Errorf("%+v, asked for %q, want %q", s, n.ranges, want)
		}
	})
}

// TestUpdateThatIsTakenBack: an update that is no longer requested is not carried out, whatever its
// progress.
func TestUpdateThatIsTakenBack(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		u := n.base()
		u.HandleUpdate(n.asked("one"))
		settled(u)
		u.HandleUpdate(nil)
		select {
		case <-u.Ready():
			t.Error("it is ready")
		default:
		}
		if err := swap(u); err == nil || n.last() != "" {
			t.Errorf("%v, became %q", err, n.last())
		}
	})
}

// TestProgramThatCannotBegin: the old program continues, and reports why.
func TestProgramThatCannotBegin(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		u := n.base()
		u.HandleUpdate(n.asked("one"))
		settled(u)
		n.broken = errors.New("text file busy")
		if err := swap(u); err == nil {
			t.Fatal("no error")
		}
		_ = u.Close()
		again := n.base()
		if s := again.Status(); s == nil || s.Stage != api.UpdateFailed ||
			!strings.Contains(s.Message, "text file busy") {
			t.Errorf("%+v", s)
		}
		n.broken = nil
		if got := n.boot(oldVersion); got != "" {
			t.Errorf("%q runs", got)
		}
	})
}

// copyHome copies the data directory as a kill would leave it now.
func (n *node) copyHome() datadir.Dir {
	n.t.Helper()
	dir := n.t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(n.home.Path())); err != nil {
		n.t.Fatal(err)
	}
	at, err := datadir.At(dir)
	if err != nil {
		n.t.Fatal(err)
	}
	return at
}

// TestKilledAnywhere: whatever step a kill comes after, the next start runs the old version or the
// new one, complete, and the next attempt succeeds.
func TestKilledAnywhere(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		left := map[string]datadir.Dir{"before": n.copyHome()}
		u := New(Options{
			DataDir: n.home, Identity: datadir.Identity{
				NodeID: "id", Credential: "secret", ControllerURL: "http://controller",
			}, Transport: n,
			Version: oldVersion, ProgramPath: basePath, Logger: slog.New(slog.DiscardHandler),
			QueryVersion: func(ctx context.Context, path string) (string, error) {
				left["unpacked"] = n.copyHome()
				return ask(ctx, path)
			},
			ReplaceProcess: func(path string) error {
				left["written"] = n.copyHome()
				return n.become(path)
			},
		})
		defer func() { _ = u.Close() }()
		u.HandleUpdate(n.asked("one"))
		settled(u)
		left["renamed"] = n.copyHome()
		_ = swap(u)
		want := map[string]string{"before": "", "unpacked": "", "renamed": "", "written": newVersion}
		if len(left) != len(want) {
			t.Fatalf("%d steps were seen", len(left))
		}
		for step, at := range left {
			killed := &node{t: t, home: at, secret: n.secret, archive: n.archive, pkg: n.pkg}
			if got := killed.boot(oldVersion); got != want[step] {
				t.Errorf("after %q: %q runs, want %q", step, got, want[step])
			}
			if want[step] != "" {
				continue
			}
			next := killed.base()
			next.HandleUpdate(killed.asked("two"))
			if s := settled(next); s.Stage != api.UpdateWaiting {
				t.Errorf("after %q: the next try: %+v", step, s)
			}
			_ = filepath.WalkDir(at.AgentVersionsDir(), func(name string, _ fs.DirEntry, _ error) error {
				if strings.HasPrefix(filepath.Base(name), ".") {
					t.Errorf("after %q: %s is left", step, name)
				}
				return nil
			})
		}
	})
}
