package localtemplate_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/localtemplate"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/transfer"
)

var errCut = errors.New("cut")

// cutRegistry records pushes, and interrupts pulls while cut is set.
type cutRegistry struct {
	localtemplate.Registry
	pushes []transfer.PushOptions
	cut    bool
}

func (r *cutRegistry) Push(_ context.Context, o transfer.PushOptions) (api.PushResult, error) {
	r.pushes = append(r.pushes, o)
	return api.PushResult{}, errCut
}

func (r *cutRegistry) Pull(ctx context.Context, o transfer.PullOptions) (transfer.PullResult, error) {
	if r.cut {
		return transfer.PullResult{}, errors.Join(errCut, os.WriteFile(filepath.Join(o.Dir, "part"), nil, 0o600))
	}
	return r.Registry.Pull(ctx, o)
}

// TestPublishAgain: a repeated import must be the same request, otherwise it would start again
// instead of being resumed.
func TestPublishAgain(t *testing.T) {
	from, _ := image(t, "disk.qcow2")
	reg := &cutRegistry{}
	for range 2 {
		_, err := localtemplate.RegistryImages{ImageTool: plain{}, Registry: reg}.Push(t.Context(), from,
			localtemplate.Settings{Name: "debian"}, localtemplate.PushOptions{Tag: "v1"})
		if !errors.Is(err, errCut) {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(reg.pushes[0], reg.pushes[1],
		cmpopts.IgnoreFields(transfer.PushOptions{}, "Progress", "AbandonOnFailure", "BeforePublish")); diff != "" {
		t.Errorf("the second request differs:\n%s", diff)
	}
}

func TestPublishRefuses(t *testing.T) {
	from, _ := image(t, "disk.qcow2")
	_, err := localtemplate.RegistryImages{ImageTool: plain{}, Registry: &cutRegistry{}}.Push(t.Context(), from,
		localtemplate.Settings{}, localtemplate.PushOptions{Tag: "v1"})
	if farm.CodeOf(err) != farm.CodeInvalid {
		t.Errorf("without a name: %v", err)
	}
}

// TestExport: the files of an interrupted export are reused by the next one, and removed when the
// image is complete.
func TestExport(t *testing.T) {
	client := serve(t)
	reg := &cutRegistry{Registry: client, cut: true}
	from, data := image(t, "disk.qcow2")
	pushed, err := localtemplate.RegistryImages{ImageTool: plain{}, Registry: client}.Push(t.Context(), from,
		localtemplate.Settings{Name: "debian"}, localtemplate.PushOptions{Tag: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	dir, exchange := t.TempDir(), localtemplate.RegistryImages{ImageTool: plain{}, Registry: reg}
	o := localtemplate.ExportOptions{
		Ref: transfer.VersionRef{ID: pushed.ID}, Dest: hv.Disk{Path: filepath.Join(dir, "out"), Format: "qcow2"},
	}
	if err := exchange.Export(t.Context(), o); !errors.Is(err, errCut) {
		t.Fatal(err)
	}
	if kept, _ := filepath.Glob(filepath.Join(dir, ".export-*", "part")); len(kept) != 1 {
		t.Error("nothing is left to go on with")
	}
	reg.cut = false
	if err := exchange.Export(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(o.Dest.Path)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("exported %d bytes, %v; the image has %d", len(got), err, len(data))
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left beside the image: %v", left)
	}
	if err := exchange.Export(t.Context(), o); farm.CodeOf(err) != farm.CodeRefused {
		t.Errorf("over a file that is there: %v", err)
	}
	o.Dest.Path += "2"
	o.DiskName = "none"
	if err := exchange.Export(t.Context(), o); farm.CodeOf(err) != farm.CodeNotFound {
		t.Errorf("a disk that it has not: %v", err)
	}
}
