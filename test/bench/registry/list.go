package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/buildyard/buildyard/internal/layout/layouttest"
	"github.com/buildyard/buildyard/test/bench/runner"
	"github.com/buildyard/buildyard/test/rig"
)

// What the registry of the row about listing holds, and how often it is asked.
const (
	listTemplates = 10_000
	listVersions  = 20
	listDepth     = 16
	listCalls     = 200
)

// list fills a registry with templates and measures how long it takes to list them.
func (b *bench) list(ctx context.Context) (err error) {
	const name = "list"
	s := &benchEnv{b: b, dir: b.stageDir(name)}
	if err := rig.MakeDir(s.dir); err != nil {
		return err
	}
	err = layouttest.Fill(s.path("registry"),
		layouttest.Shape{Templates: listTemplates, Versions: listVersions, Depth: listDepth})
	if err != nil {
		return err
	}
	b.Say("made %d templates of %d versions", listTemplates, listVersions)
	began := time.Now()
	s, err = b.open(ctx, name)
	if s != nil {
		defer func() { err = errors.Join(err, s.close()) }()
	}
	if err != nil {
		return err
	}
	b.Note(rowList, "ready %.1f s after its start", time.Since(began).Seconds())
	for range listCalls {
		took, err := s.listOnce(ctx)
		if err != nil {
			return err
		}
		b.Add(rowList, runner.MS(took))
	}
	return nil
}

// listOnce measures one call.
func (s *benchEnv) listOnce(ctx context.Context) (time.Duration, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.registry+"/registry/v2/vm", nil)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	n, err := io.Copy(io.Discard, resp.Body)
	took := time.Since(began)
	if err == nil && (resp.StatusCode != http.StatusOK || n < 100*listTemplates) {
		err = errors.New("the list is answered with " + resp.Status + " and too little")
	}
	return took, err
}
