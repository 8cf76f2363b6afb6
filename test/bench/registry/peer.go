package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/buildyard/buildyard/test/rig"
)

// peer is the registry that ours is compared with, and its client.
type peer struct {
	bin       string
	address   string
	server    *rig.Process
	dir       string
	nextBytes int64 // of the layers of the next tag that the base does not have
}

// peerReport is the client's report of a transfer.
type peerReport struct {
	Seconds float64          `json:"seconds"`
	Layers  map[string]int64 `json:"layers"` // digest to bytes
}

// startPeer builds the peer, starts its registry, and pushes the base and a next tag.
func (b *bench) startPeer(ctx context.Context) error {
	p := &peer{dir: filepath.Join(b.Dir, "peer"), bin: filepath.Join(b.Dir, "bin", "peer")}
	b.peer = p
	if err := rig.MakeDir(p.dir); err != nil {
		return err
	}
	// A separate module: the programs of the project do not need its dependencies.
	if err := b.Programs.BuildModule(ctx, filepath.Join("test", "bench", "registry", "peer"), p.bin); err != nil {
		return fmt.Errorf("build the peer: %w", err)
	}
	b.Say("built the peer")
	address, server, err := start(ctx, p.dir, "peer-log", p.bin, func(address string) []string {
		return []string{"serve", address, p.storage()}
	})
	p.server, p.address = server, strings.TrimPrefix(address, "http://")
	if err != nil {
		return err
	}
	base, err := p.push(ctx, "base", b.disks.base)
	if err != nil {
		return err
	}
	after, err := p.push(ctx, "next", b.disks.clustered)
	if err != nil {
		return err
	}
	for digest, bytes := range after.Layers {
		if _, ok := base.Layers[digest]; !ok {
			p.nextBytes += bytes
		}
	}
	b.Say("pushed the disks to the peer")
	return nil
}

// storage is where its registry keeps everything.
func (p *peer) storage() string { return filepath.Join(p.dir, "registry") }

// push pushes a disk; its layers are removed here.
func (p *peer) push(ctx context.Context, tag string, d disk) (peerReport, error) {
	dir := filepath.Join(p.dir, "push")
	if err := rig.MakeDir(dir); err != nil {
		return peerReport{}, err
	}
	r, err := p.run(ctx, "push", p.address, tag, d.path, dir)
	return r, errors.Join(err, os.RemoveAll(dir))
}

// pull pulls the base into a directory, which it removes, and returns the seconds.
func (p *peer) pull(ctx context.Context, dir string) (float64, error) {
	if err := rig.MakeDir(dir); err != nil {
		return 0, err
	}
	if err := settle(dir); err != nil {
		return 0, err
	}
	r, err := p.run(ctx, "pull", p.address, "base", dir)
	return r.Seconds, errors.Join(err, os.RemoveAll(dir))
}

func (p *peer) run(ctx context.Context, args ...string) (r peerReport, err error) {
	text, err := rig.Output(ctx, p.dir, p.bin, args...)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return r, fmt.Errorf("answer of the peer: %w", err)
	}
	return r, nil
}

// close ends the registry; nil is none.
func (p *peer) close() error {
	if p == nil || p.server == nil {
		return nil
	}
	return p.server.End()
}
