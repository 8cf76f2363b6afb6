package checksums

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// signed returns a directory with two signed files of a release, and the files of a key pair.
func signed(t *testing.T, version string) (dir, secret, public string) {
	t.Helper()
	dir, keys := t.TempDir(), t.TempDir()
	secret, public = filepath.Join(keys, "release.key"), filepath.Join(keys, "release.pub")
	if err := GenerateKey(secret, public); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "a.tar.gz", "one")
	write(t, dir, "b.deb", "two")
	sign(t, dir, secret, version)
	return dir, secret, public
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func sign(t *testing.T, dir, secret, version string) {
	t.Helper()
	if names, err := Sign(dir, secret, version); err != nil || !slices.Equal(names, []string{"a.tar.gz", "b.deb"}) {
		t.Fatalf("signed %v, %v", names, err)
	}
}

func TestVerify(t *testing.T) {
	const version = "1.2.0-abc"
	dir, secret, public := signed(t, version)
	for path, want := range map[string][]string{
		dir: {"a.tar.gz", "b.deb"}, filepath.Join(dir, "b.deb"): {"b.deb"},
	} {
		v, err := Verify(path, public, version)
		if err != nil || v.Version != version || !slices.Equal(v.Files, want) {
			t.Errorf("%s: %+v, %v", path, v, err)
		}
	}
	if info, err := os.Stat(secret); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the secret key: %v, %v", info.Mode(), err)
	}
	if err := GenerateKey(secret, public); err == nil {
		t.Error("a key was replaced")
	}
}

// TestRefused: no change of the files, of the list or of its signature is accepted.
func TestRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(t *testing.T, dir string)
		want   string
	}{
		"changed byte": {func(t *testing.T, dir string) {
			write(t, dir, "a.tar.gz", "onf")
		}, "not the file that was signed"},
		"swapped files": {func(t *testing.T, dir string) {
			write(t, dir, "a.tar.gz", "two")
			write(t, dir, "b.deb", "one")
		}, "not the file that was signed"},
		"missing file": {func(t *testing.T, dir string) {
			_ = os.Remove(filepath.Join(dir, "b.deb"))
		}, "not in the directory"},
		"another file": {func(t *testing.T, dir string) {
			write(t, dir, "c.rpm", "x")
		}, "c.rpm is not in the signed list"},
		"directory": {func(t *testing.T, dir string) { _ = os.Mkdir(filepath.Join(dir, "d"), 0o700) }, "not a file"},
		"link": {func(t *testing.T, dir string) {
			_ = os.Remove(filepath.Join(dir, "b.deb"))
			_ = os.Symlink("a.tar.gz", filepath.Join(dir, "b.deb"))
		}, "not a file"},
		"changed list": {func(t *testing.T, dir string) {
			write(t, dir, "a.tar.gz", "x")
			if _, err := WriteList(dir); err != nil {
				t.Fatal(err)
			}
		}, "not signed by this key"},
		"changed version": {func(t *testing.T, dir string) {
			raw, err := os.ReadFile(filepath.Join(dir, SignatureFile))
			if err != nil {
				t.Fatal(err)
			}
			write(t, dir, SignatureFile, strings.Replace(string(raw), "1.2.0", "9.2.0", 1))
		}, "not signed by this key"},
		"no signature": {func(t *testing.T, dir string) {
			_ = os.Remove(filepath.Join(dir, SignatureFile))
		}, "no such file"},
		"no text": {func(t *testing.T, dir string) {
			write(t, dir, SignatureFile, "\n\n\n")
		}, "read " + SignatureFile},
		"long list": {
			func(t *testing.T, dir string) { write(t, dir, ListFile, strings.Repeat("x", maxListBytes+1)) },
			"more than",
		},
	} {
		dir, _, public := signed(t, "1.2.0-abc")
		tt.change(t, dir)
		if _, err := Verify(dir, public, ""); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

func TestForeignKey(t *testing.T) {
	dir, _, _ := signed(t, "1.2.0-abc")
	_, _, other := signed(t, "1.2.0-abc")
	if _, err := Verify(dir, other, ""); !errors.Is(err, ErrSignature) {
		t.Errorf("%v, want a foreign key", err)
	}
}

// TestOlderList: the list of an older release, validly signed, is not accepted in the place of a newer one.
func TestOlderList(t *testing.T) {
	dir, secret, public := signed(t, "1.1.0-abc")
	_, err := Verify(dir, public, "1.2.0-abc")
	if err == nil || !strings.Contains(err.Error(), "older than 1.2.0-abc") {
		t.Errorf("%v, want that it is older", err)
	}
	if _, err := Verify(dir, public, ""); err != nil {
		t.Errorf("older releases are allowed: %v", err)
	}
	if _, err := Sign(dir, secret, "../x"); err == nil {
		t.Error("an invalid version was signed")
	}
}

func FuzzParseList(f *testing.F) {
	sum := strings.Repeat("0a", 32)
	f.Add(sum + "  a.deb\n" + sum + "  b.rpm\n")
	f.Add(sum + "  ../a\n")
	f.Fuzz(func(t *testing.T, text string) {
		sums, err := parseList([]byte(text))
		if err != nil {
			return
		}
		for _, name := range slices.Sorted(maps.Keys(sums)) {
			if name != filepath.Base(name) || len(sums[name]) != 64 {
				t.Errorf("%q has the sum %q", name, sums[name])
			}
		}
	})
}
