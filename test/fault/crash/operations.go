package crash

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/tools/failpoint/inject"
	"github.com/buildyard/buildyard/internal/transfer"
	"github.com/buildyard/buildyard/test/rig"
)

// operation is one operation on a registry. It can be repeated. Each has a separate process.
type operation struct {
	name string
	want string // state of the template behind it
	launch
	itself  bool                    // the registry does it without being asked
	fills   bool                    // it fills the disk
	prepare func(base string) error // of the storage that it begins with
	do      func(ctx context.Context, w *walk, s *server) error
}

const (
	reserveSize = 1 << 20
	foldPulls   = 1 // of one version: see registry.Options
	// soon bounds what a registry does automatically; when its disk is full it may not do it at
	// all.
	soon     = 10 * time.Second
	soonFull = 400 * time.Millisecond
)

// operations in their order: each begins with the storage that the one before it left.
var operations = []operation{
	{name: "first start", want: none, do: nothing},
	{
		name: "make the reserve", want: none, itself: true, launch: launch{plan: inject.Plan{Reserve: reserveSize}},
		do: awaitReserve,
	},
	{name: "push of a new template", want: "amd64: v1", do: pushing("v1")},
	{name: "push of the next tag", want: "amd64: v1 v2", do: pushing("v2")},
	{name: "set arch", want: "arm64: v1 v2", do: func(ctx context.Context, _ *walk, s *server) error {
		return s.client.SetArch(ctx, template, "arm64")
	}},
	{
		name: "set arch on a full disk", want: "amd64: v1 v2", fills: true,
		launch: launch{plan: inject.Plan{Reserve: reserveSize}}, do: releaseReserve,
	},
	{
		name: "make the reserve again", want: "amd64: v1 v2", itself: true,
		launch: launch{plan: inject.Plan{Reserve: reserveSize}}, do: awaitReserve,
	},
	{name: "push with revert", want: "amd64: v1 v3", do: pushing("v3")},
	{name: "revert", want: "amd64: ", do: reverting("v1")},
	{name: "push of known content", want: "amd64: v4", do: pushing("v4")},
	{name: "delete", want: none, do: func(ctx context.Context, _ *walk, s *server) error {
		return s.client.DeleteTemplate(ctx, template)
	}},
	{name: "push after the delete", want: "amd64: v5", do: pushing("v5")},
	{name: "push of a disk", want: "amd64: v5 v6", do: pushing("v6")},
	{name: "push of what changed", want: chainState, do: pushing("v7")},
	{
		name: "consolidate", want: chainState, itself: true,
		launch: launch{plan: inject.Plan{Consolidate: 10 * time.Millisecond}}, do: awaitMerge,
	},
	{name: "collect", want: chainState, do: collecting(false)},
	{name: "take back what was collected", want: chainState + " v8", do: pushing("v8")},
	{name: "revert of a chain", want: "amd64: v5", do: reverting("v6")},
	{name: "collect and empty the trash", want: "amd64: v5", do: collecting(true)},
	{name: "pulls", want: "amd64: v5", launch: launch{plan: inject.Plan{FoldPulls: foldPulls}}, do: pullOften},
	{name: "send what a boot read", want: "amd64: v5", do: sendTrace},
	{name: "push that is aborted", want: "amd64: v5", do: abort},
	{name: "scrub", want: "amd64: v5", itself: true, launch: launch{scrub: true}, do: awaitScrub},
	{
		name: "attach the results of a scan", want: "amd64 scanned: v5",
		do: func(ctx context.Context, _ *walk, s *server) error {
			scan := api.TemplateScan{
				ScanSummary: api.ScanSummary{Scanner: "crash", Version: "1", Database: time.Unix(1,
					0), Scanned: time.Unix(2, 0)}, Report: []byte(`{"matches":[]}`),
			}
			return s.calls.Send(ctx, http.MethodPut, scanPath, scan, nil)
		},
	},
	{name: "remove the results of a scan", want: "amd64: v5", do: func(ctx context.Context, _ *walk, s *server) error {
		return s.calls.Send(ctx, http.MethodDelete, scanPath, nil, nil)
	}},
	{
		name: "repair", want: "amd64: v5", prepare: breakTemplates,
		do: func(ctx context.Context, _ *walk, s *server) error {
			if err := os.RemoveAll(filepath.Join(s.base, "vm_dir", hollow, "0")); err != nil {
				return fmt.Errorf("empty a damaged template by hand: %w", err)
			}
			return s.upkeep(ctx, api.StorageJobRequest{Do: api.StorageJobRepair})
		},
	},
	{name: "last push", want: "amd64: v5 v2", do: pushing("v2")},
}

const scanPath = "/registry/v2/vm/scan?id=" + template

const chainState = "amd64: v5 v6 v7"

// unmet are steps that no operation comes to, and why.
var unmet = map[string]string{
	"layer.remove": "needs two pushes that complete one layer in the same moment: the race test of the registry does " +
		"that",
}

func nothing(context.Context, *walk, *server) error { return nil }

// sendTrace sends a trace of the first file of the latest version.
func sendTrace(ctx context.Context, _ *walk, s *server) error {
	m, err := s.client.PeekManifest(ctx, transfer.VersionRef{ID: template})
	if err != nil {
		return err
	}
	trace := api.FileTrace{Frames: []int{0}}
	for _, l := range m.Files[0].Layers {
		trace.Roots = append(trace.Roots, l.Root)
	}
	return s.calls.Send(ctx, http.MethodPut, "/registry/v2/pull/trace", api.BootTrace{
		ID: m.ID, ContentID: m.ContentID, Files: map[string]api.FileTrace{m.Files[0].Name: trace},
	}, nil)
}

func pushing(tag string) func(context.Context, *walk, *server) error {
	return func(ctx context.Context, w *walk, s *server) error { return w.push(ctx, s.client, tag) }
}

func reverting(tag string) func(context.Context, *walk, *server) error {
	return func(ctx context.Context, _ *walk, s *server) error {
		return s.client.Revert(ctx, transfer.VersionRef{ID: template, Tag: tag})
	}
}

func collecting(empty bool) func(context.Context, *walk, *server) error {
	return func(ctx context.Context, _ *walk, s *server) error {
		return s.upkeep(ctx, api.StorageJobRequest{Do: api.StorageJobGC, EmptyTrash: empty})
	}
}

func awaitReserve(ctx context.Context, _ *walk, s *server) error {
	return s.await(ctx, func() (bool, error) {
		_, err := os.Stat(filepath.Join(s.base, "reserve"))
		return err == nil, nil
	})
}

// releaseReserve fills the disk, so that the registry releases its reserve for something small, and frees
// space again.
func releaseReserve(ctx context.Context, _ *walk, s *server) error {
	if err := inject.Fill(filler(s.base)); err != nil {
		return err
	}
	return errors.Join(s.client.SetArch(ctx, template, "amd64"), os.Remove(filler(s.base)))
}

// awaitMerge waits until the chain of the newest version is one layer.
func awaitMerge(ctx context.Context, _ *walk, s *server) error {
	return s.await(ctx, func() (bool, error) {
		d, err := s.client.TemplateDetail(ctx, template)
		if err != nil {
			return false, err
		}
		return len(d.Versions[len(d.Versions)-1].Images) == 1, nil
	})
}

func awaitScrub(ctx context.Context, _ *walk, s *server) error {
	return s.await(ctx, func() (bool, error) {
		stats, err := s.stats(ctx)
		return stats.Scrub.Finished > 0, err
	})
}

// pullOften pulls until the log of pulls must have been written again, which also depends on the
// number of versions: a registry records each once a second.
func pullOften(ctx context.Context, _ *walk, s *server) error {
	for range foldPulls + 1 {
		if _, err := s.client.Manifest(ctx, transfer.VersionRef{ID: template}); err != nil {
			return err
		}
		if !rig.Pause(ctx, 1010*time.Millisecond) {
			return ctx.Err()
		}
	}
	return nil
}

// abort negotiates a push and aborts it.
func abort(ctx context.Context, _ *walk, s *server) error {
	var session api.PushSession
	req := api.PushRequest{
		ID: template, Tag: "v9", Config: []byte("{}"),
		Files: []api.PushFile{{Name: diskFile, Kind: api.FileDisk, Size: sourceSize}},
	}
	if err := s.calls.Send(ctx, http.MethodPost, "/registry/v2/push", req, &session); err != nil {
		return err
	}
	return s.calls.Send(ctx, http.MethodDelete, "/registry/v2/push/"+session.Session, nil, nil)
}

// broken and hollow are templates that a repair sets aside and, once someone has
// emptied it by hand, removes.
const (
	broken = "bbbbbbbb-0000-4000-8000-000000000002"
	hollow = "dddddddd-0000-4000-8000-000000000004"
)

func breakTemplates(base string) error {
	for _, dir := range []string{broken, filepath.Join(hollow, "0")} {
		if err := os.MkdirAll(filepath.Join(base, "vm_dir", dir), 0o755); err != nil {
			return fmt.Errorf("break a template: %w", err)
		}
	}
	return os.WriteFile(filepath.Join(base, "vm_dir", broken, "template.json"), []byte("{"), 0o600)
}
