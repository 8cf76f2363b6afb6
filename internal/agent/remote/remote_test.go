package remote_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/buildyard/buildyard/internal/agent/remote"
	"github.com/buildyard/buildyard/internal/farm"
)

func load(t *testing.T, file string) *remote.List {
	t.Helper()
	l, err := remote.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestLastAddedIsCurrent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "registries.json")
	if _, err := load(t, file).Resolve(""); farm.CodeOf(err) != farm.CodeRefused {
		t.Errorf("with none: %v", err)
	}
	for _, r := range []remote.Registry{
		{Name: "a", URL: "http://a:1"}, {Name: "b", URL: "https://b:2"}, {Name: "c", URL: "http://c:3"},
	} {
		if err := load(t, file).Add(r); err != nil {
			t.Fatal(err)
		}
	}
	current := func() string {
		r, err := load(t, file).Resolve("")
		if err != nil {
			t.Fatal(err)
		}
		return r.Name
	}
	if got := current(); got != "c" {
		t.Errorf("current is %s", got)
	}
	if err := load(t, file).SetCurrent("a"); err != nil || current() != "a" {
		t.Errorf("set: %v, current %s", err, current())
	}
	if err := load(t, file).Remove("a"); err != nil || current() != "c" {
		t.Errorf("remove: %v, current %s", err, current())
	}
	if err := load(t, file).Add(remote.Registry{Name: "b", URL: "http://b:9"}); err != nil || current() != "b" {
		t.Errorf("add again: %v, current %s", err, current())
	}
	if l := load(t, file); len(l.Registries) != 2 {
		t.Errorf("list %+v", l.Registries)
	}
	if r, err := load(t, file).Resolve("http://x:5"); err != nil || r.URL != "http://x:5" {
		t.Errorf("an address: %+v, %v", r, err)
	}
}

func TestRefusals(t *testing.T) {
	file := filepath.Join(t.TempDir(), "registries.json")
	l := load(t, file)
	for name, address := range map[string]string{
		"": "http://a", "a b": "http://a", "a": "a:8089", "b": "ftp://a", "c": "",
	} {
		if err := l.Add(remote.Registry{Name: name, URL: address}); farm.CodeOf(err) != farm.CodeInvalid {
			t.Errorf("add %q %q: %v", name, address, err)
		}
	}
	for _, err := range []error{l.SetCurrent("x"), l.Remove("x")} {
		if farm.CodeOf(err) != farm.CodeNotFound {
			t.Errorf("an unknown name: %v", err)
		}
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := remote.Load(file); err == nil {
		t.Error("a damaged file is read")
	}
}
