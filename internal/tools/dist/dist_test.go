package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"

	"github.com/buildyard/buildyard/internal/release"
)

var testDate = time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)

func testDistribution(t *testing.T, version string) *distribution {
	t.Helper()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	r := &distribution{
		root: root, out: t.TempDir(), work: t.TempDir(), platforms: release.Platforms, version: version, full: version,
		commit: "abc", date: testDate,
	}
	for _, p := range r.platforms {
		for _, name := range programs {
			file := r.program(p, name)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(name+p.String()), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, name := range programs {
		for dir, files := range map[string][]string{
			"man": {name + ".1"}, "completions": {name + ".bash", "_" + name, name + ".fish"},
		} {
			if err := os.MkdirAll(filepath.Join(r.work, dir), 0o755); err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				if err := os.WriteFile(filepath.Join(r.work, dir, file), []byte(name), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return r
}

func TestPackageVersion(t *testing.T) {
	for version, want := range map[string]string{
		"1.2.0": "1.2.0", "1.2.0-dev+abc": "1.2.0~dev.20270102030405+abc",
		"1.2.0-dev+abc.dirty": "1.2.0~dev.20270102030405+abc.dirty",
	} {
		r := &distribution{version: version, date: testDate}
		if got := r.packageVersion(); got != want {
			t.Errorf("%s: %s, want %s", version, got, want)
		}
	}
}

// TestArchivesAreReproducible: neither the order nor the times of the files matter.
func TestArchivesAreReproducible(t *testing.T) {
	a := []member{{name: "b", mode: 0o644, content: []byte("x")}, {name: "a/", mode: 0o755}}
	b := slices.Clone(a)
	slices.Reverse(b)
	var first, second bytes.Buffer
	if err := writeTar(&first, a, testDate); err != nil {
		t.Fatal(err)
	}
	if err := writeTar(&second, b, testDate.In(time.FixedZone("x", 3600))); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the archives differ")
	}
}

// TestUnits: the units of the services have no template left, and name what the package installs.
func TestUnits(t *testing.T) {
	r := testDistribution(t, "1.2.0")
	p, err := r.cloudPackage()
	if err != nil {
		t.Fatal(err)
	}
	script, err := r.render("scripts/postinst.tmpl", p)
	if err != nil {
		t.Fatal(err)
	}
	for unit := range strings.FieldsSeq(p.Units) {
		text := string(p.files["/usr/lib/systemd/system/"+unit].content)
		for _, line := range []string{"User=build-cloud\n", "ExecStart=/usr/bin/buildyard ", "ProtectSystem=strict\n"} {
			if !strings.Contains(text, line) {
				t.Errorf("%s has no %q:\n%s", unit, line, text)
			}
		}
		_, env, _ := strings.Cut(text, "EnvironmentFile=-")
		if env, _, _ = strings.Cut(env, "\n"); p.files[env].content == nil {
			t.Errorf("%s reads %q, which the package does not have", unit, env)
		}
		if !bytes.Contains(script, []byte("chown root:build-cloud "+env)) {
			t.Errorf("the user of %s cannot read %s", unit, env)
		}
	}
	node, err := r.nodePackage()
	if err != nil {
		t.Fatal(err)
	}
	if text := node.files["/usr/lib/systemd/system/buildnode.service"].content; !bytes.Contains(text,
		[]byte("KillMode=process\n")) {
		t.Errorf("the agent would end its VMs:\n%s", text)
	}
}

// TestScriptsKeepData: only a purge removes data, and an upgrade stops no service.
func TestScriptsKeepData(t *testing.T) {
	r := testDistribution(t, "1.2.0")
	list, err := r.linuxPackages()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		for name, want := range map[string]string{
			"postinst": "try-restart " + p.Units, "prerm": "disable --now " + p.Units, "postrm": "rm -rf " + p.Data[0],
		} {
			text, err := r.render("scripts/"+name+".tmpl", p)
			if err != nil || !strings.Contains(string(text), want) {
				t.Errorf("%s of %s: %v\n%s", name, p.Name, err, text)
			}
			if before, _, _ := strings.Cut(string(text), `= purge ] || exit 0`); strings.Contains(before, "rm -rf") {
				t.Errorf("%s of %s removes data before it knows that it is a purge", name, p.Name)
			}
		}
	}
}

// TestImageLayout: every descriptor names a blob of its size, and both architectures are there.
func TestImageLayout(t *testing.T) {
	r := testDistribution(t, "1.2.0-dev+abc")
	layout := &ociLayout{}
	for _, p := range r.platforms[:2] {
		d, err := r.addPlatformImage(layout, p)
		if err != nil || d.Platform.Architecture != p.Arch {
			t.Fatalf("%+v, %v", d, err)
		}
		m := readBlob[imageManifest](t, layout, d)
		config := readBlob[map[string]any](t, layout, *m.Config)
		if user := config["config"].(map[string]any)["User"]; user != "65532:65532" {
			t.Errorf("the image runs as %v", user)
		}
		if len(m.Layers) != 1 || blob(layout, m.Layers[0]) == nil {
			t.Errorf("layers %+v", m.Layers)
		}
	}
	if tag := r.imageTag(); tag != "1.2.0-dev-abc" {
		t.Errorf("tag %q", tag)
	}
}

func blob(layout *ociLayout, d descriptor) []byte {
	for _, m := range layout.members {
		if m.name == "blobs/"+strings.Replace(d.Digest, ":", "/", 1) && int64(len(m.content)) == d.Size {
			return m.content
		}
	}
	return nil
}

func readBlob[T any](t *testing.T, layout *ociLayout, d descriptor) (v T) {
	t.Helper()
	if err := json.Unmarshal(blob(layout, d), &v); err != nil {
		t.Fatalf("%s: %v", d.Digest, err)
	}
	return v
}

// TestSBOM: a bill names the modules of each program, replaced ones as what replaced them.
func TestSBOM(t *testing.T) {
	info := &debug.BuildInfo{GoVersion: "go1.26.3", Deps: []*debug.Module{
		{Path: "example.test/a", Version: "v1.0.0"},
		{Path: "example.test/b", Version: "v1.0.0", Replace: &debug.Module{Path: "example.test/c", Version: "v2.0.0"}},
		{Path: modulePath + "/api", Version: "v0.1.0", Replace: &debug.Module{Path: "./api"}},
	}}
	bom := newSBOM(map[string]*debug.BuildInfo{"buildyard": info}, "1.2.0-abc", testDate)
	want := []string{
		"pkg:golang/example.test/a@v1.0.0", "pkg:golang/example.test/c@v2.0.0",
		"pkg:golang/" + modulePath + "/api@1.2.0-abc", "pkg:golang/std@1.26.3",
	}
	i := slices.IndexFunc(*bom.Dependencies, func(d cyclonedx.Dependency) bool {
		return d.Ref == "buildyard" && slices.Equal(*d.Dependencies, want)
	})
	if i < 0 {
		t.Errorf("%+v", *bom.Dependencies)
	}
}

func TestFormula(t *testing.T) {
	r := testDistribution(t, "1.2.0")
	for _, p := range r.platforms {
		file := filepath.Join(r.out, r.archiveName(p)+".tar.gz")
		if err := os.WriteFile(file, []byte(p.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.writeFormula(t.Context()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(r.out, "buildyard.rb"))
	if err != nil || strings.Count(string(text), "sha256 \"") != 4 || !strings.Contains(string(text), "on_macos do") {
		t.Errorf("%v\n%s", err, text)
	}
}
