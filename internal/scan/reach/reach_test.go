package reach_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/executable"
	"github.com/buildyard/buildyard/internal/scan/match"
	"github.com/buildyard/buildyard/internal/scan/reach"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// build builds the program of the tests. It is of package main of this module.
func build(t *testing.T, env []string, flags ...string) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "program")
	cmd := exec.CommandContext(t.Context(), "go", append(append([]string{"build", "-o", out}, flags...),
		"./testdata/program")...)
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0"), env...)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	data, err := os.ReadFile(out)
	check(t, err)
	return data
}

// tree are the files of a source.
type tree struct{ fs.FS }

func (f tree) OpenFile(ctx context.Context, location string) (catalog.Content, int64, io.Closer, error) {
	return catalog.OpenFile(ctx, f.FS, strings.TrimPrefix(location, "/"))
}

func (tree) Close() error { return nil }

// records is the code of advisories, by ID. Each is about all modules.
type records map[string][]vulndb.AffectedCode

func (r records) AffectedCode(advisory, _ string) ([]vulndb.AffectedCode, error) {
	if advisory == "GO-broken" {
		return nil, vulndb.ErrDamaged
	}
	return r[advisory], nil
}

func code(path string, symbols ...string) []vulndb.AffectedCode {
	return []vulndb.AffectedCode{{Packages: []vulndb.CodePackage{{Path: path, Symbols: symbols}}}}
}

const (
	ownPath   = "github.com/buildyard/buildyard/internal/scan/reach/testdata/program"
	modModule = "golang.org/x/mod"
)

// asked are the advisories with the state that each has in the program.
var asked = []struct {
	module, path string
	symbols      []string
	state        match.Reachability
	functions    string
}{
	{"stdlib", "path", []string{"Base"}, match.Linked, "path.Base"},
	{"stdlib", "path", []string{"Match"}, match.NotLinked, ""},
	{"stdlib", "path", nil, match.Linked, "path"},
	{"stdlib", "net/http", nil, match.NotLinked, ""},
	{"stdlib", "container/list", []string{"New"}, match.Linked, "container/list.New"}, // inlined everywhere
	{"stdlib", "container/list", []string{"List.Init"}, match.Linked, "container/list.List.Init"},
	{"stdlib", "container/list", []string{"List.PushBack", "z"}, match.Linked, "container/list.List.PushBack"},
	{"stdlib", "container/list", []string{"List.MoveToBack"}, match.NotLinked, ""},
	{"stdlib", "slices", []string{"SortFunc"}, match.Linked, "slices.SortFunc"}, // generic
	{modModule, modModule + "/semver", []string{"Compare"}, match.Linked, modModule + "/semver.Compare"},
	{modModule, modModule + "/semver", []string{"ByVersion.Less"}, match.NotLinked, ""},
	{modModule, modModule + "/modfile", []string{"Parse"}, match.NotLinked, ""},
	{"own", ownPath, []string{"pair.swap"}, match.Linked, ownPath + ".pair.swap"},
	{"own", ownPath, []string{"pair.more"}, match.NotLinked, ""},
}

// findingsOf returns a finding for each of asked, and their advisories.
func findingsOf(t *testing.T, data []byte, location string) ([]match.Finding, records) {
	t.Helper()
	programs, err := executable.OpenGo(bytes.NewReader(data), int64(len(data)))
	check(t, err)
	db := records{}
	var out []match.Finding
	for i, a := range asked {
		id := fmt.Sprintf("GO-2026-%04d", i)
		db[id] = code(a.path, a.symbols...)
		for _, m := range programs[0].Modules() {
			if m.Package.Name == a.module || a.module == "own" && m.Path == "github.com/buildyard/buildyard" {
				m.Package.Locations = []string{location}
				out = append(out, match.Finding{Package: m.Package, Source: vulndb.GoVuln, Advisory: id})
			}
		}
	}
	if len(out) != len(asked) {
		t.Fatalf("%d of %d findings", len(out), len(asked))
	}
	return out, db
}

func resolve(t *testing.T, db reach.DB, files fstest.MapFS, findings []match.Finding) []reach.Unread {
	t.Helper()
	unread, err := reach.Resolve(t.Context(), db, findings, func() (reach.Files, error) { return tree{files}, nil })
	check(t, err)
	return unread
}

// TestPrograms: programs of each form have the same functions, also when they were stripped.
func TestPrograms(t *testing.T) {
	for name, c := range map[string]struct {
		env   []string
		flags []string
	}{
		"plain":             {},
		"stripped":          {flags: []string{"-ldflags=-s -w", "-trimpath"}},
		"PIE":               {[]string{"GOOS=linux", "GOARCH=amd64"}, []string{"-buildmode=pie"}},
		"stripped PIE":      {[]string{"GOOS=linux", "GOARCH=amd64"}, []string{"-buildmode=pie", "-ldflags=-s -w"}},
		"windows":           {env: []string{"GOOS=windows", "GOARCH=amd64"}},
		"stripped, windows": {[]string{"GOOS=windows", "GOARCH=amd64"}, []string{"-ldflags=-s -w"}},
		"darwin":            {env: []string{"GOOS=darwin", "GOARCH=arm64"}},
		"stripped, darwin":  {[]string{"GOOS=darwin", "GOARCH=arm64"}, []string{"-ldflags=-s -w"}},
		"big endian":        {env: []string{"GOOS=linux", "GOARCH=mips"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := build(t, c.env, c.flags...)
			findings, db := findingsOf(t, data, "/usr/bin/program")
			files := fstest.MapFS{"usr/bin/program": {Data: data}}
			if unread := resolve(t, db, files, findings); len(unread) > 0 {
				t.Errorf("unread: %+v", unread)
			}
			for i, f := range findings {
				want := []match.LinkState{{State: asked[i].state}}
				if asked[i].functions != "" {
					want[0].Functions = []string{asked[i].functions}
				}
				if diff := cmp.Diff(want, f.Reachable); diff != "" {
					t.Errorf("%s %q: %s", asked[i].path, asked[i].symbols, diff)
				}
			}
		})
	}
}

// TestUnknown: what cannot be read, or is named by no advisory, is unknown, also where the same package is linked
// elsewhere.
func TestUnknown(t *testing.T) {
	data := build(t, nil)
	all, db := findingsOf(t, data, "/bin/a")
	linked, notLinked := all[0], all[1]
	p := linked.Package
	other := p
	other.Version = "1.0.1"
	damaged := bytes.ReplaceAll(data, []byte("runtime.goexit\x00"), []byte("runtime.goexitx"))
	for i := range damaged { // no version of a table that is known
		if bytes.HasPrefix(damaged[i:], []byte{0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8}) {
			damaged[i] = 0xf2
		}
	}
	files := fstest.MapFS{
		"bin/a": {Data: data}, "bin/damaged": {Data: damaged}, "src/go.mod": {Data: []byte("module m\n")},
		"bin/script": {Data: []byte("#!/bin/sh\nexit 0\n")}, "bin/dir/x": {},
	}
	at := func(f match.Finding, locations ...string) match.Finding {
		f.Package.Locations = locations
		return f
	}
	ranges := []vulndb.Range{{Introduced: "99.0"}}
	db["none"], db["partly"] = nil, append(code("path", "Match"), vulndb.AffectedCode{})
	db["elsewhere"] = []vulndb.AffectedCode{{Ranges: ranges, Packages: code("path", "Base")[0].Packages}}
	db["windows"] = []vulndb.AffectedCode{{Packages: []vulndb.CodePackage{
		{Path: "path", Symbols: []string{"Base"}, GOOS: []string{"windows"}},
	}}}
	db["ranges"] = append(slices.Clone(db["elsewhere"]), vulndb.AffectedCode{
		Ranges: []vulndb.Range{{Fixed: "99.0"}}, Packages: code("path", "Match")[0].Packages,
	})
	npm := match.Finding{Package: catalog.Package{Kind: catalog.NPM, Locations: []string{"/bin/a"}}}
	ghsa := match.Finding{Package: p, Source: vulndb.GHSA, Advisory: "GHSA-1"}
	ghsa.Vulnerability.Related = []string{"GHSA-1", linked.Advisory}
	advisory := func(id string) match.Finding { return match.Finding{Package: p, Advisory: id} }
	for name, tc := range map[string]struct {
		finding match.Finding
		want    string // of its locations
		all     match.Reachability
		unread  string
	}{
		"linked in one": {at(linked, "/bin/a", "/bin/damaged"), "linked, unknown", match.Linked, "/bin/damaged"},
		"not linked in one": {
			at(notLinked, "/bin/a", "/bin/damaged"), "not linked, unknown", match.LinkUnknown, "/bin/damaged",
		},
		"not linked in both": {at(notLinked, "/bin/a", "/bin/a"), "not linked, not linked", match.NotLinked, ""},
		"of a go.mod":        {at(linked, "/src/go.mod"), "unknown", match.LinkUnknown, ""},
		"not a program":      {at(linked, "/bin/script"), "unknown", match.LinkUnknown, ""},
		"missing":            {at(linked, "/bin/missing"), "unknown", match.LinkUnknown, "/bin/missing"},
		"directory":          {at(linked, "/bin/dir"), "unknown", match.LinkUnknown, "/bin/dir"},
		"another version": {
			match.Finding{Package: other, Advisory: linked.Advisory}, "unknown", match.LinkUnknown, "",
		},
		"without code":         {advisory("none"), "unknown", match.LinkUnknown, ""},
		"of another platform":  {advisory("windows"), "not linked", match.NotLinked, ""},
		"of another version":   {advisory("elsewhere"), "unknown", match.LinkUnknown, ""},
		"by the version":       {advisory("ranges"), "not linked", match.NotLinked, ""},
		"partly without":       {advisory("partly"), "unknown", match.LinkUnknown, ""},
		"by another record":    {ghsa, "linked", match.Linked, ""},
		"of another ecosystem": {npm, "", "", ""},
	} {
		list := []match.Finding{tc.finding}
		unread := resolve(t, db, files, list)
		var states, places []string
		for _, s := range list[0].Reachable {
			states = append(states, string(s.State))
		}
		for _, u := range unread {
			places = append(places, u.Location)
		}
		if got := strings.Join(states, ", "); got != tc.want || list[0].Reachability() != tc.all {
			t.Errorf("%s: %q, %q, want %q, %q", name, got, list[0].Reachability(), tc.want, tc.all)
		}
		if got := strings.Join(places, ", "); got != tc.unread {
			t.Errorf("%s: unread %q, want %q", name, got, tc.unread)
		}
	}
}

// TestErrors: a source that cannot be opened leaves all unknown; a damaged database and an interrupt are errors.
func TestErrors(t *testing.T) {
	p := catalog.Package{Kind: catalog.Go, Name: "stdlib", Version: "1.26.0", Locations: []string{"/bin/a"}}
	db := records{"GO-1": code("path", "Base")}
	list := []match.Finding{{Package: p, Advisory: "GO-1"}}
	gone := errors.New("gone")
	unread, err := reach.Resolve(t.Context(), db, list, func() (reach.Files, error) { return nil, gone })
	if err != nil || len(unread) != 1 || !errors.Is(unread[0].Err, gone) ||
		list[0].Reachability() != match.LinkUnknown {
		t.Errorf("%v, %v, %q", unread, err, list[0].Reachability())
	}
	open := func() (reach.Files, error) { return tree{fstest.MapFS{"bin/a": {Data: make([]byte, 100)}}}, nil }
	broken := []match.Finding{{Package: p, Advisory: "GO-broken"}}
	if _, err := reach.Resolve(t.Context(), db, broken, open); !errors.Is(err, vulndb.ErrDamaged) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, open := range []func() (reach.Files, error){open, func() (reach.Files, error) { return nil, ctx.Err() }} {
		if _, err := reach.Resolve(ctx, db, list, open); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

// TestNothingToRead: the source is not opened again without need.
func TestNothingToRead(t *testing.T) {
	p := catalog.Package{Kind: catalog.Go, Name: "a.test/m", Version: "v1.0.0", Locations: []string{"/bin/a"}}
	list := []match.Finding{{Package: p, Advisory: "none"}}
	_, err := reach.Resolve(t.Context(), records{}, list, func() (reach.Files, error) {
		t.Error("it was opened")
		return nil, errors.New("closed")
	})
	if err != nil || list[0].Reachability() != match.LinkUnknown {
		t.Errorf("%v, %q", err, list[0].Reachability())
	}
}
