package sdk_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

const (
	root       = "../.."
	modulePath = "github.com/buildyard/buildyard"
	moduleMax  = 4 // the program, api, client and one library for WebSockets
)

// runGo runs the go command and returns its output.
func runGo(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), append(env, "CGO_ENABLED=0", "GOWORK=off")...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s%s", strings.Join(args, " "), err, out, stderr.Bytes())
	}
	return string(out)
}

// parseMod reads a go.mod of the repository.
func parseMod(t *testing.T, dir string) *modfile.File {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	mod, err := modfile.Parse("go.mod", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	return mod
}

// TestOneVersion requires that all modules name the same version of the SDK, so that one release tags both.
func TestOneVersion(t *testing.T) {
	version := sdkVersion(t)
	for dir, count := range map[string]int{".": 2, "client": 1, "test/e2e": 2} {
		found := 0
		for _, r := range parseMod(t, dir).Require {
			if !strings.HasPrefix(r.Mod.Path, modulePath+"/") {
				continue
			}
			if found++; r.Mod.Version != version {
				t.Errorf("%s/go.mod requires %s, client/go.mod requires %s", dir, r.Mod, version)
			}
		}
		if found != count {
			t.Errorf("%s/go.mod requires %d modules of the SDK, want %d", dir, found, count)
		}
	}
}

// sdkVersion returns the version of the SDK that the next release tags.
func sdkVersion(t *testing.T) string {
	t.Helper()
	for _, r := range parseMod(t, "client").Require {
		if r.Mod.Path == modulePath+"/api" {
			return r.Mod.Version
		}
	}
	t.Fatal("client/go.mod does not require api")
	return ""
}

// release puts a module of the repository into a directory that the go command reads as a module proxy.
func release(t *testing.T, proxy, name, version string) {
	t.Helper()
	dir := filepath.Join(proxy, modulePath, name, "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(root, name, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	id := module.Version{Path: modulePath + "/" + name, Version: version}
	if err := zip.CreateFromDir(&archive, id, filepath.Join(root, name)); err != nil {
		t.Fatal(err)
	}
	for suffix, data := range map[string][]byte{
		".mod": mod, ".zip": archive.Bytes(), ".info": []byte(`{"Version":"` + version + `"}`),
	} {
		if err := os.WriteFile(filepath.Join(dir, version+suffix), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFewDependencies builds a program of a user that requires a release of the client. It needs nothing of the
// module of the programs, and few modules at all.
func TestFewDependencies(t *testing.T) {
	proxy, version := t.TempDir(), sdkVersion(t)
	release(t, proxy, "api", version)
	release(t, proxy, "client", version)
	cache := strings.TrimSpace(runGo(t, root, nil, "env", "GOMODCACHE"))
	runGo(t, filepath.Join(root, "client"), nil, "mod", "download", "github.com/coder/websocket")

	dir := t.TempDir()
	program, err := os.ReadFile(filepath.Join(root, "test", "upgrade", "testdata", "sdk.go.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{
		"main.go": string(program),
		"go.mod": "module example.test/user\n\ngo 1.26.0\n\nrequire (\n\t" + modulePath + "/api " + version + "\n\t" +
			modulePath + "/client " + version + "\n)\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{
		"GOPROXY=file://" + proxy + ",file://" + filepath.Join(cache, "cache", "download"), "GONOPROXY=none",
		"GOSUMDB=off", "GOMODCACHE=" + t.TempDir(), "GOFLAGS=-modcacherw -mod=mod -trimpath",
	}
	runGo(t, dir, env, "mod", "tidy")
	runGo(t, dir, env, "build", "-o", os.DevNull, ".")
	modules := strings.Fields(runGo(t, dir, env, "list", "-m", "-f", "{{.Path}}", "all"))
	if len(modules) > moduleMax {
		t.Errorf("a program that imports the client has %d modules, at most %d are allowed: %s",
			len(modules), moduleMax, strings.Join(modules, " "))
	}
}

// TestExamples runs the examples of the client, which are in its module, with a separate cloud.
func TestExamples(t *testing.T) {
	var env []string
	_, stop, err := startCloud(t.TempDir(), func(proxy string) error {
		env = append(env, "BUILDYARD_EXAMPLE_PROXY="+proxy)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	out := runGo(t, root, env, "test", "-trimpath", "-vet=off", "-count=1", "-v", "-run", "^Example",
		modulePath+"/client")
	if n := strings.Count(out, "--- PASS: Example"); n < 9 {
		t.Errorf("%d examples passed, want 9:\n%s", n, out)
	}
}
