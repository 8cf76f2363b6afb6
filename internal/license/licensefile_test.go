package license

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// place is a directory with an authority and a license file.
type place struct {
	t      *testing.T
	dir    string
	secret ed25519.PrivateKey
}

func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{t: t, dir: t.TempDir()}
	if err := GenerateKeys(p.path("authority.key"), p.authority()); err != nil {
		t.Fatal(err)
	}
	var err error
	if p.secret, err = ReadSecret(p.path("authority.key")); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *place) path(name string) string { return filepath.Join(p.dir, name) }
func (p *place) authority() string       { return p.path("authority.pub") }
func (p *place) file() string            { return p.path("licence") }

func (p *place) write(text string) {
	p.t.Helper()
	if err := os.WriteFile(p.file(), []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// install puts a license active for a time; 0 is indefinitely.
func (p *place) install(tier farm.Tier, length time.Duration) {
	l := License{Product: Controller, Tier: tier, Subject: "us"}
	if length != 0 {
		l.Expires = time.Now().Add(length)
	}
	p.write("# for us\n" + mustIssue(p.t, p.secret, l) + "\n\n")
}

func (p *place) options() Options {
	return Options{Product: Controller, Path: p.file(), AuthorityFile: p.authority()}
}

func (p *place) open() *File {
	p.t.Helper()
	f, err := Open(p.options())
	if err != nil {
		p.t.Fatal(err)
	}
	return f
}

func TestKeygenReplacesNothing(t *testing.T) {
	p := newPlace(t)
	st, err := os.Stat(p.path("authority.key"))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", st.Mode(), err)
	}
	before, _ := os.ReadFile(p.path("authority.key"))
	for _, names := range [][2]string{{"authority.key", "new.pub"}, {"new.key", "authority.pub"}} {
		if err := GenerateKeys(p.path(names[0]), p.path(names[1])); err == nil ||
			!strings.Contains(err.Error(), "never replaced") {
			t.Errorf("%v: %v", names, err)
		}
	}
	for _, name := range []string{"new.key", "new.pub"} {
		if _, err := os.Stat(p.path(name)); err == nil {
			t.Errorf("%s was made beside a file that is there", name)
		}
	}
	if after, _ := os.ReadFile(p.path("authority.key")); !bytes.Equal(before, after) {
		t.Error("the secret changed")
	}
	if _, err := ReadSecret(p.authority() + "x"); err == nil {
		t.Error("a missing secret is read")
	}
}

func TestKeyFilesAreNotConfused(t *testing.T) {
	p := newPlace(t)
	if _, err := ReadSecret(p.authority()); err == nil || !strings.Contains(err.Error(), "has a public key") {
		t.Errorf("a public key signs: %v", err)
	}
	for _, load := range []func(string) error{
		func(path string) error { _, err := LoadPublicKey(path); return err },
		func(path string) error { _, err := LoadTrustedKeys(path); return err },
	} {
		if err := load(p.path("authority.key")); err == nil || !strings.Contains(err.Error(), "has a private key") {
			t.Errorf("a private key is trusted: %v", err)
		}
	}

	// The same files serve licenses, databases and packages, so errors name the kind of file.
	if _, err := ReadSecret(p.path("none")); err == nil || !strings.HasPrefix(err.Error(), "read private key file: ") {
		t.Errorf("got %v", err)
	}
	_, err := LoadPublicKey(p.path("none"))
	if err == nil || !strings.HasPrefix(err.Error(), "read public key file: ") {
		t.Errorf("got %v", err)
	}
}

func TestAuthorityFiles(t *testing.T) {
	a, _ := authority(t)
	b, _ := authority(t)
	line := func(k ed25519.PublicKey) string { return base64.StdEncoding.EncodeToString(k) }
	got, err := ParseTrustedKeys([]byte("# ours\r\n" + line(a[0]) + " the first one\r\n\n  " + line(b[0]) + "\n"))
	if err != nil || len(got) != 2 || !got[0].Equal(a[0]) || !got[1].Equal(b[0]) {
		t.Errorf("%v, %v", got, err)
	}
	for text, want := range map[string]string{
		"": "no public key", "# nothing\n": "no public key", line(a[0])[:40] + "\n": "line 1 is not a public key",
		"\n" + line(a[0]) + "x":                    "line 2 is not",
		strings.Repeat(line(a[0])+"\n", maxKeys+1): "more than 100 public keys",
		strings.Repeat("x", 70<<10):                "too long",
	} {
		if _, err := ParseTrustedKeys([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.30q: want %q, got %v", text, want, err)
		}
	}
}

// TestKeygenNamesWhatFailed: nothing is written where one of the two files cannot be, and the error
// has the reason.
func TestKeygenNamesWhatFailed(t *testing.T) {
	p := newPlace(t)
	long := p.path(strings.Repeat("x", 300))
	for _, c := range []struct {
		do   func() error
		want string
	}{
		{func() error { return GenerateKeys(p.path("authority.key/new.key"), p.path("new.pub")) }, "mkdir " +
			p.path("authority.key")},
		{func() error { return GenerateKeys(long, p.path("new.pub")) }, "file name too long"},
		{func() error { return GenerateKeys(p.path("new.key"), long) }, "file name too long"},
		// made after Keygen has looked
		{func() error { return createFile(p.authority(), 0o600, "") }, "never replaced"},
	} {
		if err := c.do(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("want %q, got %v", c.want, err)
		}
	}
	if _, err := os.Stat(p.path("new.pub")); err == nil {
		t.Error("a public key without its secret was written")
	}
}

func TestSecretsAreRead(t *testing.T) {
	p := newPlace(t)
	seed := base64.StdEncoding.EncodeToString(p.secret.Seed())
	for text, good := range map[string]bool{
		"# mine\n\n  " + seed + "\n": true, seed: true,
		"": false, "# nothing\n": false, "junk": false, seed[:40]: false, seed + "\x00": false,
	} {
		if err := os.WriteFile(p.path("secret"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := ReadSecret(p.path("secret"))
		if (err == nil) != good || good && !got.Equal(p.secret) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := ReadSecret(p.path("none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing secret: %v", err)
	}
}

func TestLoadKey(t *testing.T) {
	p := newPlace(t)
	if key, err := LoadPublicKey(p.authority()); err != nil || !key.Equal(p.secret.Public()) {
		t.Errorf("%x, %v", key, err)
	}
	one, _ := os.ReadFile(p.authority())
	if err := os.WriteFile(p.path("two"), append(one, one...), 0o600); err != nil {
		t.Fatal(err)
	}
	if key, err := LoadPublicKey(p.path("two")); err == nil || !strings.Contains(err.Error(), "2 public keys") {
		t.Errorf("of two keys: %x, %v", key, err)
	}
	if _, err := LoadPublicKey(p.path("none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

// TestWithoutHome: a user without a home has no authority, and one in the present directory is none.
func TestWithoutHome(t *testing.T) {
	p := newPlace(t)
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("HOME", "")
	t.Chdir(p.dir)
	if err := os.Mkdir("buildyard", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(AuthorityFile, filepath.Join("buildyard", AuthorityFile)); err != nil {
		t.Fatal(err)
	}
	if trust, err := LoadTrustedKeys(""); err != nil || len(trust) != countSystem(t) || UserDir() != "" {
		t.Errorf("%d keys, %q, %v", len(trust), UserDir(), err)
	}
}

func TestTrustIsLookedFor(t *testing.T) {
	p := newPlace(t)
	t.Setenv("XDG_CONFIG_HOME", p.path("config"))
	t.Setenv("HOME", p.dir)
	if trust, err := LoadTrustedKeys(""); err != nil || len(trust) != countSystem(t) {
		t.Fatalf("%d keys without a user's file, %v", len(trust), err)
	}
	if err := GenerateKeys(p.path("user.key"), filepath.Join(UserDir(), AuthorityFile)); err != nil {
		t.Fatal(err)
	}
	if trust, err := LoadTrustedKeys(""); err != nil || len(trust) != countSystem(t)+1 {
		t.Errorf("%d keys with a user's file, %v", len(trust), err)
	}
	if _, err := LoadTrustedKeys(p.path("none")); err == nil {
		t.Error("a named file may be missing")
	}
	if err := os.WriteFile(filepath.Join(UserDir(), AuthorityFile), []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadTrustedKeys(""); err == nil {
		t.Error("a broken authority is passed over")
	}
}

// countSystem is the number of keys that this machine has for all its programs.
func countSystem(t *testing.T) int {
	t.Helper()
	trust, err := readTrustedKeys(filepath.Join(SystemDir, AuthorityFile))
	if err != nil {
		return 0
	}
	return len(trust)
}

func TestWithoutLicenseAllIsOpen(t *testing.T) {
	f, err := Open(Options{Product: Controller})
	if err != nil || f.Tier() != farm.TierEnterprisePlus || f.Alarm() != "" {
		t.Errorf("%v, %q, %v", f.Tier(), f.Alarm(), err)
	}
	var none *File
	if none.Tier() != farm.TierEnterprisePlus || none.Alarm() != "" || none.License() != (License{}) {
		t.Error("a program without a licence file")
	}
}

func TestBrokenFilesRefuseTheStart(t *testing.T) {
	p := newPlace(t)
	other := newPlace(t)
	other.install(farm.TierBasic, 0)
	foreign, _ := os.ReadFile(other.file())
	wrong := mustIssue(t, p.secret, License{Product: Node, Tier: farm.TierBasic})
	for name, text := range map[string]string{
		"the file is empty": "\n# nothing\n", "not a license key": "hello",
		"not signed by a trusted license authority":                    string(foreign),
		"the license key is for another product: node, not controller": wrong, "more than one line": wrong + "\n" +
			wrong,
		"larger than": strings.Repeat("\n", maxFileBytes+1),
	} {
		p.write(text)
		if _, err := Open(p.options()); err == nil || !strings.Contains(err.Error(), name) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("want %q, got %v", name, err)
		}
	}
	o := p.options()
	o.AuthorityFile = p.path("none")
	p.write(wrong)
	if _, err := Open(o); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without its authority: %v", err)
	}
	if err := os.Remove(p.file()); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(p.options()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is missing: %v", err)
	}
}

func TestExpiryLeavesBasic(t *testing.T) {
	p := newPlace(t)
	synctest.Test(t, func(t *testing.T) {
		p.install(farm.TierEnterprisePlus, 20*24*time.Hour)
		f := p.open()
		for _, step := range []struct {
			wait  time.Duration
			tier  farm.Tier
			alarm string
		}{
			{0, farm.TierEnterprisePlus, ""},
			{7 * 24 * time.Hour, farm.TierEnterprisePlus, "expires on 2000-01-21"},
			{13*24*time.Hour - time.Second, farm.TierEnterprisePlus, "expires on 2000-01-21"},
			{time.Second, farm.TierBasic, "expired on 2000-01-21"},
		} {
			time.Sleep(step.wait)
			if f.Tier() != step.tier || !strings.Contains(f.Alarm(), step.alarm) ||
				(step.alarm == "") != (f.Alarm() == "") {
				t.Errorf("after %s: %s, %q", step.wait, f.Tier(), f.Alarm())
			}
		}
		if again := p.open(); again.Tier() != farm.TierBasic { // an expired license does not refuse the start
			t.Errorf("after a restart: %s", again.Tier())
		}
	})
}

// TestAlarmReportsWhatIsLost: a node gets no VMs, a controller refuses what its tier does not open.
func TestAlarmReportsWhatIsLost(t *testing.T) {
	for product, want := range map[Product]string{
		Controller: "what needs more than the tier basic is refused", Node: "this node gets no new VMs",
	} {
		p := newPlace(t)
		p.write(mustIssue(t, p.secret,
			License{Product: product, Tier: farm.TierEnterprise, Expires: time.Now().Add(-time.Hour)}))
		o := p.options()
		o.Product = product
		f, err := Open(o)
		if err != nil || !strings.Contains(f.Alarm(), want) {
			t.Errorf("%s: %q, %v", product, f.Alarm(), err)
		}
	}
}

// TestRunReportsWhatIsInForce: until when the license is valid; without one there is nothing to follow.
func TestRunReportsWhatIsInForce(t *testing.T) {
	p := newPlace(t)
	synctest.Test(t, func(t *testing.T) {
		p.install(farm.TierBasic, time.Hour)
		for path, want := range map[string]string{
			p.file(): "expires=2000-01-01T01:00:00Z", "": "no license installed",
		} {
			said := &notes{}
			o := p.options()
			o.Path, o.Logger = path, slog.New(slog.NewTextHandler(said, nil))
			f, err := Open(o)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			f.Run(ctx)
			if ended := ctx.Err() == nil; ended != (path == "") || !strings.Contains(said.String(), want) {
				t.Errorf("%q: ended %t, log:\n%s", path, ended, said)
			}
			cancel()
		}
	})
}

// notes records what is logged.
type notes struct {
	mu   sync.Mutex
	text strings.Builder
}

func (n *notes) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.Write(p)
}

func (n *notes) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.String()
}

// TestChangesAreFollowed: a valid license counts within seconds, and no accident with the
// file opens or closes anything.
func TestChangesAreFollowed(t *testing.T) {
	p := newPlace(t)
	synctest.Test(t, func(t *testing.T) {
		p.install(farm.TierBasic, 0)
		said := &notes{}
		o := p.options()
		o.Logger = slog.New(slog.NewTextHandler(said, nil))
		f, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); f.Run(ctx) }()
		check := func(tier farm.Tier, alarm string) {
			t.Helper()
			time.Sleep(checkInterval + time.Second)
			synctest.Wait()
			if f.Tier() != tier || !strings.Contains(f.Alarm(), alarm) || (alarm == "") != (f.Alarm() == "") {
				t.Errorf("tier %s, alarm %q; want %s, %q", f.Tier(), f.Alarm(), tier, alarm)
			}
		}
		check(farm.TierBasic, "")
		p.write("junk")
		check(farm.TierBasic, "the previous license stays active")
		if err := os.Remove(p.file()); err != nil {
			t.Fatal(err)
		}
		check(farm.TierBasic, "the previous license stays active")
		p.install(farm.TierEnterprise, 0)
		check(farm.TierEnterprise, "")
		check(farm.TierEnterprise, "")
		cancel()
		<-done
		if text := said.String(); strings.Count(text, "alarm=") != 2 ||
			strings.Count(text, `license replaced" tier=enterprise`) != 1 ||
			strings.Count(text, "expires=never") != 2 {
			t.Errorf("log:\n%s", text)
		}
	})
}
