package localtemplate_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/buildyard/buildyard/internal/agent/localtemplate"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/registry"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/rest/registryrest"
	"github.com/buildyard/buildyard/internal/transfer"
)

func serve(t *testing.T) *transfer.Client {
	t.Helper()
	core, err := registry.Open(t.Context(), registry.Options{Base: t.TempDir(), Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(rest.Handler(registryrest.Routes(core), slog.New(slog.DiscardHandler)))
	client, err := transfer.New(transfer.Options{BaseURL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		server.Close()
		_ = core.Close()
	})
	return client
}

func versions(t *testing.T, dir, id string) []string {
	t.Helper()
	list, err := os.ReadDir(filepath.Join(dir, id))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, item := range list {
		if item.IsDir() {
			out = append(out, item.Name())
		}
	}
	return out
}

// TestPushAndPull moves a template from one node's store to another's through a real registry, tag
// after tag and back.
func TestPushAndPull(t *testing.T) {
	reg := serve(t)
	here, _ := open(t)
	from, data := image(t, "disk.qcow2")
	vm, err := here.Import(t.Context(), from, localtemplate.Settings{Name: "debian", CPUs: 3}, nil)
	if err != nil {
		t.Fatal(err)
	}
	first, err := here.Push(t.Context(), reg, vm.ID, localtemplate.PushOptions{Tag: "v1", Description: "first"})
	if err != nil {
		t.Fatal(err)
	}
	if first.ID != vm.ID || first.Number != 0 {
		t.Errorf("pushed %+v", first)
	}
	if _, err := here.Modify(vm.ID, localtemplate.Settings{CPUs: 5}); err != nil {
		t.Fatal(err)
	}
	second, err := here.Push(t.Context(), reg, vm.ID, localtemplate.PushOptions{Tag: "v2"})
	if err != nil || second.Number != 1 || second.ContentID == first.ContentID {
		t.Fatalf("pushed %+v, %v", second, err)
	}
	if vm, _ := here.Find("debian"); vm.Tag != "v2" || vm.ContentID != second.ContentID {
		t.Errorf("after the push: %+v", vm)
	}

	there, dir := open(t)
	pull := func(tag string, shrink bool) localtemplate.Template {
		t.Helper()
		got, err := there.Pull(t.Context(),
			reg, localtemplate.PullOptions{Ref: transfer.VersionRef{ID: vm.ID, Tag: tag}, Shrink: shrink})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	got := pull("", false)
	if got.ID != vm.ID || got.Name != "debian" || got.Tag != "v2" || got.CPUs != 5 || len(got.Disks) != 1 {
		t.Errorf("pulled %+v", got)
	}
	disk, err := os.ReadFile(filepath.Join(dir, vm.ID, versions(t, dir, vm.ID)[0], got.Disks[0].FileName))
	if err != nil || !bytes.Equal(disk, data) {
		t.Errorf("the disk is another one: %d bytes, %v", len(disk), err)
	}
	if got := pull("v1", false); got.CPUs != 3 || got.Tag != "v1" || len(versions(t, dir, vm.ID)) != 2 {
		t.Errorf("an older tag: %+v beside %v; the newer one stays", got, versions(t, dir, vm.ID))
	}
	if got := pull("v1", true); got.Tag != "v1" || len(versions(t, dir, vm.ID)) != 1 {
		t.Errorf("shrunk: %+v, %v", got, versions(t, dir, vm.ID))
	}
	if got := pull("v2", false); got.Tag != "v2" || len(versions(t, dir, vm.ID)) != 1 {
		t.Errorf("a newer tag replaces the older one: %+v, %v", got, versions(t, dir, vm.ID))
	}
	if _, err := there.Modify(vm.ID, localtemplate.Settings{CPUs: 7}); err != nil {
		t.Fatal(err)
	}
	_, err = there.Pull(t.Context(), reg, localtemplate.PullOptions{Ref: transfer.VersionRef{ID: vm.ID}})
	if farm.CodeOf(err) != farm.CodeRefused {
		t.Errorf("a pull over changes that were never pushed: %v", err)
	}
}

// TestChangedPullsFreeSpace: a pulled version that was changed in place and pushed is another
// version; the original can be pulled again next to it.
func TestChangedPullsFreeSpace(t *testing.T) {
	reg := serve(t)
	here, _ := open(t)
	vm, err := here.Create(t.Context(), mib, localtemplate.Settings{Name: "debian", CPUs: 1})
	if err != nil {
		t.Fatal(err)
	}
	first, err := here.Push(t.Context(), reg, vm.ID, localtemplate.PushOptions{Tag: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	there, dir := open(t)
	pull := func(shrink bool) {
		t.Helper()
		got, err := there.Pull(t.Context(),
			reg, localtemplate.PullOptions{Ref: transfer.VersionRef{ID: vm.ID, Tag: "v1"}, Shrink: shrink})
		if err != nil || got.CPUs != 1 || got.ContentID != first.ContentID {
			t.Fatalf("pulled %+v, %v", got, err)
		}
	}
	pull(false)
	for i, tag := range []string{"v2", "v3"} {
		if _, err := there.Modify(vm.ID, localtemplate.Settings{CPUs: 2 + i}); err != nil {
			t.Fatal(err)
		}
		if _, err := there.Push(t.Context(), reg, vm.ID, localtemplate.PushOptions{Tag: tag}); err != nil {
			t.Fatal(err)
		}
		pull(i == 1)
	}
	if left := versions(t, dir, vm.ID); len(left) != 1 {
		t.Errorf("directories after -s: %v", left)
	}
}

func TestPushOntoAnExistingTemplate(t *testing.T) {
	reg := serve(t)
	l, _ := open(t)
	base, err := l.Create(t.Context(), mib, localtemplate.Settings{Name: "base"})
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.Create(t.Context(), 2*mib, localtemplate.Settings{Name: "other"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Push(t.Context(), reg, other.ID,
		localtemplate.PushOptions{Tag: "v2", TargetTemplate: base.ID}); err == nil {
		t.Error("a template that does not exist was pushed onto")
	}
	if _, err := l.Push(t.Context(), reg, base.ID, localtemplate.PushOptions{Tag: "v1"}); err != nil {
		t.Fatal(err)
	}
	result, err := l.Push(t.Context(), reg, other.ID, localtemplate.PushOptions{Tag: "v2", TargetTemplate: base.ID})
	if err != nil || result.ID != base.ID || result.Number != 1 || result.Name != "base" {
		t.Errorf("pushed %+v, %v", result, err)
	}
	if vm, _ := l.Find("other"); vm.ContentID != "" {
		t.Errorf("an independent template became a version of another: %+v", vm)
	}
	if _, err := l.Push(t.Context(), reg, base.ID, localtemplate.PushOptions{Tag: "v1"}); err == nil {
		t.Error("a tag was pushed twice")
	}
}

// TestUnknownFieldsSurvive: unknown fields of a configuration made by a newer program are preserved.
func TestUnknownFieldsSurvive(t *testing.T) {
	l, dir := open(t)
	vm, err := l.Create(t.Context(), mib, localtemplate.Settings{Name: "x"})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, vm.ID, "local", "config.json")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	raw = bytes.Replace(raw, []byte("{"), []byte(`{"of_tomorrow":{"a":1},`), 1)
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Modify(vm.ID, localtemplate.Settings{CPUs: 9}); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	raw, _ = os.ReadFile(file)
	if err := json.Unmarshal(raw, &got); err != nil || got["of_tomorrow"] == nil ||
		got["cpu"].(map[string]any)["cores"] != 9.0 {
		t.Errorf("%v, %v", got, err)
	}
}

// TestOnlyPullsArePulls: a pull of a local version moves nothing, and does not change when the
// version was last pulled.
func TestOnlyPullsArePulls(t *testing.T) {
	reg := serve(t)
	here, _ := open(t)
	from, _ := image(t, "disk.qcow2")
	vm, err := here.Import(t.Context(), from, localtemplate.Settings{Name: "debian"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	pushed, err := here.Push(t.Context(), reg, vm.ID, localtemplate.PushOptions{Tag: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	pulled := func() int64 {
		t.Helper()
		detail, err := reg.TemplateDetail(t.Context(), pushed.ID)
		if err != nil || detail.LastPull != detail.Versions[0].LastPull {
			t.Fatalf("%+v, %v", detail, err)
		}
		return detail.LastPull
	}
	if _, err := here.Pull(t.Context(), reg,
		localtemplate.PullOptions{Ref: transfer.VersionRef{ID: pushed.ID}}); err != nil {
		t.Fatal(err)
	}
	if at := pulled(); at != 0 {
		t.Errorf("a pull of what is here counts, at %d", at)
	}
	there, _ := open(t)
	if _, err := there.Pull(t.Context(), reg,
		localtemplate.PullOptions{Ref: transfer.VersionRef{ID: pushed.ID}}); err != nil {
		t.Fatal(err)
	}
	if pulled() == 0 {
		t.Error("a pull does not count")
	}
}
