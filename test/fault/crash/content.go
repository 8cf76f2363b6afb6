package crash

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/transfer"
)

// template is what all operations change.
const template = "aaaaaaaa-0000-4000-8000-000000000001"

// The files that versions are made of.
const (
	diskFile  = "disk.img"
	stateFile = "memory"
)

// version is the content of a tag: the names of local files.
type version struct {
	disk, state string
	parent      string // local disk that it was made from; "": sent as a whole
	revert      string // tag that goes with the same push
	known       bool   // the client knows the name of its layer
}

var versions = map[string]version{
	"v1": {disk: "one", state: "state"},
	"v2": {disk: "two"},
	"v3": {disk: "three", revert: "v2"},
	"v4": {disk: "one"},
	"v5": {disk: "one"},
	"v6": {disk: "old"},
	"v7": {disk: "new", parent: "old"},
	"v8": {disk: "three", known: true},
	"v9": {disk: "never"},
}

// sources are the local files and how much of each, in percent, is other than in the one before.
const sourceSize = 256 << 10

// makeSources writes the local files and returns the sums of their content.
func makeSources(dir string, rng *rand.Rand) (map[string]string, error) {
	sums := map[string]string{}
	for _, name := range []string{"one", "two", "three", "old", "new", "never", "state"} {
		data := make([]byte, sourceSize)
		for i := range data[:len(data)/2] { // the other half are zeros
			data[i] = byte(rng.Uint32())
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return nil, err
		}
		sum := sha256.Sum256(data)
		sums[name] = hex.EncodeToString(sum[:])
	}
	return sums, nil
}

func (w *walk) source(name string) string { return filepath.Join(w.sources, name) }

// push sends a version as a node does.
func (w *walk) push(ctx context.Context, client *transfer.Client, tag string) error {
	v := versions[tag]
	disk := transfer.PushFile{
		Name: diskFile, Kind: api.FileDisk, Format: "raw", Path: w.source(v.disk),
		Disk: &diskfile.Disk{Path: w.source(v.disk)},
	}
	if v.parent != "" {
		disk.Parent = &transfer.PushParent{ChainID: w.root(v.parent), Disk: &diskfile.Disk{Path: w.source(v.parent)}}
	}
	if v.known {
		disk.ChainID = w.root(v.disk)
	}
	o := transfer.PushOptions{
		Request: api.PushRequest{
			ID: template, Name: "crash", Tag: tag, Arch: "amd64",
			Config: json.RawMessage(`{"ram":"1G"}`), NVRAM: []byte("nv"),
		},
		Files: []transfer.PushFile{disk}, LayerDigests: map[string]string{}, Workers: 1,
	}
	if v.revert != "" {
		o.Request.Revert = &api.PushRevert{Tag: v.revert}
	}
	if v.state != "" {
		o.Files = append(o.Files, transfer.PushFile{Name: stateFile, Kind: api.FileState, Path: w.source(v.state)})
	}
	if _, err := client.Push(ctx, o); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.roots[v.disk] = o.LayerDigests[diskFile]
	return nil
}

func (w *walk) root(name string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.roots[name]
}

// pull fetches a version and holds every file of it against what was pushed.
func (w *walk) pull(ctx context.Context, client *transfer.Client, tag, scratch string) (err error) {
	dir, err := os.MkdirTemp(scratch, "pull-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if _, err := client.Pull(ctx,
		transfer.PullOptions{Ref: transfer.VersionRef{ID: template, Tag: tag}, Dir: dir}); err != nil {
		return fmt.Errorf("version %s cannot be pulled: %w", tag, err)
	}
	v := versions[tag]
	for name, source := range map[string]string{diskFile: v.disk, stateFile: v.state} {
		if source == "" {
			continue
		}
		sum, err := sumOf(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if sum != w.sums[source] {
			return fmt.Errorf("version %s: %w: %s", tag, errOther, name)
		}
	}
	return nil
}

// errOther is a pull that went well and gave other bytes.
var errOther = errors.New("other bytes than were pushed")

func sumOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// common returns the tags that are in both.
func common(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(tag string) bool { return !slices.Contains(b, tag) })
}
