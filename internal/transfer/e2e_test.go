package transfer_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/transfer"
)

func TestPushAndPull(t *testing.T) {
	s := serve(t, t.TempDir())
	c := s.client(t)
	files := threeFiles(t)
	o := pushOptions("v1+a/b:c #1", files...)
	var last transfer.Progress
	o.Progress = func(p transfer.Progress) { last = p }
	result := mustPush(t, c, o)
	if result.Number != 0 || result.ID != templateID || len(result.ContentID) != 64 || result.Gen != 1 {
		t.Fatalf("%+v", result)
	}
	if last.Fraction() != 1 {
		t.Fatalf("progress of the push ended at %+v", last)
	}
	dir := t.TempDir()
	pulled := mustPull(t, c, "v1+a/b:c #1", dir, files)
	if pulled.Manifest.ContentID != result.ContentID || pulled.TransferredBytes > result.Size {
		t.Fatalf("pulled %d bytes of %d", pulled.TransferredBytes, result.Size)
	}
	nvram, err := os.ReadFile(filepath.Join(dir, transfer.NVRAMFile))
	if err != nil || string(nvram) != "variables" {
		t.Fatalf("nvram %q, %v", nvram, err)
	}
	config, err := os.ReadFile(filepath.Join(dir, transfer.ConfigFile))
	want := `{"cpu":{"cores":2},"hard_drives":[{"file":"disk.img"}],"name":"debian-13","own":{"kept":[1,2.5,"x",null,true]},"ram":"2G","uuid":"` + templateID + `"}`
	if err != nil || string(config) != want {
		t.Fatalf("config %s, %v", config, err)
	}
	// A second pull into the same directory without journals fetches again and ends the same.
	mustPull(t, c, "", dir, files)
	checkDetail(t, c, result)
}

func checkDetail(t *testing.T, c *transfer.Client, result api.PushResult) {
	t.Helper()
	d, err := c.TemplateDetail(t.Context(), templateID)
	if err != nil || len(d.Versions) != 1 {
		t.Fatalf("%+v, %v", d, err)
	}
	v := d.Versions[0]
	if len(v.Images) != 2 || len(v.StateFiles) != 1 || v.StateFile != v.StateFiles[0] || v.NVRAM != "nvram" ||
		v.ConfigFile != templateID+".yaml" {
		t.Fatalf("%+v", v)
	}
	if d.Size != result.Size || v.Size != d.Size || d.LastPull == 0 || v.LastPull != d.LastPull || v.LastPush == 0 ||
		v.CreationDate == 0 || d.Arch != "amd64" {
		t.Fatalf("%+v", d)
	}
	want := d.Template
	want.LatestTag, want.VersionCount = v.Tag, len(d.Versions) // in lists alone
	if list, err := c.ListTemplates(t.Context()); err != nil || len(list) != 1 || list[0] != want {
		t.Fatalf("the list says %+v, the template is %+v, %v", list, want, err)
	}
	info, err := c.VersionConfig(t.Context(), transfer.VersionRef{ID: templateID, Tag: v.Tag})
	if err != nil || info.RAM != "2G" || info.CPU.Cores != 2 || info.UUID != templateID {
		t.Fatalf("%+v, %v", info, err)
	}
}

func TestNextTagSendsOnlyWhatIsNew(t *testing.T) {
	s := serve(t, t.TempDir())
	c := s.client(t)
	files := threeFiles(t)
	mustPush(t, c, pushOptions("v1", files...))
	d, err := c.Manifest(t.Context(), transfer.VersionRef{ID: templateID})
	if err != nil {
		t.Fatal(err)
	}
	var puts atomic.Int64
	disturb := func(w http.ResponseWriter, r *http.Request, h http.Handler) {
		if r.Method == http.MethodPut {
			puts.Add(1)
		}
		h.ServeHTTP(w, r)
	}
	s.disturb.Store(&disturb)
	o := pushOptions("v2", files...)
	for i, f := range d.Files {
		o.Files[i].ChainID = f.Layers[0].Root
	}
	result := mustPush(t, c, o)
	if puts.Load() != 0 {
		t.Fatalf("%d requests with bytes that the registry has", puts.Load())
	}
	if result.Number != 1 || result.ContentID != d.ContentID {
		t.Fatalf("%+v: equal content has another id than %s", result, d.ContentID)
	}
}

func TestRefusals(t *testing.T) {
	s := serve(t, t.TempDir())
	c := s.client(t)
	f := write(t, "disk.img", api.FileDisk, "raw", 1<<20, map[int64]int{0: 9000})
	mustPush(t, c, pushOptions("v1", f))
	for name, test := range map[string]struct {
		change func(*transfer.PushOptions)
		code   farm.Code
	}{
		"tag is taken":         {func(o *transfer.PushOptions) { o.Request.Tag = "v1" }, farm.CodeRefused},
		"other architecture":   {func(o *transfer.PushOptions) { o.Request.Arch = "arm64" }, farm.CodeRefused},
		"unknown architecture": {func(o *transfer.PushOptions) { o.Request.Arch = "mips" }, farm.CodeInvalid},
		"no tag":               {func(o *transfer.PushOptions) { o.Request.Tag = "" }, farm.CodeInvalid},
		"id is no uuid":        {func(o *transfer.PushOptions) { o.Request.ID = "../../etc" }, farm.CodeInvalid},
		"generation moved": {func(o *transfer.PushOptions) {
			gen := int64(7)
			o.Request.Gen = &gen
		}, farm.CodeConflict},
		"must exist": {func(o *transfer.PushOptions) {
			o.Request.ID, o.Request.MustExist = "99999999-2222-4333-8444-555555555555", true
		}, farm.CodeNotFound},
		"file leaves its folder": {func(o *transfer.PushOptions) { o.Files[0].Name = "../x" }, farm.CodeInvalid},
		"config is no object": {func(o *transfer.PushOptions) {
			o.Request.Config = json.RawMessage(`[1]`)
		}, farm.CodeInvalid},
		"nvram too long": {func(o *transfer.PushOptions) {
			o.Request.NVRAM = make([]byte, 4<<20+1)
		}, farm.CodeInvalid},
	} {
		o := pushOptions("v2", f)
		test.change(&o)
		if _, err := c.Push(t.Context(), o); farm.CodeOf(err) != test.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	d, err := c.TemplateDetail(t.Context(), templateID)
	if err != nil || len(d.Versions) != 1 {
		t.Fatalf("%d versions, %v", len(d.Versions), err)
	}
}

func TestRevertInThePush(t *testing.T) {
	s := serve(t, t.TempDir())
	c := s.client(t)
	f := write(t, "disk.img", api.FileDisk, "raw", 1<<20, map[int64]int{0: 9000})
	for _, tag := range []string{"v1", "v2", "v3"} {
		mustPush(t, c, pushOptions(tag, f))
	}
	o := pushOptions("v2", f) // the tag is free once the revert is done
	o.Request.Revert = &api.PushRevert{Tag: "v2"}
	if r := mustPush(t, c, o); r.Number != 1 {
		t.Fatalf("%+v", r)
	}
	o = pushOptions("v9", f)
	o.Request.Revert = &api.PushRevert{Tag: "no such tag"}
	if r := mustPush(t, c, o); r.Number != 2 {
		t.Fatalf("%+v", r)
	}
}

func TestManyFilesOneNegotiation(t *testing.T) {
	s := serve(t, t.TempDir())
	c := s.client(t)
	var negotiations atomic.Int64
	disturb := func(w http.ResponseWriter, r *http.Request, h http.Handler) {
		if r.Method == http.MethodPost && r.URL.Path == "/registry/v2/push" {
			negotiations.Add(1)
		}
		h.ServeHTTP(w, r)
	}
	s.disturb.Store(&disturb)
	var files []file
	for i := range 60 {
		files = append(files, write(t, "f"+string(rune('a'+i/10))+string(rune('0'+i%10)), api.FileDisk, "raw",
			int64(i)*1000, map[int64]int{0: i * 10}))
	}
	o := pushOptions("v1", files...)
	o.Request.Config = json.RawMessage(`{"ram":"2G"}`)
	mustPush(t, c, o)
	if negotiations.Load() != 1 {
		t.Fatalf("%d negotiations", negotiations.Load())
	}
	mustPull(t, c, "v1", t.TempDir(), files)
}

// TestContentID: a pull with a content ID never yields other bytes.
func TestContentID(t *testing.T) {
	s := serve(t, t.TempDir())
	c := s.client(t)
	f := write(t, "disk.img", api.FileDisk, "raw", 1<<20, map[int64]int{0: 9000})
	old := mustPush(t, c, pushOptions("v1", f))
	if err := c.Revert(t.Context(), transfer.VersionRef{ID: templateID}); err != nil {
		t.Fatal(err)
	}
	g := write(t, "disk.img", api.FileDisk, "raw", 1<<20, map[int64]int{0: 8000})
	fresh := mustPush(t, c, pushOptions("v1", g))
	number := 0
	ref := transfer.VersionRef{ID: templateID, Tag: "v1", Number: &number, ContentID: old.ContentID}
	if _, err := c.Pull(t.Context(),
		transfer.PullOptions{Ref: ref, Dir: t.TempDir()}); farm.CodeOf(err) != farm.CodeNoVersion {
		t.Fatalf("pull of reverted content: %v", err)
	}
	ref = transfer.VersionRef{ID: templateID, ContentID: fresh.ContentID}
	if _, err := c.Pull(t.Context(), transfer.PullOptions{Ref: ref, Dir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
}

func TestPauseOfTheCollection(t *testing.T) {
	c := serve(t, t.TempDir()).client(t)
	for length, code := range map[time.Duration]farm.Code{time.Minute: "", 0: "", time.Hour: farm.CodeInvalid} {
		if err := c.PauseGC(t.Context(), length); err != nil && farm.CodeOf(err) != code || err == nil && code != "" {
			t.Errorf("%s: %v", length, err)
		}
	}
}
