package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/transfer"
)

// config is the configuration of the templates of a run.
const config = `{"ram":"256M","cpu":{"cores":1},"hard_drives":[{"file":"disk.img","format":"raw"}]}`

// store returns the root user's client of the registry.
func (s *site) store() (*transfer.Client, error) {
	return transfer.New(transfer.Options{BaseURL: s.registry, Authorize: func(r *http.Request) error {
		if s.rooted.show == nil {
			return nil
		}
		return s.rooted.show(r)
	}})
}

// push pushes a small disk as a tag of a template, which is made when id is "".
func (s *site) push(ctx context.Context, id, name, tag string) (string, error) {
	store, err := s.store()
	if err != nil {
		return "", err
	}
	defer store.Close()
	file := filepath.Join(s.dir, "disk.img")
	if err := os.WriteFile(file, disk(name, tag), 0o600); err != nil {
		return "", err
	}
	result, err := store.Push(ctx, transfer.PushOptions{
		Request: api.PushRequest{ID: id, Name: name, Tag: tag, Arch: "amd64", Config: json.RawMessage(config)},
		Files: []transfer.PushFile{
			{Name: "disk.img", Kind: api.FileDisk, Disk: &diskfile.Disk{Path: file, Format: "raw"}},
		},
	})
	return result.ID, err
}

// disk is the content of a tag of a template.
func disk(name, tag string) []byte { return bytes.Repeat([]byte(name+" "+tag+"\n"), 4096) }

// pull pulls the newest version of a template, as a node does, and returns its disk.
func (s *site) pull(ctx context.Context, id string) ([]byte, error) {
	store, err := s.store()
	if err != nil {
		return nil, err
	}
	defer store.Close()
	dir, err := os.MkdirTemp(s.dir, "pulled-")
	if err != nil {
		return nil, err
	}
	if _, err = store.Pull(ctx, transfer.PullOptions{Ref: transfer.VersionRef{ID: id}, Dir: dir}); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(dir, "disk.img"))
}

// tags returns the tags of a template, and its arch.
func (s *site) tags(ctx context.Context, id string) (string, error) {
	store, err := s.store()
	if err != nil {
		return "", err
	}
	defer store.Close()
	detail, err := store.TemplateDetail(ctx, id)
	var text strings.Builder
	text.WriteString(detail.Arch)
	for _, v := range detail.Versions {
		text.WriteString(" " + v.Tag)
		if v.Scan != nil {
			text.WriteString(" scanned")
		}
	}
	return text.String(), err
}

// untouched finds fault when a template is not as it was pushed.
func (s *site) untouched(ctx context.Context, o *outcome, ids ...string) {
	for _, id := range ids {
		text, err := s.tags(ctx, id)
		if err != nil || text != "amd64 v1 v2" {
			o.fault("the template %s is %q, %v", id, text, err)
			return
		}
	}
	o.effect("%d templates unchanged", len(ids))
}

// emptyPush is the body of a push of nothing but a configuration.
func emptyPush(id, tag, more string) string {
	return fmt.Sprintf(`{"id":%q,"tag":%q,"arch":"amd64","config":{"hard_drives":[]},"files":[]%s}`, id, tag, more)
}
