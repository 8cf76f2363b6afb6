package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv/sim"
	"github.com/buildyard/buildyard/internal/qcow2"
	"github.com/buildyard/buildyard/internal/transfer"
)

// shop is an in-memory registry.
type shop struct {
	mu        sync.Mutex
	versions  []*sold
	fail      error         // the result of a push
	until     time.Time     // end of the failures
	takes     time.Duration // of a push
	abandoned bool          // the last push that was interrupted is no longer wanted
	asked     int           // pushes that were received
	last      transfer.PushOptions
}

// sold is a published version.
type sold struct {
	result api.PushResult
	config string
	nvram  []byte
	files  map[string]string // name -> content; of a disk, the last changes
	roots  map[string]string
	below  map[string]string // name of a disk -> digest of its parent
}

func newShop() *shop { return &shop{} }

func rootOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

// write writes the version where a pull would.
func (v *sold) write(dir string) error {
	files := map[string]string{"config.json": v.config}
	if v.nvram != nil {
		files["nvram"] = string(v.nvram)
	}
	maps.Copy(files, v.files)
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// breaks makes pushes fail for a time.
func (s *shop) breaks(err error, long time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail, s.until = err, time.Now().Add(long)
}

func (s *shop) slow(takes time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takes = takes
}

func (s *shop) version(contentID string) *sold {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.versions {
		if v.result.ContentID == contentID {
			return v
		}
	}
	return nil
}

// tagged returns every version with a tag.
func (s *shop) tagged(tag string) []*sold {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*sold
	for _, v := range s.versions {
		if v.result.Tag == tag {
			list = append(list, v)
		}
	}
	return list
}

func (s *shop) pushed() (n int, last transfer.PushOptions) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked, s.last
}

// Push publishes at the configured pace and with the configured failures.
func (s *shop) Push(ctx context.Context, _ string, o transfer.PushOptions) (api.PushResult, error) {
	s.mu.Lock()
	s.asked++
	s.last = o
	takes, fail := s.takes, s.fail
	if time.Now().After(s.until) {
		fail = nil
	}
	s.mu.Unlock()
	for i := range 10 {
		select {
		case <-time.After(takes / 10):
		case <-ctx.Done():
			s.mu.Lock()
			s.abandoned = o.AbandonOnFailure(ctx.Err())
			s.mu.Unlock()
			return api.PushResult{}, ctx.Err()
		}
		if fail != nil && i == 5 {
			return api.PushResult{}, fail
		}
		o.Progress(transfer.Progress{Done: int64(i + 1), Total: 10})
	}
	v := &sold{
		config: string(o.Request.Config), nvram: o.Request.NVRAM,
		files: map[string]string{}, roots: map[string]string{}, below: map[string]string{},
	}
	for _, f := range o.Files {
		if err := v.take(f); err != nil {
			return api.PushResult{}, err
		}
		o.LayerDigests[f.Name] = v.roots[f.Name]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.versions {
		if other.result.Tag == o.Request.Tag {
			return api.PushResult{}, farm.Refused("Tag %s exists", o.Request.Tag)
		}
	}
	raw, _ := json.Marshal([]any{v.roots, v.config})
	v.result = api.PushResult{
		ID: o.Request.ID, Name: "debian", Tag: o.Request.Tag, Number: len(s.versions) + 1,
		ContentID: rootOf(string(raw)), Gen: 1,
	}
	s.versions = append(s.versions, v)
	return v.result, nil
}

// take reads a file of a push. The digest of a disk is that of all its files.
func (v *sold) take(f transfer.PushFile) error {
	paths := []string{f.Path}
	if f.Disk != nil {
		paths = append([]string{f.Disk.Path}, f.Disk.Overlays...)
	}
	all := ""
	for i, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if f.Parent != nil && i == f.Parent.FileCount && f.Parent.ChainID != rootOf(all) {
			return farm.Errorf(farm.CodeInternal, "%s was made from something else than was said", f.Name)
		}
		all += string(raw)
		v.files[f.Name] = string(raw)
	}
	v.roots[f.Name] = rootOf(all)
	if f.Parent != nil {
		v.below[f.Name] = f.Parent.ChainID
	}
	return nil
}

// filesOn returns what a simulated guest has on a disk, as JSON.
func filesOn(t *testing.T, image string) string {
	t.Helper()
	disk, err := qcow2.Open(strings.NewReader(image), int64(len(image)))
	if err != nil {
		t.Fatal(err)
	}
	files, err := sim.DiskFiles(disk)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(files)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// Inspect returns the pull manifest of a version.
func (s *shop) Inspect(_ context.Context, _, _ string, ref transfer.VersionRef) (api.PullManifest, error) {
	list := s.tagged(ref.Tag)
	if len(list) == 0 {
		return api.PullManifest{}, farm.Errorf(farm.CodeNoVersion, "no such tag")
	}
	v := list[0]
	m := api.PullManifest{
		ID: v.result.ID, Name: v.result.Name, ContentID: v.result.ContentID, Gen: v.result.Gen,
		Version: api.TemplateVersion{Tag: v.result.Tag, Number: v.result.Number}, Config: json.RawMessage(v.config),
	}
	for name, root := range v.roots {
		m.Files = append(m.Files, api.PullFile{Name: name, Layers: []api.PullLayer{{Root: root}}})
	}
	return m, nil
}

type gatedShop struct {
	*shop
	g *gate
}

func (s gatedShop) Push(ctx context.Context, address string, o transfer.PushOptions) (api.PushResult, error) {
	if err := s.g.pass("push"); err != nil {
		return api.PushResult{}, err
	}
	out, err := s.shop.Push(ctx, address, o)
	if s.g.isDead() {
		return api.PushResult{}, errKilled
	}
	if err == nil {
		err = s.g.pass("pushed")
	}
	return out, err
}
