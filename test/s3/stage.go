package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/s3store"
	"github.com/buildyard/buildyard/internal/transfer"
	"github.com/buildyard/buildyard/test/rig"
)

const (
	bucketName = "templates"
	prefix     = "site/one"
	accessKey  = "testkey"
	secretKey  = "testsecret" // of a server for this test
	lease      = 4 * time.Second
	startLimit = 90 * time.Second
)

// stage is what the cases play on: one S3 server, the proxy before it, and registries.
type stage struct {
	options
	dir     string
	program string
	rnd     *rand.Rand
	gateway *rig.Process
	address string // of the server itself
	proxy   *proxy

	figures    map[string]float64 // of the case that runs
	nextFault  int                // of faultKinds
	cases      int
	caseDir    string
	registries []*registryProcess
}

func newStage(ctx context.Context, o options, dir string) (*stage, error) {
	s := &stage{options: o, dir: dir, rnd: rand.New(rand.NewPCG(o.seed, 0))} //nolint:gosec // repeatable faults
	s.program = filepath.Join(o.bin, "buildyard")
	if o.bin == "" {
		programs, err := rig.Build(ctx, dir)
		if err != nil {
			return nil, err
		}
		s.program = programs.Path("buildyard")
	}
	return s, s.startGateway(ctx)
}

// startGateway starts the S3 server with its data in a directory.
func (s *stage) startGateway(ctx context.Context) error {
	data := filepath.Join(s.dir, "gateway")
	if err := os.MkdirAll(data, 0o755); err != nil {
		return err
	}
	var err error
	if s.address, err = rig.FreeAddr(ctx); err != nil {
		return err
	}
	s.gateway = rig.NewProcess(s.dir, "versitygw", s.options.gateway, "--port", s.address, "posix", data)
	s.gateway.Set(map[string]string{"ROOT_ACCESS_KEY": accessKey, "ROOT_SECRET_KEY": secretKey})
	if err := s.gateway.Start(); err != nil {
		return err
	}
	if s.proxy, err = startProxy(s.address); err != nil {
		return err
	}
	return waitUntil(ctx, startLimit, func() error {
		resp, err := http.Get("http://" + s.address + "/") //nolint:noctx // a local server
		if err != nil {
			return err
		}
		return resp.Body.Close()
	})
}

// waitUntil repeats a check until it succeeds.
func waitUntil(ctx context.Context, limit time.Duration, check func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := check()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) || !rig.Pause(ctx, 50*time.Millisecond) {
			return fmt.Errorf("after %s: %w", limit, err)
		}
	}
}

// reset makes an empty bucket and an empty directory for the next case.
func (s *stage) reset(context.Context) error {
	s.proxy.setRule(nil)
	s.cases++
	s.caseDir = filepath.Join(s.dir, fmt.Sprint("case", s.cases))
	if err := os.MkdirAll(s.caseDir, 0o755); err != nil {
		return err
	}
	data := filepath.Join(s.dir, "gateway", bucketName)
	return errors.Join(os.RemoveAll(data), os.MkdirAll(data, 0o755))
}

func (s *stage) stopAll() error {
	s.proxy.setRule(nil)
	var errs []error
	for _, r := range s.registries {
		r.client.Close()
		if r.process.Running() {
			errs = append(errs, r.process.Kill())
		}
	}
	s.registries = nil
	return errors.Join(errs...)
}

func (s *stage) close() error { return errors.Join(s.stopAll(), s.proxy.close(), s.gateway.Kill()) }

// bucket connects to the bucket of the case, past the proxy or through it.
func (s *stage) bucket(endpoint string) (*s3store.Bucket, error) {
	return s3store.New(s3store.Options{
		Bucket: bucketName, Prefix: prefix, Endpoint: endpoint, Region: "us-east-1", AccessKeyID: accessKey,
		SecretAccessKey: secretKey, PathStyle: true, LeaseDuration: lease, KeepLifecycle: true,
	})
}

// registryProcess is one registry and a client of it.
type registryProcess struct {
	process *rig.Process
	url     string
	base    string
	client  *transfer.Client
}

// prepare makes a registry that has not started. kind is the type of its storage.
func (s *stage) prepare(ctx context.Context, name, kind string, more map[string]string) (*registryProcess, error) {
	addr, err := rig.FreeAddr(ctx)
	if err != nil {
		return nil, err
	}
	r := &registryProcess{url: "http://" + addr, base: filepath.Join(s.caseDir, name)}
	r.process = rig.NewProcess(s.caseDir, fmt.Sprintf("registry-%s-%d", name, len(s.registries)), s.program, "registry",
		"--base-path", r.base, "--listen-addr", addr, "--local-listen-addr", "127.0.0.1:0")
	settings := map[string]string{"SVC_BACKEND_TYPE": kind, "SVC_LOG_DIR": ""}
	if kind == "s3" {
		maps.Copy(settings, map[string]string{
			"SVC_BACKEND_S3_BUCKET": bucketName, "SVC_BACKEND_S3_PREFIX": prefix,
			"SVC_BACKEND_S3_ENDPOINT": s.proxy.url(), "SVC_BACKEND_S3_REGION": "us-east-1",
			"SVC_BACKEND_S3_USE_PATH_STYLE": "true", "SVC_BACKEND_S3_UPLOAD_PART_SIZE": "5242880",
			"SVC_BACKEND_S3_LEASE_DURATION": lease.String(), "AWS_ACCESS_KEY_ID": accessKey,
			"AWS_SECRET_ACCESS_KEY": secretKey,
		})
	}
	maps.Copy(settings, more)
	r.process.Set(settings)
	r.client, err = transfer.New(transfer.Options{BaseURL: r.url, MaxAttempts: 8, IdleTimeout: 20 * time.Second})
	s.registries = append(s.registries, r)
	return r, err
}

// start starts a registry and waits until it serves.
func (s *stage) start(ctx context.Context, name, kind string, more map[string]string) (*registryProcess, error) {
	r, err := s.prepare(ctx, name, kind, more)
	if err != nil {
		return nil, err
	}
	return r, r.startAndWait(ctx)
}

func (r *registryProcess) startAndWait(ctx context.Context) error {
	if err := r.process.Start(); err != nil {
		return err
	}
	return r.waitReady(ctx)
}

// errEnded is the end of a registry that should serve.
var errEnded = errors.New("the registry has ended")

func (r *registryProcess) waitReady(ctx context.Context) error {
	ended := false
	err := waitUntil(ctx, startLimit, func() error {
		if !r.process.Running() {
			ended = true
			return nil
		}
		return r.isReady(ctx)
	})
	if err == nil && ended {
		err = errEnded
	}
	if err != nil {
		return fmt.Errorf("start of %s: %w: %s", r.process.Name, err, lastLine(r.process.Tail()))
	}
	return nil
}

func (r *registryProcess) isReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, err := r.client.ListTemplates(ctx)
	return err
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
