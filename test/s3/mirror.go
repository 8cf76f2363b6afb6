package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/buildyard/buildyard/internal/transfer"
	"github.com/buildyard/buildyard/test/rig"
)

// layerPath is the begin of the paths of layers at a registry.
const layerPath = "/registry/v2/blob/"

// otherSite is what a mirror reaches a registry by: it counts the bytes of layers.
type otherSite struct {
	*httptest.Server
	layerBytes atomic.Int64
}

func newOtherSite(registry string) (*otherSite, error) {
	target, err := url.Parse(registry)
	if err != nil {
		return nil, err
	}
	o := &otherSite{}
	relay := httputil.NewSingleHostReverseProxy(target)
	relay.ModifyResponse = func(resp *http.Response) error {
		if strings.HasPrefix(resp.Request.URL.Path, layerPath) && resp.Request.Method == http.MethodGet {
			o.layerBytes.Add(max(resp.ContentLength, 0))
		}
		return nil
	}
	relay.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	o.Server = httptest.NewServer(relay)
	return o, nil
}

// mirrorSite is a registry, the way to it, and a mirror.
type mirrorSite struct {
	stage    *stage
	registry *registryProcess
	way      *otherSite
	mirror   *rig.Process
	url      string // of the mirror
	client   *transfer.Client
	disk     diskFile
}

// caseMirror: a second pull costs the registry no bytes of layers, nodes use the registry when the mirror is away, and
// the mirror when the registry is away.
func caseMirror(ctx context.Context, s *stage) (evidence string, err error) {
	m, err := s.openMirrorSite(ctx)
	if m != nil {
		defer func() { err = errors.Join(err, m.close()) }()
	}
	if err != nil {
		return "", err
	}
	first, err := m.pull(ctx)
	if err != nil {
		return "", err
	}
	second, err := m.pull(ctx)
	if err != nil {
		return "", err
	}
	s.figures["mirror_first_pull_bytes"], s.figures["mirror_second_pull_bytes"] = float64(first), float64(second)
	if first < m.disk.size || second != 0 {
		return "", fmt.Errorf("the registry sent %d bytes for the first pull and %d for the second", first, second)
	}
	if err := m.registry.process.Kill(); err != nil {
		return "", err
	}
	if _, err := m.pull(ctx); err != nil {
		return "", fmt.Errorf("pull without the registry: %w", err)
	}
	if err := m.registry.startAndWait(ctx); err != nil {
		return "", err
	}
	if err := m.mirror.Kill(); err != nil {
		return "", err
	}
	if _, err := m.pull(ctx); err != nil {
		return "", fmt.Errorf("pull without the mirror: %w", err)
	}
	if err := m.startMirror(ctx); err != nil {
		return "", err
	}
	m.client.Close()
	if m.client, err = m.newClient(); err != nil { // a node that did not see the mirror fail
		return "", err
	}
	after, err := m.pull(ctx)
	if err == nil && after != 0 {
		err = fmt.Errorf("the registry sent %d bytes after the mirror was killed", after)
	}
	return fmt.Sprintf("bytes of layers from the registry: first pull %d, second %d, after a kill of the mirror %d; "+
		"pulled without the registry, and without the mirror", first, second, after), err
}

func (s *stage) openMirrorSite(ctx context.Context) (*mirrorSite, error) {
	m := &mirrorSite{stage: s}
	var err error
	if m.registry, err = s.start(ctx, "origin", "disk", nil); err != nil {
		return nil, err
	}
	if m.disk, err = s.makeDisk(80, largeDisk); err != nil {
		return nil, err
	}
	if err := m.registry.push(ctx, idA, "v1", m.disk); err != nil {
		return nil, err
	}
	if m.way, err = newOtherSite(m.registry.url); err != nil {
		return nil, err
	}
	address, err := rig.FreeAddr(ctx)
	if err != nil {
		return m, err
	}
	m.url = "http://" + address
	m.mirror = rig.NewProcess(s.caseDir, "mirror", s.program, "registry", "mirror", "--origin", m.way.URL,
		"--base-path", filepath.Join(s.caseDir, "mirror"), "--listen-addr", address)
	if err := m.startMirror(ctx); err != nil {
		return m, err
	}
	m.client, err = m.newClient()
	return m, err
}

func (m *mirrorSite) newClient() (*transfer.Client, error) {
	return transfer.New(transfer.Options{BaseURL: m.registry.url, Mirror: m.url, IdleTimeout: 20 * time.Second})
}

func (m *mirrorSite) startMirror(ctx context.Context) error {
	if err := m.mirror.Start(); err != nil {
		return err
	}
	return waitUntil(ctx, startLimit, func() error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url+"/readyz", nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	})
}

// pull pulls the version as a node with the mirror does, and returns the bytes of layers that the mirror received.
func (m *mirrorSite) pull(ctx context.Context) (int64, error) {
	before := m.way.layerBytes.Load()
	_, err := m.stage.timePull(ctx, m.client, m.disk)
	return m.way.layerBytes.Load() - before, err
}

func (m *mirrorSite) close() error {
	if m.client != nil {
		m.client.Close()
	}
	m.way.Close()
	if m.mirror != nil && m.mirror.Running() {
		return m.mirror.Kill()
	}
	return nil
}
